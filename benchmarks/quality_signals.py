"""What predicts how good a cell is? Signals of random cells, and their rank correlation with a
judge.

    python benchmarks/quality_signals.py CIFAR_FOLDER JUDGE [--space darts7] [--cells 200]
        [--kinds counts,scores] [--folder signals]

JUDGE: a folder with judge.py (DARTS cells), or a csv table (NAS-Bench-201). Each random cell is
built as a network of its own; `counts` are known without running it, `scores` take a few batches
at the first weights, trainings take some steps. One row a cell and kind in FOLDER/SPACE.jsonl,
resumable; the table is printed: Spearman's rank correlation with the judge, the same with the
parameters held fixed (partial), and processor seconds a cell.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from quality_judges import SIZES, Judge, judge_of, random_genotypes, reduced, skips
from scipy.stats import rankdata
from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.common.seeds import stable_seed
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.core.zero_cost import grad_norm, linearise, naswot, synflow, zico
from proxnas.domains import spaces
from proxnas.domains.images.data.images import load
from proxnas.domains.images.networks.cnn import Size

Signals = dict[str, float]
BATCH, HALF = 64, 32


@dataclass(frozen=True)
class Data:
    """Images (N, C, H, W), normalised, and their labels."""

    x: Tensor
    y: Tensor

    def batch(self, number: int, size: int = BATCH) -> tuple[Tensor, Tensor]:
        """Batch of that number in a fixed order of the first three quarters."""
        N = 3 * len(self.y) // 4
        start = number * size % (N - size)
        return self.x[start : start + size], self.y[start : start + size]

    def held_out(self, images: int = 1000) -> tuple[Tensor, Tensor]:
        """Images that no batch has."""
        return self.x[-images:], self.y[-images:]


def read(path: Path, images: int = 20_000) -> Data:
    """The first images of the reduced set, mixed."""
    all_images = load(str(path))
    order = np.random.default_rng(0).permutation(len(all_images.y_train))[:images]
    x = torch.from_numpy(np.asarray(all_images.x_train)[order]).float().permute(0, 3, 1, 2) / 255
    x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
    y = torch.from_numpy(all_images.y_train[order].astype(np.int64))
    return Data(x.contiguous(memory_format=torch.channels_last), y)


def network(genotype: Genotype, space: str, size: Size, draw: int = 0) -> nn.Module:
    """The cell as a network of its own, normalised by the batch as in a search."""
    torch.manual_seed(stable_seed(draw, "signals"))
    net = spaces.find(space).network(genotype, size, searched=True)
    return net.to(memory_format=torch.channels_last)


def search_size(space: str) -> Size:
    """The size of a search."""
    return SIZES[space]


def deeper(space: str) -> Size:
    """Nearer to the depth of a final network, and narrow because depth costs."""
    return Size(3 if space == "nasbench201" else 8, 4, 3, 10)


def counts(genotype: Genotype, space: str, data: Data) -> Signals:
    """What is known without running anything; `depth` is the mean over the nodes of the longest
    way from an input of the cell."""
    with torch.device("meta"):
        net = spaces.find(space).network(genotype, SIZES[space])
    found = {"parameters": float(parameters(net))}
    found["multiply-adds"] = float(multiply_adds(net, (3, 16, 16)))
    found["skip connections"] = float(skips(genotype))
    found["depth"] = depth(genotype)
    return found


def depth(genotype: Genotype) -> float:
    """Mean over all nodes of all cells of the longest way from an input, `none` not counted."""
    depths: list[int] = []
    for cell in genotype.cells.values():
        inputs = 2 if genotype.kind == "cnn" else 1
        far = [0] * inputs
        for node in cell.nodes:
            far.append(max((far[e.input] + 1 for e in node if e.op != "none"), default=0))
        depths += far[inputs:]
    return sum(depths) / len(depths)


def scores(genotype: Genotype, space: str, data: Data) -> Signals:
    """Scores without training, in a network of the size of a search."""
    net = network(genotype, space, SIZES[space])
    gradients = [_gradient(net, *data.batch(b, HALF)) for b in range(4)]
    weights = [w for w in net.parameters() if w.ndim > 1]
    pairs = zip(gradients[0], weights, strict=True)
    shape = tuple(data.x.shape[1:])
    return {
        "naswot (no labels)": naswot(lambda: net(data.batch(0)[0])),
        "gradient norm": grad_norm(gradients[0]),
        "snip": sum(float((g * w).detach().abs().sum()) for g, w in pairs),
        "ZiCo": zico(gradients),
        "agreement of gradients": agreement(gradients),
        "zen (no data)": zen(net, shape),
        "synflow (no data)": flow(net, shape),
    }


def _gradient(net: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """dL/dw of the convolutions and the classifier."""
    weights = [w for w in net.parameters() if w.ndim > 1]
    loss = nn.functional.cross_entropy(net(x), y)
    found = torch.autograd.grad(loss, weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for g, w in zip(found, weights, strict=True)]


def agreement(gradients: list[list[Tensor]]) -> float:
    """Mean cosine between the gradients of two batches."""
    flat = torch.stack([torch.cat([g.flatten() for g in layers]) for layers in gradients])
    cosines = nn.functional.normalize(flat, dim=1)
    n = len(flat)
    return float(((cosines @ cosines.T).sum() - n) / (n * (n - 1)))


def zen(net: nn.Module, shape: tuple[int, ...]) -> float:
    """log of how far features move with the input, with the scales that batch norms take away put
    back."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, *shape, generator=generator)
    moved = x + 0.01 * torch.randn(x.shape, generator=generator)
    features: list[Tensor] = []
    log_scale = 0.0

    def scale(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal log_scale
        log_scale += 0.5 * math.log(float(inputs[0].var((0, 2, 3)).mean()) + 1e-9)

    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    hooks = [m.register_forward_pre_hook(scale) for m in norms]
    end = net.classifier.register_forward_pre_hook(lambda m, inputs: features.append(inputs[0]))
    with torch.no_grad():
        net(x)
        for hook in hooks:
            hook.remove()
        net(moved)
    end.remove()
    return log_scale + math.log(float((features[0] - features[1]).abs().mean()) + 1e-12)


def flow(net: nn.Module, shape: tuple[int, ...]) -> float:
    """SynFlow; the network is changed."""
    linearise(net)
    return synflow(net, list(net.parameters()), shape)


@dataclass(frozen=True)
class Training:
    """How a cell is trained by itself for a moment."""

    size: Callable[[str], Size]
    steps: int
    marks: tuple[int, ...]
    rate: float = 0.1
    momentum: float = 0.9
    warmup: int = 20
    batch: int = BATCH

    def __call__(self, genotype: Genotype, space: str, data: Data) -> Signals:
        net = network(genotype, space, self.size(space))
        sgd = torch.optim.SGD(net.parameters(), self.rate, self.momentum, weight_decay=3e-4)
        losses: list[float] = []
        found: Signals = {}
        for step in range(self.steps):
            for group in sgd.param_groups:
                group["lr"] = self.rate * min(1.0, (step + 1) / self.warmup)
            x, y = data.batch(step, self.batch)
            loss = nn.functional.cross_entropy(net(x), y)
            sgd.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            sgd.step()
            losses.append(loss.item())
            if step + 1 in self.marks:
                last = max(1, (step + 1) // 6)
                found[f"training loss, {step + 1} steps"] = sum(losses[-last:]) / last
                found[f"sum of training losses, {step + 1} steps"] = sum(losses)
                found[f"validation loss, {step + 1} steps"] = _validation(net, data)
        return found


def _validation(net: nn.Module, data: Data) -> float:
    x, y = data.held_out()
    with torch.no_grad():
        parts = zip(x.split(250), y.split(250), strict=True)
        losses = [float(nn.functional.cross_entropy(net(a), b)) for a, b in parts]
    return sum(losses) / len(losses)


KINDS: dict[str, Callable[[Genotype, str, Data], Signals]] = {
    "counts": counts,
    "scores": scores,
    "training": Training(search_size, 180, (60, 180)),
    "deeper training": Training(deeper, 60, (20, 60), batch=HALF),
}


def measure(
    space: str, cells: int, kinds: list[str], data: Data, judge: Judge, folder: Path
) -> Iterator[dict[str, Any]]:
    """A row for each cell and kind; those that the file has are not measured again."""
    stored = folder / f"{space}.jsonl"
    lines = stored.read_text().splitlines() if stored.exists() else []
    known = {(row["cell"], row["kind"]): row for row in map(json.loads, lines)}
    genotypes = random_genotypes(space, cells, seed=0)
    values = judge(genotypes)
    for kind in kinds:
        for number, genotype in enumerate(genotypes):
            row = known.get((number, kind))
            if row is None:
                start = time.process_time()
                signals = KINDS[kind](genotype, space, data)
                seconds = time.process_time() - start
                row = {"cell": number, "kind": kind, "judge": float(values[number])}
                row |= {"seconds": seconds, "signals": signals}
                with stored.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            yield row


def correlation(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    """Spearman's."""
    a, b = rankdata(x), rankdata(y)
    return 0.0 if a.std() == 0 or b.std() == 0 else float(np.corrcoef(a, b)[0, 1])


def partial(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> float:
    """Spearman's of x and y with what `given` explains of their ranks taken out."""
    xy, xz, yz = correlation(x, y), correlation(x, given), correlation(y, given)
    rest = (1 - xz**2) * (1 - yz**2)
    return (xy - xz * yz) / math.sqrt(rest) if rest > 1e-9 else 0.0


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown row a signal, in the order of measuring."""
    sizes = {r["cell"]: r["signals"]["parameters"] for r in rows if r["kind"] == "counts"}
    lines = ["| signal | of | cells | with the judge | at equal parameters | seconds a cell |"]
    lines.append("|---|---|---|---|---|---|")
    for kind in dict.fromkeys(row["kind"] for row in rows):
        mine = [row for row in rows if row["kind"] == kind]
        y = np.array([row["judge"] for row in mine])
        size = np.array([sizes[row["cell"]] for row in mine])
        seconds = sum(row["seconds"] for row in mine) / len(mine)
        for name in mine[0]["signals"]:
            x = np.array([row["signals"][name] for row in mine])
            lines.append(
                f"| {name} | {kind} | {len(mine)} | {correlation(x, y):+.2f} |"
                f" {partial(x, y, size):+.2f} | {seconds:.2f} |"
            )
    return lines


def main() -> None:
    """Measures what is missing and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cifar")
    parser.add_argument("judge")
    parser.add_argument("--space", default="darts7")
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--kinds", default="counts,scores")
    parser.add_argument("--folder", default="signals")
    options = parser.parse_args()
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = read(reduced(options.cifar, folder / "reduced.npz"))
    judge = judge_of(options.judge)
    kinds = ["counts", *(k for k in options.kinds.split(",") if k != "counts")]
    rows = list(measure(options.space, options.cells, kinds, data, judge, folder))
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
