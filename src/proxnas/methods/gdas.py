"""GDAS (Dong & Yang, 'Searching for a Robust Neural Architecture in Four GPU Hours', CVPR 2019).

Every edge samples one candidate and only that is run; the gradient passes the sample straight
through:

    p = softmax((log_softmax(A) + G) / tau),  G Gumbel noise,  z = one_hot(argmax p)
    x_j = sum_i z_k O_k(x_i)  for the sampled k of each edge (i,j)
    dL/dA = (dp/dA)^T dL/dz,  where dL/dz is < g_j, O_k(x_i) > for the sampled k and 0 for the
                              others

Each step draws one path and trains w on it, then draws another and moves A by Adam on a validation
batch. tau falls linearly from 10 to 0.1 over the steps. The public code for NAS-Bench-201 also adds
the (zero) factors of the unsampled candidates to the output, which gives these dL/dz = sum of g_j:
`unsampled_gradient = "sum"`.

With `fixed_reduction` (FRC) only the normal cell is searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor

from proxnas.common.errors import AboutOptions
from proxnas.common.options import NOT_NEGATIVE, POSITIVE
from proxnas.common.types import Batch, Matrices
from proxnas.core.choice import Call
from proxnas.core.groups import NONE, Group
from proxnas.core.selection import changed
from proxnas.methods.base import Setup, by_name, weight_step
from proxnas.methods.gumbel import concrete, gumbel, hard
from proxnas.methods.learner import Learns, linear
from proxnas.methods.options import Anneals, DescendsA, TrainsPartly
from proxnas.runs.consensus import mean_matrices
from proxnas.runs.metrics import Metrics

REDUCTION = "reduce"


@dataclass(frozen=True)
class GdasOptions(TrainsPartly, Anneals, DescendsA):
    """One sampled candidate an edge, the gradient straight through the sample."""

    public: ClassVar[str] = "GDAS"
    defaults: ClassVar[Mapping[str, Any]] = {"weight_decay": 5e-4, "patience": 0}
    for_images: ClassVar[tuple[str, ...]] = ("fixed_reduction", "unsampled_gradient")

    arch_decay: Annotated[float, NOT_NEGATIVE] = 1e-3
    """Weight decay of A."""
    tau_start: Annotated[float, POSITIVE] = 10.0
    """Temperature in the first step."""
    fixed_reduction: bool = False
    """With its fixed reduction cell: only the normal cell is searched."""
    unsampled_gradient: Literal["zero", "sum"] = "zero"
    """Gradient of unsampled entries, as its formula, or as its public nasbench201 code."""


class Gdas(Learns[GdasOptions]):
    """A search over sampled paths with a straight-through gradient."""

    Options = GdasOptions

    def __init__(self, setup: Setup[GdasOptions]) -> None:
        super().__init__(setup, nesterov=True)
        self.fixed: Matrices = {}
        if self.options.fixed_reduction:
            self.fixed = fixed_reduction(self.net.groups.get(REDUCTION))
        self.A_bar = self.derive()

    @property
    def tau(self) -> float:
        """Linear over the steps, both ends included: the last epoch has the lowest throughout, as
        in the public code, but where it is the only one just the last step."""
        w = self.learner.w_optimizer
        falling = w.steps - (w.steps_per_epoch if w.options.epochs > 1 else 1)
        return linear(*self.options.tau, min(1.0, w.t / max(1, falling)))

    def step(self) -> Metrics:
        """w on a sampled path, then A on another."""
        train, before, tau = self.train.next(), self.A_bar, self.tau
        path = {name: hard(p) for name, p in self.sample(self.learner.A, tau).items()}
        self.net.use(path | self.fixed)
        loss, right = weight_step(self.net, train, self.learner.w_optimizer, self.clock)
        with self.clock("arch"):
            self.learner.A_optimizer.step(self.gradient(self.valid.next(), tau))
            self.A_bar = self.derive()
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def sample(self, A: Matrices, tau: float) -> Matrices:
        """p of every group; its largest entries are the sample."""
        return {
            name: concrete(a.log_softmax(-1), gumbel(a.shape, self.learner.generator), tau)
            for name, a in A.items()
        }

    def gradient(self, valid: Batch, tau: float) -> Matrices:
        """dL/dA = (dp/dA)^T dL/dz at a sample."""
        A = {name: a.detach().requires_grad_() for name, a in self.learner.A.items()}
        p = self.sample(A, tau)
        # a leaf of its own, cut off from A: dL/dz is asked for here, dp/dA follows below
        z = {name: hard(q.detach()).requires_grad_() for name, q in p.items()}
        dz = mean_matrices(self._at(z, valid), self.net.objective.examples(valid), self.net.device)
        # the vector-Jacobian product (dp/dA)^T dL/dz
        passed = torch.autograd.grad(list(p.values()), list(A.values()), list(dz.values()))
        return dict(zip(A, passed, strict=True))

    def _at(self, z: Matrices, batch: Batch) -> Matrices:
        """dL/dz, running the sampled candidates only."""
        self.net.use(z | self.fixed, weighted=True)
        if self.options.unsampled_gradient == "zero":
            return by_name(z, self.net.gradient(self.net.loss(batch)[0], list(z.values())))
        with self.net.taped() as tape:
            loss, _ = self.net.loss(batch)
        calls = [call for call in tape if isinstance(call, Call)]
        gradients = self.net.gradient(loss, [*z.values(), *(call.output for call in calls)])
        return _with_sums(by_name(z, gradients), z, calls, gradients[len(z) :])

    def derive(self) -> Matrices:
        """The likeliest candidate of each edge; where a node keeps n inputs, its n likeliest pairs
        of an edge and a candidate other than `none`, which may share an edge."""
        return {
            name: pairs(p, self.net.groups[name]) for name, p in self.preferences().items()
        } | self.fixed


def pairs(p: Tensor, group: Group) -> Tensor:
    """A_bar with the n largest entries of each node's rows, n the inputs that it keeps."""
    if group.max_inputs is None:
        return hard(p)
    usable = [k for k, name in enumerate(group.candidates) if name != NONE] or [0]
    A_bar = torch.zeros_like(p)
    for rows in group.nodes:
        # (edge, candidate) of the node by falling probability, the first of equals first
        entries = sorted(((e, k) for e in rows for k in usable), key=lambda entry: -float(p[entry]))
        for e, k in entries[: group.max_inputs]:
            A_bar[e, k] = 1.0
    return A_bar


def fixed_reduction(group: Group | None) -> Matrices:
    """The reduction cell of FRC in the terms of the space: its four maps are a strided convolution
    (`skip_connect`) of either input and a max pooling of either input."""
    wanted = ("skip_connect", "skip_connect", "max_pool_3x3", "max_pool_3x3")
    if group is None or len(group.nodes) != len(wanted) or not set(wanted) <= set(group.candidates):
        raise AboutOptions(
            "{fixed_reduction}: this space has no reduction cell with four nodes, skip_connect and "
            "max_pool_3x3: use darts7, darts8 or nasp12"
        )
    A_bar = torch.zeros(group.shape, dtype=torch.float64)
    for n, (rows, op) in enumerate(zip(group.nodes, wanted, strict=True)):
        A_bar[rows[n % 2], group.candidates.index(op)] = 1.0
    return {REDUCTION: A_bar}


def _with_sums(
    dz: Matrices, z: Matrices, tape: Sequence[Call], gradients: Sequence[Tensor | None]
) -> Matrices:
    """dz with sum(g_j) added to the unsampled entries of every row that enters node j; the host
    reads them once."""
    total = {name: g.clone() for name, g in dz.items()}
    # the output gets z_k times 1 from an unsampled candidate: d/dz_k is the sum of g_j
    reached = [(call, g.sum()) for call, g in zip(tape, gradients, strict=True) if g is not None]
    sums = torch.stack([g for _, g in reached]).tolist() if reached else []
    for (call, _), value in zip(reached, sums, strict=True):
        for choice in call.choices:
            assert choice.row is not None
            name, e = choice.row
            # (K,): a sampled entry has its own gradient already
            total[name][e] += value * (z[name][e].detach() == 0)
    return total
