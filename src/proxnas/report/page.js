// The page: what it shows is in the JSON block, or comes from the server that watches a run.
"use strict";

const POLL = 1500; // ms
const state = { frames: {}, follow: {}, open: new Set(), busy: false, version: "" };

function facts(run) {
  return make("dl", { class: "facts" }, ...run.facts.map(([name, value]) =>
    make("div", { class: value.length > 40 ? "wide" : "" }, make("dt", {}, name), make("dd", {}, value))));
}

function pairs(title, list, id) {
  if (!list.length) return null;
  const box = make("details", { id }, make("summary", {}, title), make("div", { class: "scroll" },
    make("table", { class: "list" }, make("tbody", {}, ...list.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, value)))))));
  return remember(box);
}

// a live page is drawn anew with every epoch: what was open stays open
function remember(box) {
  box.open = state.open.has(box.id);
  box.addEventListener("toggle", () => state.open[box.open ? "add" : "delete"](box.id));
  return box;
}

function scroll(name, ...children) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, ...children);
}

// Our drawings hold no scripts, and parsed like this none would run.
function drawing(svg) {
  return document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);
}

function matrix(group) {
  const cells = group.edges.map(() => group.candidates.map(() => make("td"))), [low, high] = group.range;
  const digits = Math.min(4, Math.max(2, Math.ceil(1 - Math.log10(high - low || 1)))); // so that entries differ
  const head = make("thead", {}, make("tr", {}, make("td"), ...group.candidates.map((name) => make("th", { scope: "col" }, name))));
  const body = make("tbody", {}, ...group.edges.map((edge, e) =>
    make("tr", {}, make("th", { scope: "row" }, ...label(edge)), ...cells[e])));
  function set(frame, colour) {
    const on = new Set(group.selected[frame].map(([e, k]) => `${e},${k}`));
    cells.forEach((row, e) => row.forEach((cell, k) => {
      const value = group.A[frame][e][k] ?? null, chosen = on.has(`${e},${k}`), paint = colour(value);
      cell.className = chosen ? "on" : "";
      cell.textContent = (chosen ? "● " : "") + (value === null ? "none" : value.toFixed(digits));
      if (chosen) cell.setAttribute("aria-label", `${cell.textContent.slice(2)}, selected`); else cell.removeAttribute("aria-label");
      cell.style.background = `rgb(${paint})`;
      cell.style.color = readable(paint);
    }));
  }
  return { table: make("table", { class: "matrix" }, head, body), set };
}

// One panel an edge: candidates from top to bottom, epochs from left to right, marked where A_bar selects.
function panel(group, e, epochs) {
  const K = group.candidates.length, T = epochs.length, wide = Math.max(2, Math.floor(400 / T)), tall = 12;
  const canvas = make("canvas", { role: "img", width: String(wide * T), height: String(tall * K) });
  const base = make("canvas", { width: String(T), height: String(K) }); // a pixel an entry, once for a theme
  const chosen = group.selected.map((pairs) => new Set(pairs.filter(([edge]) => edge === e).map(([, k]) => k)));
  canvas.style.height = `${Math.max(9 * K, Math.min(16 * K, 64))}px`;
  function paint(colour, mark) {
    const image = new ImageData(T, K);
    for (let k = 0; k < K; k++) {
      for (let t = 0; t < T; t++) image.data.set([...colour(group.A[t][e][k] ?? null), 255], 4 * (k * T + t));
    }
    base.getContext("2d").putImageData(image, 0, 0);
    base.mark = mark;
  }
  function set(frame, colour, mark, ink) {
    if (base.mark !== mark) paint(colour, mark);
    const brush = canvas.getContext("2d");
    brush.imageSmoothingEnabled = false;
    brush.drawImage(base, 0, 0, canvas.width, canvas.height);
    brush.fillStyle = mark;
    chosen.forEach((rows, t) => rows.forEach((k) => brush.fillRect(t * wide, k * tall + tall / 2 - 2, wide, 4)));
    brush.strokeStyle = ink;
    brush.lineWidth = 2;
    brush.strokeRect(frame * wide + 1, 1, Math.max(2, wide - 2), canvas.height - 2);
    const names = [...chosen[frame]].map((k) => group.candidates[k]).join(" and ") || "nothing";
    canvas.setAttribute("aria-label", `${group.edges[e].replaceAll(/[_{}]/g, "")} at epoch ${epochs[frame]}: selects ${names}`);
  }
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const t = Math.min(T - 1, Math.max(0, Math.floor((event.clientX - box.left) / box.width * T)));
    const k = Math.min(K - 1, Math.max(0, Math.floor((event.clientY - box.top) / box.height * K)));
    tip.show(event, `epoch ${epochs[t]}\n${group.candidates[k]}: ${short(group.A[t][e][k])}${chosen[t].has(k) ? "\nselected" : ""}`);
  });
  canvas.addEventListener("pointerleave", tip.hide);
  return { figure: make("figure", {}, make("figcaption", {}, ...label(group.edges[e])), canvas), set };
}

function scale(group) {
  const canvas = make("canvas", { width: "120", height: "12", "aria-hidden": "true" });
  function set(colour) {
    const brush = canvas.getContext("2d"), [low, high] = group.range;
    for (let i = 0; i < 120; i++) {
      brush.fillStyle = `rgb(${colour(low + (high - low) * i / 119)})`;
      brush.fillRect(i, 0, 1, 12);
    }
  }
  const [low, high] = group.range.map((value) => make("span", {}, short(value)));
  const note = make("span", {}, `the mark is what A_bar selects; rows from top to bottom: ${group.candidates.join(", ")}`);
  return { box: make("div", { class: "scale" }, low, canvas, high, note), set };
}

function heatmaps(group, epochs) {
  const now = matrix(group), legend = scale(group), panels = group.edges.map((_, e) => panel(group, e, epochs));
  const nodes = [make("h3", {}, `A of the ${group.title}`), scroll(`A of the ${group.title} at this epoch`, now.table), legend.box,
    make("div", { class: "panels" }, ...panels.map((one) => one.figure))];
  function set(frame) {
    const colour = heat(group.range, triple("--cold"), triple("--hot")), style = getComputedStyle(document.documentElement);
    now.set(frame, colour);
    legend.set(colour);
    for (const one of panels) one.set(frame, colour, style.getPropertyValue("--mark"), style.getPropertyValue("--ink"));
  }
  return { nodes, set };
}

// The slider, the cell and A at its epoch; `cursors` are told the epoch.
function replay(run, id, cursors) {
  const { epochs, cells, drawings, groups } = run.replay, last = cells.length - 1;
  const place = make("div", { class: "cells" });
  const maps = groups.map((group) => heatmaps(group, epochs));
  const slider = make("input", { type: "range", id: `${id}-slider`, min: "0", max: String(last), step: "1" });
  const output = make("output", { for: slider.id });
  const play = make("button", { type: "button" }, "▶ play");
  let drawn = [], timer = 0;
  function set(frame) {
    state.frames[run.name] = frame;
    state.follow[run.name] = frame === last;
    slider.value = String(frame);
    if (epochs.length) {
      output.textContent = `epoch ${epochs[frame]} of ${epochs[last]}`;
      slider.setAttribute("aria-valuetext", output.textContent);
    }
    if (String(drawn) !== String(cells[frame])) {
      drawn = cells[frame];
      place.replaceChildren(...drawn.map((number) => scroll("drawing of a cell", drawing(drawings[number]))));
    }
    for (const map of maps) map.set(frame);
    if (epochs.length) for (const cursor of cursors) cursor.set(epochs[frame]);
  }
  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "▶ play";
  }
  slider.addEventListener("input", () => { stop(); set(Number(slider.value)); });
  slider.addEventListener("pointerdown", () => { state.busy = true; });
  for (const end of ["pointerup", "pointercancel"]) slider.addEventListener(end, () => { state.busy = false; });
  play.addEventListener("click", () => {
    if (timer) { stop(); return; }
    if (Number(slider.value) === last) set(0);
    play.textContent = "❚❚ pause";
    timer = setInterval(() => {
      if (!play.isConnected || Number(slider.value) >= last) { stop(); return; }
      set(Number(slider.value) + 1);
    }, 300);
  });
  const kept = state.frames[run.name];
  const start = kept === undefined || state.follow[run.name] ? last : Math.min(kept, last);
  const bar = make("div", { class: "replay" }, play, make("label", { for: slider.id }, "epoch"), slider, output);
  const text = remember(make("details", { id: `${id}-text` }, make("summary", {}, "the last cell in words"), make("pre", {}, run.cell)));
  const nodes = [last > 0 ? bar : null, place, run.cell ? text : null, ...maps.flatMap((map) => map.nodes)];
  return { nodes, redraw: () => set(Number(slider.value)), start: () => set(start) };
}

// Rows of texts, the first of which is the head; nothing without rows.
function table(title, rows) {
  if (rows.length < 2) return [];
  const [head, ...body] = rows;
  return [make("h3", {}, title), scroll(title, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...body.map(([name, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((cell) => make("td", {}, cell)))))))];
}

// How often a class (row) is taken for another (column): the darker, the more of the row.
function confusion(classes, counts) {
  const rows = counts.map((row, k) => {
    const all = Math.max(1, row.reduce((sum, count) => sum + count, 0)), paint = heat([0, 1], triple("--cold"), triple("--hot"));
    const cells = row.map((count, j) => {
      const cell = make("td", { class: j === k ? "on" : "" }, String(count)), colour = paint(count / all);
      cell.style.background = `rgb(${colour})`;
      cell.style.color = readable(colour);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, classes[k]), ...cells);
  });
  const head = make("tr", {}, make("td", {}, "true \\ answer"), ...classes.map((name) => make("th", { scope: "col" }, name)));
  return make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, ...rows));
}

function mistake(one) {
  const picture = make("img", { src: `data:image/png;base64,${one.png}`, alt: one.image, width: "72", height: "72" });
  return make("figure", { class: "mistake" }, picture, make("figcaption", {}, `${one.said}, is ${one.true}`));
}

// What the test tells besides its figure.
function examined(test) {
  const nodes = [];
  if (test.confusion.length) nodes.push(make("h3", {}, "Who is taken for whom"), scroll("confusion matrix", confusion(test.classes, test.confusion)));
  else nodes.push(...table("Who is taken for whom, most often", [["class", "answer", "images"], ...test.confused]));
  if (test.curve) nodes.push(make("h3", {}, `Can probabilities be believed? (${test.calibration})`), make("div", { class: "curve" }, drawing(test.curve)));
  if (test.mistakes.length) nodes.push(make("h3", {}, "The mistakes that it is surest of"), make("div", { class: "mistakes" }, ...test.mistakes.map(mistake)));
  return nodes;
}

function section(run, number, several) {
  const id = `run${number}`;
  const charts = run.charts.map((plot) => chart(plot, run.epochs, run.name));
  const played = run.replay && replay(run, id, charts);
  const words = [run.status, run.progress].filter(Boolean).join(", ");
  const nodes = [
    make("h2", { id }, several ? `${run.name} ` : "", make("span", { class: "status" }, `${run.command} ${words}`)),
    ...(run.warning ? run.warning.split("; ") : []).map((line) => make("p", { class: "warning" }, line)),
    facts(run),
    ...table("What it is held against", run.leaderboard ?? []),
    ...(run.examined ? examined(run.examined) : []),
    ...(played ? [make("h3", {}, "What was found"), ...played.nodes] : []),
    charts.length ? make("h3", {}, "By epoch") : null,
    charts.length ? make("div", { class: "charts" }, ...charts.map((one) => one.figure)) : null,
    run.reproduce ? make("h3", {}, "Run it again") : null,
    run.reproduce ? make("pre", {}, run.reproduce) : null,
    run.called ? make("p", { class: "status" }, `It was called as: ${run.called}`) : null,
    pairs("Configuration", run.config, `${id}-config`),
    pairs("Environment", run.environment, `${id}-environment`),
  ];
  return { node: make("section", { "aria-labelledby": id }, ...nodes.filter(Boolean)), played };
}

// One table, and for each figure of merit a chart with a line a run.
function comparison(runs) {
  const names = [...new Set(runs.flatMap((run) => run.facts.map(([name]) => name)))];
  const head = make("tr", {}, ...["run", "status", ...names].map((name) => make("th", { scope: "col" }, name)));
  const rows = runs.map((run, number) => {
    const known = new Map(run.facts), link = make("a", { href: `#run${number}` }, run.name);
    return make("tr", {}, make("th", { scope: "row" }, link), make("td", {}, run.status),
      ...names.map((name) => make("td", {}, known.get(name) ?? "")));
  });
  const charts = ["accuracy", "perplexity"].map((title) => together(runs, title)).filter(Boolean);
  return make("section", { id: "comparison", "aria-label": "comparison" }, scroll("all runs",
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))), make("div", { class: "charts" }, ...charts));
}

function together(runs, title) {
  const found = runs.map((run) => [run, run.charts.find((plot) => plot.title === title)?.lines.find((line) => line.name === "valid")])
    .filter(([, line]) => line);
  if (found.length < 2) return null;
  const epochs = [...new Set(found.flatMap(([run]) => run.epochs))].sort((a, b) => a - b);
  const lines = found.map(([run, line]) => {
    const at = new Map(run.epochs.map((epoch, i) => [epoch, line.values[i]]));
    return { name: run.name, values: epochs.map((epoch) => at.get(epoch) ?? null) };
  });
  return chart({ title: `validation ${title}`, lines }, epochs, "all runs").figure;
}

let sections = [];
function render(data) {
  const focused = document.activeElement?.id;
  sections = data.runs.map((run, number) => section(run, number, data.runs.length > 1));
  document.getElementById("main").replaceChildren(
    ...(data.runs.length > 1 ? [comparison(data.runs)] : []), ...sections.map((one) => one.node));
  for (const one of sections) one.played?.start();
  if (focused) document.getElementById(focused)?.focus();
}

function theme() {
  const button = document.getElementById("theme"), preferred = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("proxnas-theme"); } catch { /* a page from a file may have no storage */ }
  function apply() {
    const dark = (chosen ?? (preferred.matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
    for (const one of sections) one.played?.redraw();
  }
  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("proxnas-theme", chosen); } catch { /* then it holds for this visit */ }
    apply();
  });
  preferred.addEventListener("change", apply);
  apply();
}

async function poll() {
  const line = document.getElementById("live");
  const headers = state.version ? { "If-None-Match": state.version } : {};
  const answer = await fetch("data.json", { cache: "no-store", headers }).catch(() => null);
  if (!answer) {
    line.textContent = "proxnas watch does not answer; this is the last that it said";
    state.version = ""; // the next one may be another process
  } else if (answer.status === 200 && !state.busy) {
    const data = await answer.json();
    state.version = answer.headers.get("ETag");
    render(data);
    line.textContent = data.runs.map((run) => [run.name, run.status, run.progress].filter(Boolean).join(", ")).join("; ");
  }
  setTimeout(poll, POLL);
}

const data = JSON.parse(document.getElementById("data").textContent);
theme();
if (data.runs) render(data); else poll();
