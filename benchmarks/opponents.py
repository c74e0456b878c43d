"""`fit` beside what its user would have trained instead, in the same time of one thread.

    python benchmarks/opponents.py DATA SECONDS [--seeds 100,101] [--only fit,resnet-8,...]
                                   [--folder opponents]

Opponents: a plain network of four convolutions, ResNet-8, -14 and -18 and MobileNetV2, each under
our own recipe (the optimizer, schedule, precision, batches, image sizes and changes of images that
`fit` has planned for that data and time) and, with " by adam" behind its name, as it is mostly
done: Adam at 1e-3, falling linearly, shifts and flips, batches of 128. `fit with a search` tries
other kinds of blocks out (`--space resnet`); `fit half` is within half of the plain network's
parameters, `narrow` the plain network of the width that comes next below them.

Seconds are those of the processor, from the start of the process to the tested network, of which
opponents need 3 to load torch and their data; that of `fit` is exported too. A process a row.
Resumable: FOLDER/rows.jsonl has a row for each data, time, seed and name, and those that are there
are not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from chain_table import append, known
from torch import Tensor, nn

from proxnas.core.size.complexity import parameters
from proxnas.domains.images import recipe
from proxnas.domains.images.data.augment import Augment
from proxnas.domains.images.data.images import Images, load
from proxnas.domains.images.data.stream import ImageBatches, Stream
from proxnas.domains.images.evaluate import evaluate
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.images.networks.chain import chain_network
from proxnas.domains.images.networks.cnn import Size, channels_last
from proxnas.domains.images.parts import train_parts
from proxnas.domains.images.pass_images import PassImages, Verdict
from proxnas.domains.images.spaces.resnet import middle, resnet
from proxnas.training.convolutions import MuonAndSgd, Rates
from proxnas.training.pace import Pace, rate_factor
from proxnas.workflows import fit_minutes, fit_plan
from proxnas.workflows.fit_board import simple_models

ADAM = " by adam"
FIT = ("fit", "fit with a search", "fit half")
NARROW = "narrow"
LOADING = 3.0
"""Seconds in which an opponent's script has torch and its data: those of the plan are not its
own."""
CPU = torch.device("cpu")
Build = Callable[[int, int], nn.Module]
"""Channels of images, classes -> a network."""


def layer(C_in: int, C: int, stride: int = 1, kernel: int = 3, groups: int = 1) -> nn.Sequential:
    """Convolution, norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(C_in, C, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(C),
        nn.ReLU(inplace=True),
    )


def head(C: int, classes: int) -> nn.Sequential:
    """Mean over the image, then a linear map."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(C, classes))


class Residual(nn.Module):
    """x + f(x), or what brings x to the shape of f(x)."""

    def __init__(self, body: nn.Module, short: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.body, self.short, self.last = body, short, last

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.body(x) + self.short(x))
        return out


def basic(C_in: int, C: int, stride: int) -> Residual:
    """The block of He et al. (2016) for small images."""
    body = nn.Sequential(
        layer(C_in, C, stride), nn.Conv2d(C, C, 3, 1, 1, bias=False), nn.BatchNorm2d(C)
    )
    same = C_in == C and stride == 1
    short = nn.Identity() if same else layer(C_in, C, stride, kernel=1)[:2]
    return Residual(body, short, nn.ReLU(inplace=True))


def residual_network(widths: tuple[int, ...], blocks: int) -> Build:
    """Stages of basic blocks, each but the first halving the image."""

    def build(image_channels: int, classes: int) -> nn.Module:
        parts: list[nn.Module] = [layer(image_channels, widths[0])]
        C_in = widths[0]
        for stage, C in enumerate(widths):
            for block in range(blocks):
                parts.append(basic(C_in, C, 2 if stage and not block else 1))
                C_in = C
        return nn.Sequential(*parts, head(C_in, classes))

    return build


def four_convolutions(image_channels: int, classes: int) -> nn.Module:
    """Four layers with pooling between."""
    parts: list[nn.Module] = []
    C_in = image_channels
    for C in (32, 64, 128, 128):
        parts += [layer(C_in, C), nn.MaxPool2d(2)]
        C_in = C
    return nn.Sequential(*parts[:-1], head(C_in, classes))


def mobile_v2(image_channels: int, classes: int) -> nn.Module:
    """MobileNetV2 (Sandler et al., 2018) as it is used for 32 x 32 pixels: three halvings."""
    parts: list[nn.Module] = [layer(image_channels, 32)]
    C_in = 32
    early = [(1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2)]
    late = [(6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, C, number, stride in early + late:
        for block in range(number):
            here, wide = stride if not block else 1, expansion * C_in
            first = [layer(C_in, wide, kernel=1)] if expansion > 1 else []
            depthwise, last = layer(wide, wide, here, groups=wide), layer(wide, C, kernel=1)[:2]
            body = nn.Sequential(*first, depthwise, last)
            same = here == 1 and C_in == C
            parts.append(Residual(body, nn.Identity(), nn.Identity()) if same else body)
            C_in = C
    return nn.Sequential(*parts, layer(C_in, 1280, kernel=1), head(1280, classes))


NETWORKS: dict[str, Build] = {
    "four convolutions": four_convolutions,
    "resnet-8": residual_network((16, 32, 64), 1),
    "resnet-14": residual_network((16, 32, 64), 2),
    "resnet-18": residual_network((64, 128, 256, 512), 2),
    "mobilenet-v2": mobile_v2,
}


def fit_row(name: str, data: str, seconds: float, seed: int) -> dict[str, Any]:
    """A whole `fit`."""
    more: dict[str, Any] = {}
    if name == "fit with a search":
        more["space"] = fit_plan.SPACE
    if name == "fit half":
        more["max_params"] = str(half_of(data, seconds, seed))
    config = FitConfig(data=data, minutes=seconds / 60, seed=seed, threads=1, quiet=True, **more)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        result = fit_minutes.fit_minutes(config, run, lambda line: None, time.process_time, 0.0)
        plan = json.loads((run / fit_plan.RECIPE).read_text())
    figures = {"test": result["test_accuracy"], "params": result["params"]}
    figures |= {"steps": result["steps"], "channels": plan["channels"], "search": plan["search"]}
    figures["leaderboard"] = [[row["name"], row["test_accuracy"]] for row in result["leaderboard"]]
    return figures


def planned(data: str, seconds: float, seed: int) -> tuple[recipe.Plan, Images]:
    """What `fit` would plan, and the images as large as it would take them."""
    from proxnas.runs.folder import Run

    config = FitConfig(data=data, minutes=seconds / 60, seed=seed, threads=1, quiet=True)
    images = load(config.data, config.load_options())
    start = (0.0, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        simple = simple_models(run, images)
        plan = fit_plan.make_plan(
            config, run, images, simple, start, time.process_time, lambda line: None
        )
    if plan.image_size:
        sized = FitConfig(data=data, image_size=plan.image_size)
        images = load(data, sized.load_options())
    return plan, images


def half_of(data: str, seconds: float, seed: int) -> int:
    """Half of the parameters of the plain network that `fit` would train."""
    plan, images = planned(data, seconds, seed)
    return parameters(plain(plan.channels, images)) // 2


def plain(channels: int, images: Images) -> nn.Module:
    """The middle network of the space, so wide."""
    size = Size(1, channels, images.shape[0], images.num_classes)
    return chain_network(resnet().genotype(middle()), size)


def narrowed(plan: recipe.Plan, images: Images) -> nn.Module:
    """The widest plain network within half of the planned one's parameters."""
    limit = parameters(plain(plan.channels, images)) // 2
    fitting = [C for C in range(4, plan.channels) if parameters(plain(C, images)) <= limit]
    return plain(fitting[-1], images)


def opponent_row(name: str, data: str, seconds: float, seed: int) -> dict[str, Any]:
    """A network, trained for what is left of the time."""
    torch.set_num_threads(1)
    plan, images = planned(data, seconds, seed)
    torch.manual_seed(seed)
    if name == NARROW:
        network = narrowed(plan, images)
    else:
        network = NETWORKS[name.removesuffix(ADAM)](images.shape[0], images.num_classes)
    network = channels_last(network)
    test = ImageBatches(images, (images.x_test, images.y_test))
    pace = Pace(seconds - LOADING - testing_seconds(network, test), clock=time.process_time)
    train = train_by_adam if name.endswith(ADAM) else train_by_recipe
    train(network, plan, images, pace)
    accuracy = evaluate(network.eval(), test, images.num_classes, torch.float32).accuracy
    return {"test": accuracy, "params": parameters(network), "steps": len(pace.shares)}


def testing_seconds(network: nn.Module, test: ImageBatches) -> float:
    """How long the test will take, by a batch of it, and a tenth more."""
    batch = next(iter(test.evaluation_batches(128)))
    network.eval()
    with torch.no_grad():
        network(batch.x)
        start = time.process_time()
        network(batch.x)
    return 1.1 * (time.process_time() - start) * len(test) / len(batch.y)


def train_by_recipe(network: nn.Module, plan: recipe.Plan, images: Images, pace: Pace) -> None:
    """As `fit` trains its plain network."""
    data = PassImages(plan, images, CPU)
    optimizer = MuonAndSgd(network, Rates(convolutions=plan.learning_rate))
    side = min(images.shape[1:])
    network.train()
    while not pace.over():
        share = pace.next()
        batch = data.next(share, lambda part: Verdict(0.0, 0.0))
        x = shrunk(batch.x, recipe.sides(side, share))
        with torch.autocast("cpu", torch.bfloat16, enabled=plan.precision == "bf16"):
            outputs = network(x)
        loss = data.loss(outputs.float(), batch.y)
        loss.backward()
        optimizer.step(loss.detach(), rate_factor(share))


def train_by_adam(network: nn.Module, plan: recipe.Plan, images: Images, pace: Pace) -> None:
    """As most would."""
    train, _ = train_parts(images, 0.0)
    part = ImageBatches(images, train, Augment(flip=plan.flip))
    stream = Stream(part, min(128, len(train[1])), plan.seed, "train")
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    network.train()
    while not pace.over():
        share = pace.next()
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - share)
        batch = stream.next()
        loss = images.target.loss(network(batch.x), batch.y, None, 0.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def shrunk(x: Tensor, side: int) -> Tensor:
    """Square images of that side."""
    if side >= min(x.shape[2:]):
        return x
    small = nn.functional.interpolate(x, size=side, mode="bilinear", antialias=True)
    return small.contiguous(memory_format=torch.channels_last)


def make_row(name: str, data: str, seconds: float, seed: int) -> dict[str, Any]:
    """The row of a name; this process has done nothing else."""
    torch.set_num_threads(1)
    make = fit_row if name in FIT else opponent_row
    figures = make(name, data, seconds, seed)
    key = {"data": Path(data).stem, "seconds": seconds, "seed": seed, "name": name}
    return key | figures | {"used": round(time.process_time())}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown: a line a name for each data and time, and how far `fit` is ahead."""
    lines = [
        "| data | seconds | network | seeds | test | std | parameters | steps | fit ahead by |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for data, seconds in dict.fromkeys((row["data"], row["seconds"]) for row in rows):
        mine = [row for row in rows if (row["data"], row["seconds"]) == (data, seconds)]
        ours = {row["seed"]: row["test"] for row in mine if row["name"] == "fit"}
        for name in dict.fromkeys(row["name"] for row in mine):
            some = [row for row in mine if row["name"] == name]
            lines.append(f"| {data} | {seconds:.0f} | {name} | {_figures(some, ours)} |")
    return lines


def _figures(rows: list[dict[str, Any]], ours: dict[int, float]) -> str:
    tests = [100 * row["test"] for row in rows]
    spread = f"{statistics.stdev(tests):.2f}" if len(tests) > 1 else ""
    pairs = [100 * (ours[row["seed"]] - row["test"]) for row in rows if row["seed"] in ours]
    ahead = f"{statistics.fmean(pairs):+.2f}" if pairs and rows[0]["name"] != "fit" else ""
    steps = statistics.fmean(row["steps"] for row in rows)
    params = statistics.fmean(row["params"] for row in rows)
    mean = statistics.fmean(tests)
    return f"{len(rows)} | {mean:.2f} | {spread} | {params:,.0f} | {steps:,.0f} | {ahead}"


def main() -> None:
    """Makes the rows that are missing, each in a process of its own, and prints the summary."""
    names = [*FIT[:1], *NETWORKS, *(f"{name}{ADAM}" for name in NETWORKS)]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seeds", default="100,101")
    parser.add_argument("--only", default=",".join(names))
    parser.add_argument("--folder", default="opponents")
    parser.add_argument("--here", action="store_true", help="one row, in this process")
    options = parser.parse_args()
    path = Path(options.folder) / "rows.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in map(int, options.seeds.split(",")):
        for name in options.only.split(","):
            if options.here:
                append(path, make_row(name, options.data, options.seconds, seed))
                continue
            key = (Path(options.data).stem, options.seconds, seed, name)
            rows = known(path)
            if key not in {(r["data"], r["seconds"], r["seed"], r["name"]) for r in rows}:
                words = [options.data, str(options.seconds), "--seeds", str(seed), "--only", name]
                own = ["--folder", options.folder, "--here"]
                subprocess.run([sys.executable, __file__, *words, *own], check=True)
    if not options.here:
        print("\n".join(summary(known(path))))


if __name__ == "__main__":
    main()
