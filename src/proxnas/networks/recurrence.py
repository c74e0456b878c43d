"""The recurrent cell over a whole sequence, its backward pass written by hand.

Every node is a highway from one earlier state i,

    (c, h) = s_i W_j,    s_j = a_j (s_i + sigmoid(c) * (f_j(h) - s_i)).

The first reads the cell's own output of the time step before and adds the input's share x W_x to (c, h). In a search
network each s_j is normalised over the batch.

What does not depend on time is done for all time steps at once, in products large enough to be quick: x W_x before
(by the caller) and the gradients of the weights after. A time step is a handful of kernels a node.

Shapes: T time steps, B sequences of a batch, H units, J nodes with the first; states are (J, T, B, H).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-5

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}
_aten = torch.ops.aten
BACKWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "tanh": _aten.tanh_backward,
    "relu": lambda g, y: _aten.threshold_backward(g, y, 0),
    "sigmoid": _aten.sigmoid_backward,
    "identity": lambda g, y: g,
}
"""(gradient at the output, output) -> gradient at the input."""


class Highway(NamedTuple):
    """A node: the state it reads (0: the output of the time step before, j: node j - 1), its activation and factor."""

    source: int
    activation: str
    value: float = 1.0


@dataclass(frozen=True)
class Plan:
    """A discrete cell, the first state included."""

    nodes: tuple[Highway, ...]
    outputs: tuple[int, ...]
    """Nodes whose mean is the cell's output."""
    norm: bool = False
    """Normalise each node over the batch, as in a search network."""


class Trace(NamedTuple):
    """What a forward pass computed: all nodes (J, T, B, H), and the gates and arguments of f, (J, T, B, 2H)."""

    states: Tensor
    gates: Tensor


def normalised(x: Tensor) -> Tensor:
    """Over the batch, without scale or shift."""
    return torch.nn.functional.batch_norm(x, None, None, training=True, eps=EPSILON)


def unroll(
    plan: Plan, xz: Tensor, h: Tensor, weights: Sequence[Tensor], mask: Tensor | None, probe: Tensor | None = None
) -> tuple[Tensor, Trace | None]:
    """The outputs (T, B, H) from the inputs' shares xz (T, B, 2H), the state h (B, H) and a weight (H, 2H) a node.

    `mask` (B, H) drops units of a source before its product, alike at all times. `probe` (J - 1, T, B, H), all zero, is
    as if added to each choice node before its norm: its gradient is g_j, which scoring needs, and a trace comes along.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _outputs(plan, xz, h, weights, mask), None
    output, states, gates = _Recurrence.apply(plan, xz, h, mask, probe, *weights)  # type: ignore[no-untyped-call]
    return output, Trace(states, gates) if probe is not None else None


def _outputs(plan: Plan, xz: Tensor, h: Tensor, weights: Sequence[Tensor], mask: Tensor | None) -> Tensor:
    """The plain computation, in which nothing is kept."""
    outputs = []
    for x in xz.unbind(0):
        states = [h]
        for node, w in zip(plan.nodes, weights, strict=True):
            s = states[node.source]
            z = (s if mask is None else s * mask) @ w
            c, y = (z if len(states) > 1 else z + x).chunk(2, -1)
            s = torch.lerp(s, ACTIVATIONS[node.activation](y), c.sigmoid())
            s = s if node.value == 1 else s * node.value
            states.append(normalised(s) if plan.norm else s)
        h = torch.stack([states[j + 1] for j in plan.outputs]).mean(0)
        outputs.append(h)
    return torch.stack(outputs)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, plan: Plan, xz: Tensor, h: Tensor, mask: Tensor | None, probe: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        T, B, H = len(xz), *h.shape
        states, gates = h.new_empty(len(weights), T, B, H), h.new_empty(len(weights), T, B, 2 * H)
        output = h.new_empty(T, B, H)
        statistics = h.new_empty(2, len(weights), T, H) if plan.norm else None  # mean and 1 / std
        _forward(plan, xz, h, mask, weights, states, gates, output, statistics)
        ctx.plan = plan
        ctx.save_for_backward(h, mask, states, gates, output, statistics, *weights)
        ctx.mark_non_differentiable(states, gates)
        ctx.set_materialize_grads(False)
        return output, states, gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        h, mask, states, gates, output, statistics, *weights = ctx.saved_tensors
        need_x, need_h, _, need_probe, *need_w = ctx.needs_input_grad[1:]
        dz, probed, dh = _backward(ctx.plan, g, h, mask, weights, states, gates, statistics, output)
        dw: list[Tensor | None] = [None] * len(weights)
        if any(need_w):
            before = torch.cat([h[None], output[:-1]])
            sources = [before if node.source == 0 else states[node.source - 1] for node in ctx.plan.nodes]
            dw = [_product(s, mask, d) for s, d in zip(sources, dz, strict=True)]
        return None, dz[0] if need_x else None, dh if need_h else None, None, probed if need_probe else None, *dw


def _forward(
    plan: Plan,
    xz: Tensor,
    h: Tensor,
    mask: Tensor | None,
    weights: Sequence[Tensor],
    states: Tensor,
    gates: Tensor,
    output: Tensor,
    statistics: Tensor | None,
) -> None:
    """Fills states, gates (sigmoid(c) in the first half, h in the second), output and statistics."""
    read = {node.source for node in plan.nodes}
    for t in range(len(xz)):
        now: list[Tensor] = [h]
        masked = {0: h if mask is None else h * mask}
        for j, (node, w) in enumerate(zip(plan.nodes, weights, strict=True)):
            z = gates[j, t]
            if j == 0:
                torch.addmm(xz[t], masked[0], w, out=z)
            else:
                torch.mm(masked[node.source], w, out=z)
            c, y = z.chunk(2, -1)
            s = torch.lerp(now[node.source], ACTIVATIONS[node.activation](y), c.sigmoid_(), out=states[j, t])
            if node.value != 1:
                s *= node.value
            if statistics is not None:
                new, mean, scale = torch.native_batch_norm(s, None, None, None, None, True, 0.0, EPSILON)
                s.copy_(new)
                statistics[0, j, t], statistics[1, j, t] = mean, scale
            now.append(s)
            if j + 1 in read:
                masked[j + 1] = s if mask is None else s * mask
        h = torch.mean(_chosen(states[:, t], plan.outputs), 0, out=output[t])


def _backward(
    plan: Plan,
    g: Tensor,
    h: Tensor,
    mask: Tensor | None,
    weights: Sequence[Tensor],
    states: Tensor,
    gates: Tensor,
    statistics: Tensor | None,
    output: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients at all (c, h), (J, T, B, 2H); at the choice nodes before their norm, (J - 1, T, B, H); and at h."""
    J, T, share = len(weights), len(g), 1 / len(plan.outputs)
    dz, probed = torch.empty_like(gates), torch.zeros_like(states[1:])
    carried: Tensor | None = None
    for t in reversed(range(T)):
        at_output = (g[t] if carried is None else g[t] + carried) * share
        at: list[Tensor | None] = [None, *(at_output if j in plan.outputs else None for j in range(J))]
        before = output[t - 1] if t else h
        for j in reversed(range(J)):
            node, g_j, s = plan.nodes[j], at[j + 1], before
            if node.source:
                s = states[node.source - 1, t]
            if g_j is None:
                dz[j, t].zero_()
                continue
            gate, x = gates[j, t].chunk(2, -1)
            y = ACTIVATIONS[node.activation](x)
            if statistics is not None:
                g_j = _through_norm(g_j, torch.lerp(s, y, gate), node.value, *statistics[:, j, t])
            if j:
                probed[j - 1, t] = g_j
            g_j = g_j if node.value == 1 else g_j * node.value
            d_gate, d_x = dz[j, t].chunk(2, -1)
            d_gate.copy_(_aten.sigmoid_backward((y - s).mul_(g_j), gate))
            g_y = g_j * gate
            d_x.copy_(BACKWARD[node.activation](g_y, y))
            g_s = torch.sub(g_j, g_y)
            if mask is None:
                g_s.addmm_(dz[j, t], weights[j].t())
            else:
                g_s.addcmul_(dz[j, t] @ weights[j].t(), mask)
            earlier = at[node.source]
            at[node.source] = g_s if earlier is None else g_s.add_(earlier)
        carried = at[0]
    assert carried is not None
    return dz, probed, carried


def _through_norm(g: Tensor, u: Tensor, value: float, mean: Tensor, scale: Tensor) -> Tensor:
    """The gradient before the norm of v = value * u."""
    v = u if value == 1 else u * value
    gradient: Tensor = _aten.native_batch_norm_backward(
        g, v, None, None, None, mean, scale, True, EPSILON, [True, False, False]
    )[0]
    return gradient


def _chosen(states: Tensor, nodes: tuple[int, ...]) -> Tensor:
    """states[nodes], without a copy where they stand in a row."""
    first, last = nodes[0], nodes[-1]
    return states[first : last + 1] if nodes == tuple(range(first, last + 1)) else states[list(nodes)]


def _product(s: Tensor, mask: Tensor | None, dz: Tensor) -> Tensor:
    """The gradient of a weight: one product over all time steps."""
    s = s if mask is None else s * mask
    return s.flatten(0, 1).t() @ dz.flatten(0, 1)
