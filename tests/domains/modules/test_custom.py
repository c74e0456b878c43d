"""A search in anybody's module: `proxnas.search`, and what it finds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxnas
from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.cli.main import main
from proxnas.common.types import Batch
from proxnas.core.choice import Choice, Node
from proxnas.core.supernet import Supernet
from proxnas.domains.modules.space import CustomSpace, derive
from proxnas.domains.modules.task import by_the_batch
from proxnas.methods import METHODS
from proxnas.methods.optimizers import WeightOptimizer, WeightOptions
from proxnas.report.cell import cell_svg, cell_text
from proxnas.searching.found import load_found
from proxnas.searching.job import Search


class Net(nn.Module):
    """A nested Choice called twice, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        activation = Choice({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        deep = nn.Sequential(nn.Linear(4, 6), activation, nn.Linear(6, 4))
        self.block = Choice({"flat": nn.Linear(4, 4), "deep": deep, "skip": nn.Identity()})
        self.norm, self.drop, self.out = nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.out(self.drop(self.norm(self.block(self.block(x)))))
        return out


def examples(n: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
    return x, (x[:, 0] > 0).long()


TRAIN, VALID = examples(32), examples(24)


def find(module: nn.Module, method: Any = "nasp", **options: Any) -> proxnas.Found:
    return proxnas.search(module, TRAIN, VALID, method, **{"epochs": 2, "batch_size": 8} | options)


def is_plain(module: nn.Module) -> bool:
    return not any(isinstance(part, Choice | Node) for part in module.modules())


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


QUICK = {"enas": {}, "random-ws": {}}
OBJECTS = [
    proxnas.NASP(eta=0.1),
    proxnas.NASP(value="a_k", order=2),
    proxnas.DARTS(order=2),
    proxnas.SNAS(resource=0.1),
]


@pytest.mark.parametrize("cost", ["flops", "latency"])
def test_eta_counts_what_it_is_told_also_in_nested_choices(cost: str) -> None:
    assert find(Net(), proxnas.NASP(eta=0.1, cost=cost), epochs=1).genotype["block"] in (
        "flat",
        "deep",
        "skip",
    )


@pytest.mark.parametrize(
    "method", [*sorted(set(METHODS) - {"enas"}), *OBJECTS], ids=lambda m: str(m)[:20]
)
def test_every_method_finds_a_plain_model(method: Any) -> None:
    found = find(Net(), method)
    model = found.model()
    assert is_plain(model) and not model.training
    assert found.genotype["block"] in ("flat", "deep", "skip")
    assert ("block.deep.1" in found.genotype) == (found.genotype["block"] == "deep")
    assert json.loads(json.dumps(found.genotype)) == found.genotype
    assert len(found.history) == 2 and 0 <= found.result["valid_accuracy"] <= 1
    assert found.result["params"] == sum(w.numel() for w in model.parameters())
    with torch.no_grad():
        assert model(VALID[0]).shape == (24, 2)


def test_the_name_search_stays_a_function() -> None:
    import proxnas.searching.job  # once it was called search, and hid it

    assert callable(proxnas.search)
    assert not set(proxnas._PUBLIC) & {
        path.stem for path in Path(proxnas.__file__).parent.iterdir()
    }


def test_a_seed_repeats_a_search_and_the_callers_random_numbers_go_on() -> None:
    net = Net()
    before = {name: x.clone() for name, x in net.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, second = find(net), find(net)
    assert torch.equal(torch.rand(1), expected)
    assert first.A == second.A and same(first.module, second.module)
    assert find(net, seed=1).A != first.A
    assert all(
        torch.equal(before[name], x) for name, x in net.state_dict().items()
    )  # the caller's module is untouched


def test_a_search_prefers_what_fits() -> None:
    """Targets are products of inputs: the candidate that multiplies fits, linear ones cannot."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * x * x.roll(1, -1)

    def data(n: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 4)
        return x, (x * x.roll(1, -1)).sum(-1, keepdim=True)

    choice = Choice({"linear": nn.Linear(4, 4), "skip": nn.Identity(), "product": Product()})
    net = nn.Sequential(choice, nn.Linear(4, 1))
    found = proxnas.search(net, data(256), data(256), loss=nn.functional.mse_loss, epochs=10)
    assert found.genotype == {"0": "product"}
    losses = [row["valid_loss"] for row in found.history]
    assert losses[-1] < 0.2 * losses[0]
    assert "valid_accuracy" not in found.result


# ------------------------------------------------------------ the gradient


class Attends(nn.Module):
    """Candidates that take two inputs and a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, other: Tensor, *, gate: float) -> Tensor:
        return torch.tanh(self.linear(x)) + gate * other


class Mixed(nn.Module):
    """Nested, shared, called several times, with several inputs and keywords."""

    def __init__(self) -> None:
        super().__init__()
        inner = Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}, share="inner")
        again = Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}, share="inner")
        self.outer = Choice(
            {"deep": nn.Sequential(inner, nn.Linear(4, 4)), "flat": nn.Linear(4, 4)}
        )
        self.pair = Choice({"one": Attends(), "two": Attends()})
        self.again, self.out = again, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.outer(x)
        h = self.pair(self.outer(h), x, gate=0.5)
        out: Tensor = self.out(self.again(h))
        return out


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("outer", [0, 1], ids=["inner used", "inner in an unselected candidate"])
def test_the_gradient_is_that_of_the_mixture(outer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Mixed()
    space = CustomSpace(module)
    net = Supernet(module)
    batch = Batch(torch.randn(5, 4), torch.randint(2, (5,)))
    A_bar = {name: torch.zeros(group.shape) for name, group in space.groups.items()}
    for name, k in {"outer": outer, "inner": 1, "pair": 0}.items():
        A_bar[name][0, k] = 1.0
    net.use(A_bar)
    fast, _ = net.architecture_gradient(batch)

    leaves = {name: a.clone().requires_grad_() for name, a in A_bar.items()}
    net.use(leaves, weighted=True)
    monkeypatch.setattr(
        Choice, "active", lambda self: range(len(self.names))
    )  # the mixture runs all, also times 0
    loss, _ = net.loss(batch)
    exact = torch.autograd.grad(loss, list(leaves.values()))
    for name, gradient in zip(leaves, exact, strict=True):
        torch.testing.assert_close(fast[name], gradient, rtol=1e-10, atol=1e-12)
        assert (fast[name] != 0).all()  # `inner` has another place besides the unselected one


# ------------------------------------------------------------ the outcome


def test_the_model_is_a_copy_with_the_weights_of_the_search() -> None:
    found = find(Net(), start={"block": "deep"})
    assert found.genotype["block"] == "deep"
    model = found.model()
    block = found.module.block.candidates[1]  # type: ignore[union-attr,index]
    assert torch.equal(model.block[0].weight, block[0].weight)  # type: ignore[index,union-attr]
    with torch.no_grad():
        model.out.weight.zero_()  # type: ignore[union-attr,operator]
    assert not same(model, found.model())


def test_batch_norm_has_the_statistics_of_the_found_model() -> None:
    found = find(Net(), start={"block": "skip"}, epochs=1)
    model = found.model()
    assert found.genotype == {"block": "skip"}
    x = TRAIN[0]
    assert isinstance(model.norm, nn.BatchNorm1d) and model.norm.running_mean is not None
    assert model.norm.momentum == 0.1
    torch.testing.assert_close(
        model.norm.running_mean, x.mean(0)
    )  # four equal batches: the mean of means
    assert (model.norm.running_var - x.var(0)).abs().max() < 0.3  # type: ignore[operator]


def test_evaluation_neither_drops_out_nor_leaves_a_trace() -> None:
    net = Net()
    before = net.norm.running_mean.clone()  # type: ignore[union-attr]
    with by_the_batch(net):
        assert torch.equal(net(TRAIN[0]), net(TRAIN[0]))
        assert not net.drop.training and net.norm.training
    assert torch.equal(net.norm.running_mean, before)  # type: ignore[arg-type]
    assert net.drop.training and net.norm.momentum == 0.1


def test_the_factor_of_a_candidate_is_kept() -> None:
    found = find(
        Net(), proxnas.NASP(value="a_k", arch_learning_rate=1e-30), start={"block": {"flat": 0.8}}
    )
    value = found.selection.cells["block"].nodes[0][0].value
    assert value == found.A["block"]["flat"] == 0.8
    plain = found.model().block
    flat = found.module.block.candidates[0]  # type: ignore[union-attr,index]
    torch.testing.assert_close(plain(TRAIN[0]), value * flat(TRAIN[0]))  # type: ignore[operator]


def test_save_and_load(tmp_path: Path) -> None:
    found = find(Net())
    found.save(tmp_path / "found.safetensors")
    torch.manual_seed(9)
    fresh = Net()
    loaded = load_found(tmp_path / "found.safetensors", fresh)
    assert is_plain(loaded) and same(loaded, found.model())
    assert isinstance(fresh.block, Choice)
    with pytest.raises(proxnas.InputError, match=r"found.safetensors: unknown Choice 'block'"):
        load_found(tmp_path / "found.safetensors", nn.Sequential(Choice({"a": nn.Linear(4, 4)})))
    wider = Net()
    wider.out = nn.Linear(4, 3)
    with pytest.raises(
        proxnas.InputError, match=r"out.weight has shape \[2, 4\], in the module \[3, 4\]"
    ):
        load_found(tmp_path / "found.safetensors", wider)


def test_tied_weights_are_saved_and_stay_tied(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(5, 4)
            self.block = Choice({"linear": nn.Linear(4, 4), "skip": nn.Identity()})
            self.out = nn.Linear(4, 5, bias=False)
            self.out.weight = self.words.weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.out(self.block(self.words(x)))
            return out

    data = (torch.arange(10) % 5, torch.arange(10) % 5)
    found = proxnas.search(Tied(), data, data, epochs=1, batch_size=5)
    found.save(tmp_path / "tied.safetensors")
    loaded = load_found(tmp_path / "tied.safetensors", Tied())
    assert loaded.out.weight is loaded.words.weight  # type: ignore[union-attr]
    assert same(loaded, found.model())


def test_the_model_can_be_exported() -> None:
    model = find(Net()).model()
    exported = torch.export.export(model, (VALID[0],)).module()
    torch.testing.assert_close(exported(VALID[0]), model(VALID[0]))


def test_derive_keeps_sharing_nesting_nodes_and_plain_references() -> None:
    shared = Choice({"linear": nn.Linear(4, 4), "skip": nn.Identity()})
    none = nn.Module()
    none.forward = torch.zeros_like  # type: ignore[assignment]
    node = Node(
        [
            Choice({"none": none, "linear": nn.Linear(4, 4)}),
            Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}),
        ]
    )
    outer = Choice({"with": nn.Sequential(shared, nn.Tanh()), "without": nn.Linear(4, 4)})
    net = nn.ModuleDict({"first": shared, "outer": outer, "node": node})
    net.listed = [shared]  # type: ignore[assignment]
    genotype = {"first": "linear", "outer": "with", "node.choices.0": "none", "node.choices.1": "a"}
    plain = derive(net, genotype)
    assert is_plain(plain)
    assert plain["first"] is plain["outer"][0] is plain.listed[0]  # type: ignore[index,union-attr]
    assert plain["first"].weight is not shared.candidates[0].weight  # type: ignore[index]
    x = torch.randn(3, 4)
    torch.testing.assert_close(plain["node"]([x, x]), node.choices[1].candidates[0](x))  # type: ignore[index,union-attr]
    with pytest.raises(proxnas.InputError, match="unknown Choice 'frist': did you mean first"):
        derive(net, {"frist": "linear"})
    with pytest.raises(
        proxnas.InputError, match="says nothing of Choice 'outer': give one of with, without"
    ):
        derive(net, {"first": "linear"})
    with pytest.raises(
        proxnas.InputError, match="unknown candidate of Choice 'first' 'lin': did you mean linear"
    ):
        derive(net, genotype | {"first": "lin"})
    assert derive(shared, {"choice": "skip"})(x) is x


def test_a_genotype_of_choices_in_json_text_and_drawing() -> None:
    genotype = Genotype.of_choices({"encoder.0": "attention", "x": "sep conv"}, {"x": 0.25})
    assert Genotype.from_json(genotype.to_json()) == genotype
    assert genotype.choices() == {"encoder.0": "attention", "x": "sep conv"}
    assert "encoder.0 = attention" in cell_text(genotype) and "0.25*sep conv" in cell_text(genotype)
    assert "attention" in cell_svg(genotype)
    for cells in (
        {},
        {"a\n": genotype.cells["x"]},
        {"a": read_genotype("zoo:DARTS_V2").cells["normal"]},
    ):
        with pytest.raises(proxnas.InputError):
            Genotype("custom", cells)
    with pytest.raises(proxnas.InputError, match="selects no Choices by name"):
        read_genotype("zoo:DARTS_V2").choices()


# ------------------------------------------------------------ options


def test_warm_start_by_name_by_number_and_from_another_search() -> None:
    one = find(
        Net(),
        proxnas.NASP(explore=0.0, look_ahead=0, arch_learning_rate=1e-30),
        start={"block": "skip"},
    )
    assert one.A["block"]["skip"] == 1.0 and one.genotype == {"block": "skip"}
    still = proxnas.NASP(explore=0.0, arch_learning_rate=1e-30)
    assert find(Net(), still, start=one.A).A == one.A
    darts = find(Net(), proxnas.DARTS(arch_learning_rate=1e-30), start={"block": {"deep": 2.0}})
    assert darts.A["block"]["deep"] == 2.0 and darts.genotype["block"] == "deep"


def test_an_optimizer_of_the_users_trains_the_weights_on_a_cosine() -> None:
    made: list[torch.optim.Optimizer] = []

    def grouped(weights: list[Tensor]) -> torch.optim.Optimizer:
        groups = [{"params": weights[:1], "lr": 0.02}, {"params": weights[1:]}]
        made.append(torch.optim.AdamW(groups, lr=0.01))
        return made[-1]

    net = Net()
    found = find(net, proxnas.NASP(look_ahead=1), optimizer=grouped, epochs=2)
    share = (
        0.04 + 0.96 * (1 + math.cos(math.pi * 7 / 8)) / 2
    )  # of the last of eight steps, on the way to 4%
    assert [group["lr"] for group in made[-1].param_groups] == pytest.approx(
        [0.02 * share, 0.01 * share]
    )
    assert not torch.equal(found.module.out.weight, net.out.weight)  # type: ignore[union-attr,arg-type]
    find(net, "darts-2nd", optimizer=grouped, epochs=1, schedule="constant")
    assert [group["lr"] for group in made[-1].param_groups] == [0.02, 0.01]


def test_the_pace_of_an_optimizer_is_measured() -> None:
    net = Supernet(Choice({"a": nn.Linear(3, 2)}))
    options = WeightOptions().of(lambda w: torch.optim.SGD(w, 0.3))
    assert (options.learning_rate, options.momentum, options.weight_decay) == (0.3, 0, 0)
    optimizer = WeightOptimizer(net, options, 10)
    assert optimizer.pace(2.0) == 0.6  # before the first step: as SGD
    batch = Batch(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    for t in (0, 490):  # in the first epoch and the last, with the same answer at another rate
        optimizer.t, optimizer.measured_pace = t, None
        optimizer.step(net.loss(batch)[0])
        assert optimizer.pace(2.0) == pytest.approx(0.6)  # what is measured of SGD is its rate
    assert optimizer.learning_rate < 0.02
    again = WeightOptimizer(net, options, 10)
    again.load_state_dict(optimizer.state_dict())
    assert again.pace(1.0) == optimizer.pace(1.0)


def regression(output: Tensor, target: Tensor) -> Tensor:
    return nn.functional.l1_loss(output.squeeze(-1), target)


def dice(output: Tensor, target: Tensor) -> float:
    return float(((output > 0) == (target > 0)).float().mean())


@pytest.mark.parametrize(
    ("loss", "metric", "out", "target", "figure"),
    [
        (None, None, 3, torch.randint(3, (16,)), "accuracy"),
        (None, None, 3, torch.rand(16, 3).softmax(-1), "accuracy"),
        (regression, None, 1, torch.randn(16), "loss"),
        (
            nn.functional.binary_cross_entropy_with_logits,
            dice,
            3,
            torch.randint(2, (16, 3)).float(),
            "dice",
        ),
        (
            nn.MSELoss(),
            lambda output, target: (output - target).abs().mean(),
            2,
            torch.randn(16, 2),
            "metric",
        ),
    ],
    ids=["classes", "soft classes", "regression", "several labels", "module and lambda"],
)
def test_losses_and_metrics_of_the_users(
    loss: Any, metric: Any, out: int, target: Tensor, figure: str
) -> None:
    net = nn.Sequential(Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}), nn.Linear(4, out))
    data = (torch.randn(16, 4), target)
    found = proxnas.search(net, data, data, loss=loss, metric=metric, epochs=1, batch_size=8)
    figures = {name for name in found.result if name.startswith("valid_")}
    assert figures == {"valid_loss", f"valid_{figure}"}


def test_the_reported_figures_are_those_of_the_model(double: None) -> None:
    net = nn.Sequential(Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}), nn.Linear(4, 2))
    x, y = TRAIN[0].double(), TRAIN[1]
    found = proxnas.search(net, (x, y), (x, y), epochs=1, batch_size=7)
    output = found.model()(x).detach()
    assert found.result["valid_loss"] == pytest.approx(
        float(nn.functional.cross_entropy(output, y)), rel=1e-6
    )
    assert found.result["valid_accuracy"] == pytest.approx(
        float((output.argmax(1) == y).double().mean())
    )


@pytest.mark.parametrize(
    "limit", [{"max_params": "1M"}, {"max_flops": "1M"}, {"max_latency": "10s"}]
)
def test_a_limit_that_does_not_bind_changes_no_search(limit: dict[str, str]) -> None:
    """Also with dropout: counting sizes uses up no random numbers."""
    net = nn.Sequential(
        Choice({"a": nn.Linear(4, 4), "b": nn.Tanh()}), nn.Dropout(0.5), nn.Linear(4, 2)
    )
    plain, limited = find(net), find(net, **limit)
    assert plain.A == limited.A and plain.result["valid_loss"] == limited.result["valid_loss"]


def test_eta_finds_smaller_models() -> None:
    def params(eta: float) -> int:
        net = nn.Sequential(
            Choice({"big": nn.Linear(4, 4), "skip": nn.Identity()}), nn.Linear(4, 2)
        )
        method = proxnas.NASP(
            eta=eta, explore=0.0, look_ahead=0, arch_optimizer="sgd", arch_learning_rate=0.05
        )
        return int(
            find(net, method, start={"0": {"big": 0.6, "skip": 0.5}}, epochs=4).result["params"]
        )

    assert params(50.0) == 10 < params(0.0) == 30


# ------------------------------------------------------------ runs


def adam(weights: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(weights, 0.01)


def fail_at_step(n: int) -> Callable[[Search], Any]:
    """A step of a search that breaks when it is called for the n-th time."""
    real, steps = Search.step, count(1)
    return lambda search: real(search) if next(steps) < n else 1 / 0


@pytest.mark.parametrize("method", [proxnas.NASP(look_ahead=2), "random"], ids=["nasp", "random"])
def test_a_run_can_be_stopped_and_resumed(
    method: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"epochs": 3, "optimizer": adam}
    net = Net()
    straight = find(net, method, **options)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Search, "step", fail_at_step(6))  # of 12
        find(net, method, run=tmp_path, **options)
    with pytest.raises(
        proxnas.InputError, match="an unfinished run: use resume to go on, force to overwrite"
    ):
        find(net, method, run=tmp_path, **options)
    other = Net()  # with other weights, which do not matter
    resumed = find(other, method, run=tmp_path, resume=True, **options)
    assert (
        resumed.A == straight.A
        and resumed.genotype == straight.genotype
        and len(resumed.history) == 3
    )
    assert same(resumed.model(), straight.model())
    assert json.loads((tmp_path / "result.json").read_text())["genotype"]["kind"] == "custom"
    assert same(load_found(tmp_path, other), resumed.model())
    assert read_genotype(tmp_path).choices() == resumed.genotype
    assert same(find(net, method, run=tmp_path, resume=True, **options).model(), resumed.model())
    with pytest.raises(proxnas.InputError, match=r"batch_size 4: the run in .* was started with 8"):
        find(net, method, run=tmp_path, resume=True, batch_size=4, **options)


def test_random_search_returns_the_weights_that_it_judged() -> None:
    found = find(Net(), proxnas.RandomSearch(evaluations=2), epochs=2, schedule="constant")
    model = found.model()
    with by_the_batch(model), torch.no_grad():
        parts = torch.arange(24).tensor_split(3)
        losses = [nn.functional.cross_entropy(model(VALID[0][i]), VALID[1][i]) for i in parts]
    assert found.result["valid_loss"] == pytest.approx(float(torch.stack(losses).mean()), rel=1e-4)


def test_the_command_line_sends_a_custom_run_to_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "digits", "--space", "custom", "--dry-run"]) == 2
    assert "searched in Python by proxnas.search" in capsys.readouterr().err


def test_progress_shows_figures_of_the_users(capsys: pytest.CaptureFixture[str]) -> None:
    find(Net(), loss=nn.functional.cross_entropy, metric=dice_of_classes, progress=True, epochs=1)
    find(Net(), loss=nn.functional.cross_entropy, progress=True, epochs=1)
    first, second = capsys.readouterr().out.splitlines()
    assert "valid dice_of_classes" in first and "valid loss" in second


def dice_of_classes(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(1) == target).float().mean()
