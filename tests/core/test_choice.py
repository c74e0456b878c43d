"""choice.py: Choices inside anybody's module, against plain autograd; test_choice_spaces.py has the
spaces.

Reference mixtures are written out here by hand, sum over e and k of a[e,k] O_k(x_e), with nothing
of choice.py in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice
from proxnas.core.groups import NONE, Group, Row
from proxnas.core.selection import random_selection
from proxnas.core.supernet import Supernet
from proxnas.domains import spaces
from support.searches import mixture_gradient, supernet

EXACT = {"rtol": 0.0, "atol": 1e-9}


class Model(nn.Module):
    """parts by name, and a forward given as a function of them and x."""

    def __init__(self, forward: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.function = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.parts, x)


def linears(*names: str, share: str | None = None) -> Choice:
    return Choice({name: nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for name in names}, share)


def mix(choice: Choice, a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """sum_k a_k O_k, written out."""
    return sum(a_k * op(*args, **kwargs) for a_k, op in zip(a, choice.candidates, strict=True))  # type: ignore[return-value]


def check_module(
    model: Model,
    reference: Callable[[Mapping[str, Any], Matrices, Tensor], Tensor],
    selected: Mapping[str, list[float]],
    weighted: bool = True,
) -> Matrices:
    """The fast path of a model against autograd through its reference mixture; returns the
    gradient."""
    net = Supernet(model, criterion=nn.functional.cross_entropy)
    A_bar = {name: torch.tensor([row], dtype=torch.float64) for name, row in selected.items()}
    batch = Batch(torch.randn(5, 3), torch.randint(3, (5,)))
    net.use(A_bar, weighted=weighted)
    fast, _ = net.architecture_gradient(batch)
    exact = mixture_gradient(net, A_bar, batch, lambda A, x: reference(model.parts, A, x))
    assert set(fast) == set(exact)
    for name in exact:
        torch.testing.assert_close(fast[name], exact[name], **EXACT)
    return fast


in_double = pytest.mark.usefixtures("double")


@in_double
def test_choices_in_a_row_and_a_plain_layer_between() -> None:
    model = Model(
        lambda p, x: p["second"](p["between"](p["first"](x))) + x,
        first=linears("a", "b"),
        between=nn.Linear(3, 3),
        second=linears("c", "d", "e"),
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        h = p["between"](mix(p["first"], A["parts.first"][0], x))
        return mix(p["second"], A["parts.second"][0], h) + x

    dA = check_module(model, reference, {"parts.first": [0, 0.7], "parts.second": [0.3, 0, 0]})
    assert all((matrix != 0).all() for matrix in dA.values())


@in_double
def test_several_entries_of_a_row_may_be_on() -> None:
    model = Model(lambda p, x: p["c"](x), c=linears("a", "b", "d"))
    check_module(
        model, lambda p, A, x: mix(p["c"], A["parts.c"][0], x), {"parts.c": [0.3, 0.0, 0.9]}
    )


@in_double
@pytest.mark.parametrize("outer", [[1.0, 0.0], [0.0, 1.0]], ids=["inner used", "inner unused"])
def test_nested_choices(outer: list[float]) -> None:
    """The inner Choice is the outer one's candidate itself, so both put out one tensor."""
    model = Model(
        lambda p, x: p["outer"](x),
        outer=Choice({"deep": linears("a", "b"), "flat": nn.Linear(3, 3)}),
    )
    inner = "parts.outer.candidates.0"

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        deep, flat = p["outer"].candidates
        a = A["parts.outer"][0]
        return a[0] * mix(deep, A[inner][0], x) + a[1] * flat(x)

    dA = check_module(model, reference, {"parts.outer": outer, inner: [0.0, 1.0]}, weighted=False)
    assert (dA[inner] != 0).all() == (outer[0] == 1.0)


@in_double
def test_a_nested_choice_with_values() -> None:
    deep = nn.Sequential(nn.Linear(3, 3), linears("a", "b"), nn.Tanh())
    model = Model(lambda p, x: p["outer"](x), outer=Choice({"flat": nn.Linear(3, 3), "deep": deep}))
    inner = "parts.outer.candidates.1.1"

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        flat, (first, choice, last) = p["outer"].candidates
        a = A["parts.outer"][0]
        return a[0] * flat(x) + a[1] * last(mix(choice, A[inner][0], first(x)))

    check_module(model, reference, {"parts.outer": [0, 0.6], inner: [0.4, 0]})


@in_double
def test_shared_choices_follow_one_row_and_their_gradients_add_up() -> None:
    model = Model(
        lambda p, x: p["second"](p["first"](x)),
        first=linears("a", "b", share="both"),
        second=linears("a", "b", share="both"),
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        return mix(p["second"], A["both"][0], mix(p["first"], A["both"][0], x))

    check_module(model, reference, {"both": [0, 0.8]})


@in_double
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]])
def test_one_choice_called_several_times(row: list[float]) -> None:
    model = Model(
        lambda p, x: p["c"](p["c"](x)) + p["c"](x),
        c=Choice({"id": nn.Identity(), "linear": nn.Linear(3, 3)}),
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        a = A["parts.c"][0]
        return mix(p["c"], a, mix(p["c"], a, x)) + mix(p["c"], a, x)

    check_module(model, reference, {"parts.c": row})


class Gated(nn.Linear):
    """Wants a keyword."""

    def forward(self, x: Tensor, *, gate: Tensor, sign: float = 1.0) -> Tensor:
        return super().forward(x) * gate * sign


class TakesGate(nn.Module):
    """Returns one of its tensors as it is."""

    def forward(self, x: Tensor, *, gate: Tensor, sign: float = 1.0) -> Tensor:
        return gate


@in_double
@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]], ids=["computes", "returns its keyword"])
def test_keyword_arguments(row: list[float]) -> None:
    def with_choice(p: Any, x: Tensor) -> Tensor:
        gate = p["gate"](x)
        return p["c"](x, gate=gate, sign=-1.0) + 2 * gate  # gate is read by others, too

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        gate = p["gate"](x)
        return mix(p["c"], A["parts.c"][0], x, gate=gate, sign=-1.0) + 2 * gate

    choice = Choice({"gated": Gated(3, 3), "gate": TakesGate()})
    check_module(
        Model(with_choice, c=choice, gate=nn.Linear(3, 3)),
        reference,
        {"parts.c": row},
        weighted=False,
    )


@in_double
def test_calls_that_differ_in_keywords_only_do_not_share_pure_candidates() -> None:
    class Power(nn.Module):
        pure_key = "power"

        def forward(self, x: Tensor, *, n: int) -> Tensor:
            return x**n

    class Scale(nn.Linear):
        def forward(self, x: Tensor, *, n: int) -> Tensor:
            return super().forward(x) * n

    choices = {name: Choice({"scale": Scale(3, 3), "power": Power()}) for name in ("two", "three")}
    model = Model(lambda p, x: p["two"](x, n=2) + p["three"](x, n=3), **choices)

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        return mix(p["two"], A["parts.two"][0], x, n=2) + mix(
            p["three"], A["parts.three"][0], x, n=3
        )

    check_module(model, reference, {"parts.two": [1.0, 0], "parts.three": [1.0, 0]})


@in_double
@pytest.mark.parametrize("weighted", [False, True])
def test_a_node_that_is_literally_its_source(weighted: bool) -> None:
    """The gradient at an identity's output is not the gradient of all that reads the source."""
    choice = Choice({"skip": nn.Identity(), "linear": nn.Linear(3, 3)})
    model = Model(
        lambda p, x: p["c"](h := p["before"](x)) + 3 * h, before=nn.Linear(3, 3), c=choice
    )

    def reference(p: Any, A: Matrices, x: Tensor) -> Tensor:
        h = p["before"](x)
        return mix(p["c"], A["parts.c"][0], h) + 3 * h

    check_module(model, reference, {"parts.c": [1.0, 0.0]}, weighted=weighted)


@in_double
def test_an_identity_of_the_images_themselves() -> None:
    """Nothing before it needs a gradient, and the batch must not begin to."""
    model = Model(
        lambda p, x: p["c"](x) + x, c=Choice({"skip": nn.Identity(), "linear": nn.Linear(3, 3)})
    )
    net = Supernet(model)
    batch = Batch(torch.randn(4, 3), torch.randint(3, (4,)))
    net.use({"parts.c": torch.tensor([[1.0, 0.0]])})
    dA, _ = net.architecture_gradient(batch)
    assert (dA["parts.c"] != 0).all() and not batch.x.requires_grad
    check_module(
        model,
        lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x,
        {"parts.c": [1.0, 0.0]},
        weighted=False,
    )


@in_double
def test_a_constant_candidate_keeps_its_buffer_as_it_is() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("value", torch.randn(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.value

    choice = Choice({"constant": Constant(), "linear": nn.Linear(3, 3)})
    model = Model(lambda p, x: p["c"](x) + x, c=choice)
    check_module(
        model,
        lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x,
        {"parts.c": [1.0, 0.0]},
        weighted=False,
    )
    assert not choice.candidates[0].value.requires_grad


@in_double
def test_a_choice_that_the_loss_does_not_use_scores_zero() -> None:
    def forward(p: Any, x: Tensor) -> Tensor:
        p["unused"](x)
        return p["used"](x)

    model = Model(
        forward, used=linears("a", "b"), unused=linears("a", "b"), never_called=linears("a", "b")
    )
    selected = {"parts.used": [1.0, 0], "parts.unused": [1.0, 0], "parts.never_called": [1.0, 0]}
    dA = check_module(model, lambda p, A, x: mix(p["used"], A["parts.used"][0], x), selected)
    assert dA["parts.unused"].tolist() == dA["parts.never_called"].tolist() == [[0.0, 0.0]]


@in_double
def test_none_in_a_module_is_run_by_nobody_and_scores_zero() -> None:
    choice = Choice({"linear": nn.Linear(3, 3), NONE: nn.Threshold(1e9, 0.0)})
    model = Model(lambda p, x: p["c"](x) + x, c=choice)
    for row in ([1.0, 0.0], [0.0, 1.0]):
        dA = check_module(
            model,
            lambda p, A, x: mix(p["c"], A["parts.c"][0], x) + x,
            {"parts.c": row},
            weighted=False,
        )
        assert dA["parts.c"][0, 1] == 0 != dA["parts.c"][0, 0]


def test_a_pruned_choice_without_none_is_zero_in_the_shape_of_its_candidates() -> None:
    model = Model(lambda p, x: p["c"](x), c=Choice({"wide": nn.Linear(3, 7)}))
    net = Supernet(model)
    net.use({"parts.c": torch.tensor([[0.0]])})
    assert torch.equal(net(torch.randn(2, 3)), torch.zeros(2, 7))


def test_a_choice_of_its_own_runs_its_first_candidate() -> None:
    choice = Choice({"clip": nn.Hardtanh(), "identity": nn.Identity()})
    assert choice(torch.tensor([3.0])).item() == 1.0


def test_a_choice_runs_in_inference_mode() -> None:
    with torch.inference_mode():
        assert linears("a", "b")(torch.randn(2, 3)).shape == (2, 3)


def test_use_runs_the_selected_candidate_times_its_value_if_asked() -> None:
    net = Supernet(
        Model(lambda p, x: p["c"](x), c=Choice({"clip": nn.Hardtanh(), "identity": nn.Identity()}))
    )
    x = torch.tensor([[4.0]])
    net.use({"parts.c": torch.tensor([[0.0, 0.25]])})
    assert net(x).item() == 4.0
    net.use({"parts.c": torch.tensor([[0.0, 0.25]])}, weighted=True)
    assert net(x).item() == 1.0


# --------------------------------------------------------- what is refused


def gradient_of(forward: Callable[..., Tensor], row: list[float], **parts: nn.Module) -> None:
    net = Supernet(Model(forward, **parts))
    net.use({"parts.c": torch.tensor([row])})
    net.architecture_gradient(Batch(torch.randn(4, 3), torch.randint(3, (4,))))


@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]], ids=["selected", "only scored"])
@pytest.mark.parametrize("by_keyword", [False, True], ids=["positional", "keyword"])
def test_a_candidate_that_changes_its_input_is_refused(row: list[float], by_keyword: bool) -> None:
    choice = Choice({"relu": nn.ReLU(inplace=True), "fine": nn.Tanh()})
    call: Callable[..., Tensor] = lambda p, x: p["c"](input=x + 0) if by_keyword else p["c"](x + 0)  # noqa: E731
    with pytest.raises(
        RuntimeError, match=r"input of a Choice was changed in place .*inplace=True"
    ):
        gradient_of(lambda p, x: p["last"](call(p, x)), row, c=choice, last=nn.Linear(3, 3))


def test_an_input_changed_after_the_choice_is_refused() -> None:
    def forward(p: Any, x: Tensor) -> Tensor:
        h = x + 0
        y = p["c"](h)
        h.add_(1.0)
        return y

    with pytest.raises(RuntimeError, match="input of a Choice was changed in place"):
        gradient_of(forward, [1.0, 0.0], c=Choice({"tanh": nn.Tanh(), "id": nn.Linear(3, 3)}))


def test_an_output_changed_in_place_is_refused() -> None:
    with pytest.raises(RuntimeError, match="output of a Choice was changed in place"):
        gradient_of(lambda p, x: p["c"](x).mul_(2.0), [0.0, 1.0], c=linears("a", "b"))


def test_candidates_of_different_shapes_are_refused() -> None:
    choice = Choice({"all": nn.Tanh(), "mean": nn.AdaptiveAvgPool1d(1)})
    with pytest.raises(
        RuntimeError, match=r"'mean' of Row.*parts.c.* puts out \(4, 1\), the selected one \(4, 3\)"
    ):
        gradient_of(lambda p, x: p["c"](x), [1.0, 0.0], c=choice)


def test_choices_that_share_a_row_must_have_the_same_candidates() -> None:
    model = nn.Sequential(linears("a", "b", share="s"), linears("a", "c", share="s"))
    with pytest.raises(
        ValueError, match=r"Choice '1' shares row 's' but has the candidates a, c instead of a, b"
    ):
        Supernet(model)


def test_a_choice_must_fit_the_group_it_names() -> None:
    with pytest.raises(ValueError, match="instead of x, y"):
        Supernet(Choice({"a": nn.Identity()}, share=Row("g", 0)), {"g": Group(("x", "y"))})


def test_a_choice_without_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one candidate"):
        Choice({})


def test_a_module_without_a_choice_is_refused() -> None:
    with pytest.raises(ValueError, match="no Choice"):
        Supernet(nn.Linear(3, 3))


def test_an_error_in_the_forward_pass_leaves_no_tape_behind() -> None:
    net = Supernet(linears("a", "b"))
    with pytest.raises(RuntimeError):
        net.architecture_gradient(Batch(torch.randn(4, 5), torch.zeros(4, dtype=torch.long)))
    assert net.route.tape is None


def test_random_selection_of_every_space_runs() -> None:
    """A smoke test in float32 and without channels_last, over several draws."""
    for name in ("darts7", "nasbench201"):
        space = spaces.find(name)
        net = supernet(space)
        generator = torch.Generator().manual_seed(0)
        for _ in range(3):
            net.use({n: random_selection(group, generator) for n, group in space.groups.items()})
            assert net(torch.randn(2, 3, 8, 8)).shape == (2, 3)
