// Figures that a page draws by itself. Every text from a file is set as text, never as HTML.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 460, HEIGHT = 210, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 26;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "1 3", "12 4"]; // lines differ in more than their colour

function make(tag, attributes, ...children) {
  const node = ["svg", "path", "line", "text", "g"].includes(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// x_{i} of our labels as a subscript
function label(text) {
  const parts = String(text).split(/_\{(.*?)\}/);
  return parts.map((part, i) => (i % 2 ? make("sub", {}, part) : part)).filter((part) => part !== "");
}

function short(value) {
  if (value === null || value === undefined) return "none";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

// the value of a line at i, or its last before: a run that has ended, or has no figure for this epoch, keeps what it had
function latest(values, epochs, i) {
  const k = values.findLastIndex((value, n) => n <= i && value !== null && value !== undefined);
  if (k < 0) return "–";
  return k === i ? short(values[k]) : `${short(values[k])} (epoch ${epochs[k]})`;
}

const tip = {
  show(event, text) {
    const box = document.getElementById("tip");
    box.textContent = text;
    box.hidden = false;
    const right = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
    const below = event.clientY + 18 + box.offsetHeight < innerHeight;
    box.style.left = `${Math.max(8, right)}px`;
    box.style.top = `${below ? event.clientY + 18 : Math.max(8, event.clientY - box.offsetHeight - 12)}px`;
  },
  hide() { document.getElementById("tip").hidden = true; },
};

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

// the lines of a stacked chart, each on top of those before it
function stack(lines) {
  const sums = lines[0].values.map(() => 0);
  return lines.map((line) => ({ ...line, values: line.values.map((value, i) => (sums[i] += value || 0)) }));
}

function path(points, x, y) {
  let d = "", open = false;
  points.forEach((value, i) => {
    if (value === null) { open = false; return; }
    d += `${open ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!open && (points[i + 1] ?? null) === null) d += "h.01"; // a point alone is a dot
    open = true;
  });
  return d;
}

// A chart of {title, lines: [{name, values}], stacked} over epochs; its cursor can be moved by pointer, keys, or set(i).
function chart(plot, epochs, prefix) {
  const drawn = plot.stacked ? stack(plot.lines) : plot.lines;
  const all = drawn.flatMap((line) => line.values).filter((value) => value !== null);
  const flat = Math.min(...all) === Math.max(...all);
  let low = plot.stacked || flat ? Math.min(0, ...all) : Math.min(...all), high = Math.max(...all);
  if (low === high) high = low + 1;
  const first = epochs[0], last = epochs[epochs.length - 1];
  const at = (epoch) => LEFT + (WIDTH - LEFT - RIGHT) * (last > first ? (epoch - first) / (last - first) : 0.5);
  const x = (i) => at(epochs[i]);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0" });
  for (const value of ticks(low, high, 5)) {
    svg.append(make("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      make("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, compact(value)));
  }
  for (const epoch of ticks(first, last, 6).filter(Number.isInteger)) {
    svg.append(make("text", { x: at(epoch), y: HEIGHT - 8, "text-anchor": "middle" }, String(epoch)));
  }
  drawn.forEach((line, n) => {
    const d = path(line.values, x, y);
    if (plot.stacked) {
      const under = n ? drawn[n - 1].values : line.values.map(() => 0);
      const back = under.map((value, i) => `L${x(i).toFixed(1)} ${y(value).toFixed(1)}`).reverse().join("");
      svg.append(make("path", { class: `fill${n}`, d: `${d}${back}Z`, fill: `var(--c${n % 7})`, "fill-opacity": ".35" }));
    }
    svg.append(make("path", { d, fill: "none", stroke: `var(--c${n % 7})`, "stroke-width": "2", "stroke-linecap": "round",
      "stroke-dasharray": DASHES[n % 7] }));
  });
  const cursor = make("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  svg.append(cursor);
  const values = plot.lines.map(() => make("span"));
  const legend = make("ul", { class: "legend", "aria-live": "off" }, ...plot.lines.map((line, n) => {
    const swatch = make("i");
    swatch.style.borderColor = `var(--c${n % 7})`;
    swatch.style.borderTopStyle = n % 7 ? "dashed" : "solid";
    return make("li", {}, swatch, `${line.name} `, values[n]);
  }));
  let now = epochs.length - 1;
  const say = () => `epoch ${epochs[now]}\n${plot.lines.map((line) => `${line.name}: ${latest(line.values, epochs, now)}`).join("\n")}`;
  function set(i) {
    now = Math.max(0, Math.min(epochs.length - 1, i));
    cursor.setAttribute("x1", x(now));
    cursor.setAttribute("x2", x(now));
    plot.lines.forEach((line, n) => { values[n].textContent = latest(line.values, epochs, now); });
    svg.setAttribute("aria-label", `${prefix}, ${plot.title}: ${say().replaceAll("\n", ", ")}`);
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const place = (event.clientX - box.left) / box.width * WIDTH;
    const far = epochs.map((epoch) => Math.abs(at(epoch) - place));
    set(far.indexOf(Math.min(...far)));
    tip.show(event, say());
  });
  svg.addEventListener("pointerleave", tip.hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    set(now + step);
  });
  set(now);
  const figure = make("figure", { class: "chart" }, make("figcaption", {}, ...label(plot.title)), svg, legend);
  return { figure, set: (epoch) => set(epochs.findLastIndex((e) => e <= epoch)) };
}

function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  return size >= 1e4 ? `${Number((value / 1e3).toPrecision(3))}k` : String(value);
}

function triple(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
}

// The colour of a value of A between the two ends of the scale.
function heat([low, high], cold, hot) {
  return (value) => {
    const share = value === null ? 0 : high > low ? (value - low) / (high - low) : 0.5;
    return cold.map((from, i) => Math.round(from + share * (hot[i] - from)));
  };
}

// Black or white, whichever can be read better on the colour (WCAG's relative luminance).
function readable(colour) {
  const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}
