"""Partial scoring, precision, and what a step reads from the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Choice, Share
from proxnas.core.scoring import inner
from proxnas.core.sharing import relu, shared_relu
from proxnas.core.supernet import Supernet
from proxnas.workflows import bench
from proxnas.workflows.bench_options import BenchConfig


def two_choices() -> tuple[Supernet, Batch, Matrices]:
    """A chain of two Choices between linear candidates, its batch and an A_bar."""
    torch.manual_seed(0)
    chain = [Choice({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}) for _ in range(2)]
    net = Supernet(nn.Sequential(*chain).double())
    batch = Batch(torch.randn(6, 4, dtype=torch.float64), torch.randint(4, (6,)))
    return net, batch, {"0": torch.tensor([[1.0, 0.0]]), "1": torch.tensor([[0.0, 1.0]])}


def test_a_node_is_scored_wholly_or_not_at_all_and_rescaled() -> None:
    net, batch, A_bar = two_choices()
    net.use(A_bar)
    full, _ = net.architecture_gradient(batch)
    drawn = []
    for seed in range(40):
        share = Share(nodes=0.5, generator=torch.Generator().manual_seed(seed))
        part, _ = net.architecture_gradient(batch, share=share)
        for name, dA in part.items():
            scored = bool(dA.any())
            torch.testing.assert_close(dA, 2 * full[name] if scored else torch.zeros_like(dA))
            drawn.append(scored)
    assert 20 < sum(drawn) < 60  # of 80, at a chance of one half


def test_a_part_of_the_batch_stands_for_all_of_it() -> None:
    net, batch, A_bar = two_choices()
    net.use(A_bar)
    part, _ = net.architecture_gradient(batch, share=Share(batch=0.5))
    with net.taped() as tape:
        loss, _ = net.loss(batch)
    for call, g in zip(
        tape, torch.autograd.grad(loss, [call.output for call in tape]), strict=True
    ):
        choice, x = call.choices[0], call.sources[0].args[0]
        assert choice.row is not None
        expected = [2 * (g[:3] * candidate(x[:3])).sum() for candidate in choice.candidates]
        torch.testing.assert_close(part[choice.row.group][0], torch.stack(expected).detach())


def test_inner_in_any_memory_order() -> None:
    g, output = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    wanted = (g * output).sum()
    last = torch.channels_last
    forms = [
        (g, output),
        (g.contiguous(memory_format=last), output.contiguous(memory_format=last)),
        (g, output.contiguous(memory_format=last)),
        (torch.cat([g, g])[2:], torch.cat([output, output])[2:]),  # a storage offset
    ]
    for left, right in forms:
        torch.testing.assert_close(inner(left, right), wanted)
    flat = torch.ones(2, 3, 1, 1).expand(2, 3, 4, 5)  # the gradient of a mean: strides of 0
    torch.testing.assert_close(inner(flat, output), output.sum())


@pytest.mark.parametrize(("precision", "digits"), [(torch.bfloat16, 0.03), (torch.float16, 0.003)])
def test_lower_precision_agrees_within_its_digits(precision: torch.dtype, digits: float) -> None:
    net, batch, A_bar = two_choices()
    net.module.float()
    batch = Batch(batch.x.float(), batch.y)
    found = {}
    for dtype in (torch.float32, precision):
        net.precision = dtype
        net.use(A_bar)
        found[dtype] = torch.cat(list(net.architecture_gradient(batch)[0].values()))
    error = (found[precision] - found[torch.float32]).norm() / found[torch.float32].norm()
    assert 0 < error < digits


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("method", ["nasp", "darts-2nd"])
def test_a_search_in_lower_precision_stays_finite(method: str, precision: str, make_search) -> None:
    search = make_search("--method", method, "--space", "nasbench201", "--precision", precision)
    for _ in range(3):
        assert search.method.step().loss.isfinite()
    assert all(
        w.dtype == torch.float32 and w.isfinite().all() for w in search.net.module.parameters()
    )


@contextmanager
def counted_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every way in which the host can read a tensor notes itself."""
    reads: list[str] = []
    with monkeypatch.context() as patch:
        for name in (
            "tolist",
            "item",
            "cpu",
            "numpy",
            "__float__",
            "__int__",
            "__bool__",
            "__index__",
        ):
            real = getattr(Tensor, name)

            def read(self, *arguments, _name=name, _real=real, **options):  # type: ignore[no-untyped-def]
                reads.append(_name)
                return _real(self, *arguments, **options)

            patch.setattr(Tensor, name, read)
        yield reads


@pytest.mark.parametrize("method", ["nasp", "darts-1st", "darts-2nd"])
def test_reads_of_a_step_do_not_grow_with_edges_or_candidates(method: str, monkeypatch) -> None:
    counts = set()
    for candidates, cells in [(4, 3), (4, 6), (8, 3)]:
        config = BenchConfig(
            candidates=candidates, cells=cells, channels=2, batch_size=2, image_size=8
        )
        search = bench.build_bench_search(config, method)
        search.method.step()
        with counted_reads(monkeypatch) as reads:
            search.method.step()
        counts.add(len(reads))
    assert len(counts) == 1
    assert counts.pop() < 40  # most of them read A and A_bar, which live on the host


@pytest.mark.parametrize("method", ["nasp", "darts-1st"])
def test_A_moves_in_every_so_many_th_step_only(method: str, make_search) -> None:
    search = make_search("--method", method, "--space", "nasbench201", "--arch-every", "3")
    moved = []
    for _ in range(7):
        before = search.method.architecture()[0]["cell"].clone()
        search.method.step()
        moved.append(not torch.equal(before, search.method.architecture()[0]["cell"]))
    assert moved == [True, False, False, True, False, False, True]


def test_the_relu_of_a_source_is_computed_once_while_scoring(make_search, monkeypatch) -> None:
    search = make_search("--space", "darts7", "--method", "nasp")
    search.net.use(search.returned())
    read: list[int] = []
    real = nn.functional.relu

    def relu(x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if not torch.is_grad_enabled():
            kept.append(x)  # an id is only unique while its tensor lives
            read.append(id(x))
        return real(x, *arguments, **options)

    kept: list[Tensor] = []
    monkeypatch.setattr(nn.functional, "relu", relu)
    monkeypatch.setattr(
        nn.ReLU, "forward", lambda self, x: real(x)
    )  # those inside an operation are its own
    search.net.architecture_gradient(search.valid.next())
    assert len(read) == len(set(read)) > 0


def test_the_relu_of_a_tensor_is_shared_while_it_lives() -> None:
    x = torch.randn(3)
    assert relu(x) is not relu(x)
    with shared_relu():
        assert relu(x) is relu(x)
        for _ in range(20):  # tensors that die at once: the next one often gets the same id
            y = torch.randn(3)
            torch.testing.assert_close(relu(y), y.clamp(min=0))
            del y


def test_a_relu_shared_in_the_forward_pass_gets_the_gradients_of_all_its_readers() -> None:
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    with shared_relu():
        shared = (2 * relu(x) + relu(x) ** 2).sum()
    plain = (2 * x.relu() + x.relu() ** 2).sum()
    torch.testing.assert_close(torch.autograd.grad(shared, x), torch.autograd.grad(plain, x))
