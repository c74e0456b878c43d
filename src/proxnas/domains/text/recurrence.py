"""The recurrent cell over a whole sequence, its backward pass written by hand.

Every node is a highway from one earlier state i,

    (c, h) = s_i W_j,    s_j = a_j (s_i + sigmoid(c) * (f_j(h) - s_i)).

The first reads the cell's own output of the time step before and adds the input's share x W_x to
(c, h). In a search network each s_j is normalised over the batch.

What does not depend on time is done for all time steps at once, in products large enough to be
quick: x W_x before (by the caller) and the gradients of the weights after. A time step is a handful
of kernels a node.

Shapes: T time steps, B sequences of a batch, H units, J nodes with the first; states are (J, T, B,
H).
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
BACKWARD: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "tanh": lambda g, y, out: _aten.tanh_backward.grad_input(g, y, grad_input=out),
    "relu": lambda g, y, out: _aten.threshold_backward.grad_input(g, y, 0, grad_input=out),
    "sigmoid": lambda g, y, out: _aten.sigmoid_backward.grad_input(g, y, grad_input=out),
    "identity": lambda g, y, out: out.copy_(g),
}
"""(gradient at the output, output, where to put it) -> gradient at the input."""

Table = Sequence[Sequence[Tensor]]
"""Views node by node and time step by time step, made at once: one by one they would take as long
as the maths."""


class Highway(NamedTuple):
    """A node: the state it reads (0: the output of the time step before, j: node j - 1), its
    activation and factor."""

    source: int
    activation: str
    value: float = 1.0


@dataclass(frozen=True)
class CellPlan:
    """A discrete cell, the first state included."""

    nodes: tuple[Highway, ...]
    outputs: tuple[int, ...]
    """Nodes whose mean is the cell's output."""
    norm: bool = False
    """Normalise each node over the batch, as in a search network."""


class Trace(NamedTuple):
    """What a forward pass computed: all nodes (J, T, B, H), and the gates and arguments of f, (J,
    T, B, 2H)."""

    states: Tensor
    gates: Tensor


def normalise_batch(x: Tensor) -> Tensor:
    """Over the batch, without scale or shift."""
    return torch.nn.functional.batch_norm(x, None, None, training=True, eps=EPSILON)


def unroll(
    plan: CellPlan,
    xz: Tensor,
    h: Tensor,
    weights: Sequence[Tensor],
    mask: Tensor | None,
    probe: Tensor | None = None,
) -> tuple[Tensor, Trace | None]:
    """The outputs (T, B, H) from the inputs' shares xz (T, B, 2H), the state h (B, H) and a weight
    (H, 2H) a node.

    `mask` (B, H) drops units of a source before its product, alike at all times. `probe` (J - 1, T,
    B, H), all zero, is as if added to each choice node before its norm: its gradient is g_j, which
    scoring needs, and a trace comes along.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _outputs(plan, xz, h, weights, mask), None
    apply: Any = _Recurrence.apply  # untyped in torch
    output, states, gates = apply(plan, xz, h, mask, probe, *weights)
    return output, Trace(states, gates) if probe is not None else None


def _outputs(
    plan: CellPlan, xz: Tensor, h: Tensor, weights: Sequence[Tensor], mask: Tensor | None
) -> Tensor:
    """The plain computation, in which nothing is kept."""
    outputs = []
    for x in xz.unbind(0):
        # state 0 is the output of the time step before, state j the node j - 1
        states = [h]
        for node, w in zip(plan.nodes, weights, strict=True):
            s = states[node.source]
            z = (s if mask is None else s * mask) @ w
            # the first node reads the input too
            c, y = (z if len(states) > 1 else z + x).chunk(2, -1)
            # lerp(s, f, g) = s + g * (f - s), a highway
            s = torch.lerp(s, ACTIVATIONS[node.activation](y), c.sigmoid())
            s = s if node.value == 1 else s * node.value
            states.append(normalise_batch(s) if plan.norm else s)
        # the output of the cell is the mean of its nodes, (B, H)
        h = torch.stack([states[j + 1] for j in plan.outputs]).mean(0)
        outputs.append(h)
    return torch.stack(outputs)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: CellPlan,
        xz: Tensor,
        h: Tensor,
        mask: Tensor | None,
        probe: Tensor | None,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        J, T, (B, H) = len(weights), len(xz), h.shape
        states = h.new_empty(J, T, B, H)
        gates = h.new_empty(J, T, B, 2 * H)
        output = h.new_empty(T, B, H)
        ctx.plan = plan
        ctx.statistics = _forward(plan, xz, h, mask, weights, states, gates, output)
        ctx.save_for_backward(h, mask, states, gates, output, *weights)
        ctx.mark_non_differentiable(states, gates)
        ctx.set_materialize_grads(False)
        return output, states, gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        h, mask, states, gates, output, *weights = ctx.saved_tensors
        need_x, need_h, _, need_probe, *need_w = ctx.needs_input_grad[1:]
        probed = torch.zeros_like(states[1:]) if need_probe else None
        # without gradients of weights those at (c, h) are used up at once, and the place of one
        # time step is enough
        steps = len(g) if need_x or any(need_w) else 1
        dz = gates.new_empty(len(weights), steps, *gates.shape[2:])
        # (T, B, H): what each time step read as the output of the one before
        before = torch.cat([h[None], output[:-1]])
        dh = _backward(
            ctx.plan, g, before, mask, weights, states, gates, ctx.statistics, dz, probed
        )
        dw: list[Tensor | None] = [None] * len(weights)
        if any(need_w):
            sources = [
                before if node.source == 0 else states[node.source - 1] for node in ctx.plan.nodes
            ]
            dw = [_product(s, mask, d) for s, d in zip(sources, dz, strict=True)]
        return None, dz[0] if need_x else None, dh if need_h else None, None, probed, *dw


def _forward(
    plan: CellPlan,
    xz: Tensor,
    h: Tensor,
    mask: Tensor | None,
    weights: Sequence[Tensor],
    states: Tensor,
    gates: Tensor,
    output: Tensor,
) -> list[list[tuple[Tensor, Tensor]]]:
    """Fills states, gates (sigmoid(c) in the first half, h in the second) and output.

    Returns for each node and time step the mean and 1 / std of its norm.
    """
    s_, z_, (c_, y_) = table(states), table(gates), map(table, gates.chunk(2, -1))
    statistics: list[list[tuple[Tensor, Tensor]]] = [[] for _ in weights]
    read, first, last = {node.source for node in plan.nodes}, plan.outputs[0], plan.outputs[-1]
    # a view of the states will do where the nodes that are averaged stand in a row
    in_a_row = plan.outputs == tuple(range(first, last + 1))
    for t, (x, after, out) in enumerate(
        zip(xz, states[first : last + 1].unbind(1), output, strict=True)
    ):
        now: list[Tensor] = [h]
        masked = {0: h if mask is None else h * mask}
        for j, (node, w) in enumerate(zip(plan.nodes, weights, strict=True)):
            if j == 0:
                # (c, h) = s W, and x W_x for the first node
                torch.addmm(x, masked[0], w, out=z_[j][t])
            else:
                torch.mm(masked[node.source], w, out=z_[j][t])
            c, y, s = c_[j][t], y_[j][t], s_[j][t]
            # in place: from here on the first half of z holds sigmoid(c)
            torch.lerp(now[node.source], ACTIVATIONS[node.activation](y), c.sigmoid_(), out=s)
            if node.value != 1:
                s *= node.value
            if plan.norm:
                # v -> (v - mean) * scale, without running statistics
                new, mean, scale = torch.native_batch_norm(
                    s, None, None, None, None, True, 0.0, EPSILON
                )
                s.copy_(new)
                statistics[j].append((mean, scale))
            now.append(s)
            if j + 1 in read:
                masked[j + 1] = s if mask is None else s * mask
        h = torch.mean(
            after if in_a_row else torch.stack([now[j + 1] for j in plan.outputs]), 0, out=out
        )
    return statistics


def _backward(
    plan: CellPlan,
    g: Tensor,
    before: Tensor,
    mask: Tensor | None,
    weights: Sequence[Tensor],
    states: Tensor,
    gates: Tensor,
    statistics: list[list[tuple[Tensor, Tensor]]],
    dz: Tensor,
    probed: Tensor | None,
) -> Tensor:
    """Fills dz with the gradients at all (c, h) and probed with those before the norms; returns
    that at the state h."""
    J, share, transposed = len(weights), 1 / len(plan.outputs), [w.t() for w in weights]
    s_, (c_, x_) = [before.unbind(0), *table(states)], map(table, gates.chunk(2, -1))
    z_, (d_c, d_x) = table(dz), map(table, dz.chunk(2, -1))
    probes = None if probed is None else table(probed)
    # dF/dh from the time step after; none behind the last one
    carried: Tensor | None = None
    for t, g_t in reversed(list(enumerate(g))):
        # the output is a mean: each of its nodes gets an equal share
        at_output = (g_t if carried is None else g_t + carried) * share
        # gradients at the states of this time step, added up from later nodes to earlier ones
        at: list[Tensor | None] = [None] * (J + 1)
        for j in plan.outputs:
            at[j + 1] = at_output
        place = t if len(z_[0]) > 1 else 0
        for j in reversed(range(J)):
            node, g_j = plan.nodes[j], at[j + 1]
            if g_j is None:
                # nobody reads this node: its weight has no gradient here
                z_[j][place].zero_()
                continue
            s, gate = s_[node.source][t], c_[j][t]
            # computed again: to keep it would take as much memory as all states do
            y = ACTIVATIONS[node.activation](x_[j][t])
            if plan.norm:
                g_j = _through_norm(g_j, torch.lerp(s, y, gate), node.value, *statistics[j][t])
            if probes is not None and j:
                probes[j - 1][t].copy_(g_j)
            g_j = g_j if node.value == 1 else g_j * node.value
            # u = s + gate * (y - s):   dc = g (y - s) gate (1 - gate),   dh = g gate f'(h)
            _aten.sigmoid_backward.grad_input((y - s).mul_(g_j), gate, grad_input=d_c[j][place])
            g_y = g_j * gate
            BACKWARD[node.activation](g_y, y, d_x[j][place])
            # ds = g (1 - gate) + mask * (dz W'): past the node, and through its product
            g_s = torch.sub(g_j, g_y)
            if mask is None:
                g_s.addmm_(z_[j][place], transposed[j])
            else:
                g_s.addcmul_(torch.mm(z_[j][place], transposed[j]), mask)
            earlier = at[node.source]
            at[node.source] = g_s if earlier is None else g_s.add_(earlier)
        carried = at[0]
    assert carried is not None
    return carried


def table(x: Tensor) -> Table:
    """x[j][t] as views."""
    return [row.unbind(0) for row in x.unbind(0)]


def _through_norm(g: Tensor, u: Tensor, value: float, mean: Tensor, scale: Tensor) -> Tensor:
    """The gradient before the norm of v = value * u."""
    v = u if value == 1 else u * value
    gradient: Tensor = _aten.native_batch_norm_backward.default(
        g, v, None, None, None, mean, scale, True, EPSILON, [True, False, False]
    )[0]
    return gradient


def _product(s: Tensor, mask: Tensor | None, dz: Tensor) -> Tensor:
    """The gradient of a weight: one product over all time steps."""
    s = s if mask is None else s * mask
    return s.flatten(0, 1).t() @ dz.flatten(0, 1)
