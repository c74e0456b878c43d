"""NASP, PA and lazy PA (Yao et al., 'Efficient Neural Architecture Search via Proximal Iterations',
AAAI 2020).

One class with two functions swapped: the prox inside `select` (A -> A_bar) and `project` (after the
gradient step).

    NASP     A_bar = prox_C1(A),   A <- prox_C2(A - dF/dA_bar)      Alg. 2
    PA       A_bar = prox_C(A),    A <- prox_C(A - dF/dA_bar)       Eq. prox1
    lazy PA  A_bar = prox_C(A),    A <- A - dF/dA_bar               Eq. prox2

E edges, K candidates; A is (E, K) for each group and stays on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from proxnas.common.types import Batch, Matrices, State
from proxnas.core.choice import NONE
from proxnas.core.prox import prox_c, prox_c1, prox_c2
from proxnas.core.selection import changed, keep_inputs
from proxnas.core.share import Share
from proxnas.core.size.complexity import R_gradient, parameter_costs
from proxnas.core.supernet import EVERYTHING
from proxnas.methods.architecture import ArchitectureOptimizer
from proxnas.methods.base import Setup, weight_step
from proxnas.methods.gumbel import gumbel
from proxnas.methods.optimizers import WeightOptimizer
from proxnas.methods.unrolled import UnrolledStep
from proxnas.runs.metrics import Metrics

Prox = Callable[[Tensor, Tensor | None], Tensor]
PRICE_RATE = 2.5
"""How far the price of size rises over a search in which A always asks for the whole span of sizes
too much."""
LOOKS_AN_EPOCH = 4
"""More would cost time in searches with small batches and many steps an epoch."""


class Proximal:
    """A search by proximal iterations over a supernet and two streams."""

    def __init__(self, setup: Setup, prox: Prox, project: Prox) -> None:
        self.net, self.train, self.valid, self.clock = (
            setup.net,
            setup.train,
            setup.valid,
            setup.clock,
        )
        self.options = options = setup.architecture
        options.check_due(len(self.train), setup.weights.epochs)
        self.prox, self.project, self.seed = prox, project, setup.seed
        generator = torch.Generator().manual_seed(setup.seed)
        drawn = {
            name: self._start(group.shape, generator) for name, group in self.net.groups.items()
        }
        self.priority = {
            name: torch.rand(A.shape, generator=generator, dtype=A.dtype)
            for name, A in drawn.items()
        }
        self.share_seed = int(
            torch.randint(2**62, (), generator=generator)
        )  # independent of the noise
        self.budget = setup.budget
        self.A_bar: Matrices = {}
        self.A = {
            name: self.project(A, self._priority(name)) for name, A in setup.begin(drawn).items()
        }
        self.A_bar = self.select(self.A)
        self.path = self.A_bar
        self.potentials: Matrices = {}
        self.looked = 0
        self.costs = self._costs(setup.costs) if options.eta or self.budget else {}
        self.price = self.excess = 0.0
        self.A_optimizer = ArchitectureOptimizer(self.A, options)
        self.w_optimizer = WeightOptimizer(self.net, setup.weights, len(self.train))
        self.unrolled = UnrolledStep(self.net, self.w_optimizer)

    def _start(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        return 0.5 + self.options.noise * noise

    def _costs(self, given: dict[str, Tensor] | None) -> dict[str, Tensor]:
        costs = parameter_costs(self.net) if given is None else given
        skipped = () if self.options.eta_cells == "all" else ("reduce",)
        return {name: cost for name, cost in costs.items() if name not in skipped}

    def step(self) -> Metrics:
        """One pass of Alg. 2, lines 3-6; `path` is A_bar while nothing is explored."""
        train = self.train.next()
        before, noise = self.A_bar, self._noise()
        if self.options.due(self.w_optimizer.t, len(self.train)):
            with self.clock("arch"):
                self.path = self.select(self.A, noise)  # 3: discrete architecture
                dA = self.gradient(train, noise)  # 4: dF/dA_bar, no second order ...
                self.descend(dA)  #    ... then prox_C2
                self.A_bar = self.select(self.A)
                self._adapt()
        self.path = self.select(self.A, noise) if noise else self.A_bar  # 5: refine
        self._use(self.path)
        loss, right = weight_step(
            self.net, train, self.w_optimizer, self.clock
        )  # 6: through the selected only
        return Metrics(loss, right, len(train.y), changed(before, self.A_bar))

    def select(self, A: Matrices, noise: Matrices | None = None) -> Matrices:
        """A -> A_bar: what A selects, or the nearest cell within the limit."""
        wanted = self.unlimited(A, noise)
        # so all that is trained is small enough, and what is returned too
        within = self.budget.project(self._judged(A, noise), wanted) if self.budget else wanted
        return wanted if within is wanted else self._valued(A, within)

    def unlimited(self, A: Matrices, noise: Matrices | None = None) -> Matrices:
        """What A, with the noise on it, selects where no limit is set: the prox on every row, then
        the node's inputs, then the value of an entry."""
        # noise takes entries out of [0, 1]; there prox_C still means the largest, prox_C1 the
        # largest in magnitude
        prox = self.prox if noise is None else prox_c
        selected = {name: self._select(name, a, prox) for name, a in self._judged(A, noise).items()}
        has_values = self.options.value == "a_k" and noise is None  # the prox has left them
        return selected if has_values else self._valued(A, selected)

    def _valued(self, A: Matrices, selected: Matrices) -> Matrices:
        """The same entries with their values: 1, or a_k without noise."""
        if self.options.value == "one":
            return {name: (a != 0).to(a.dtype) for name, a in selected.items()}
        return {
            name: torch.where(a != 0, A[name].clamp(1e-6, 1.0), 0.0) for name, a in selected.items()
        }

    def _select(self, name: str, A: Tensor, prox: Prox) -> Tensor:
        priority = self._priority(name)
        return keep_inputs(A, prox(A, priority), self.net.groups[name], priority)

    def _noise(self) -> Matrices | None:
        """What is added to A before selecting, so that others than the best are tried and trained
        too.

        It falls to 0 by the last step. Drawn anew each step from the seed, so that there is no
        state to keep.
        """
        left = 1 - self.w_optimizer.progress
        if not self.options.explore or left <= 0:
            return None
        generator = torch.Generator().manual_seed(self.seed + self.w_optimizer.t)
        return {
            name: self.options.explore * left * gumbel(A.shape, generator)
            for name, A in self.A.items()
        }

    def _priority(self, name: str) -> Tensor:
        if self.options.ties == "first":
            # but never `none`, which the code with that rule does not have: a network of ties would
            # be empty for ever
            return torch.tensor(
                [-float(op == NONE) for op in self.net.groups[name].candidates], dtype=torch.float64
            )
        # what was selected last stays in a tie: two entries clipped to 1 must not take turns
        return (
            self.priority[name] + (self.A_bar[name] != 0)
            if name in self.A_bar
            else self.priority[name]
        )

    def gradient(self, train: Batch, noise: Matrices | None = None) -> Matrices:
        """dF/dA_bar on a fresh validation batch, at the path that was selected with that noise: F =
        L_val + eta R."""
        valid = self.valid.next()
        self._use(self.path)
        dA = (
            self.unrolled(self._loss_gradient, train, valid)
            if self.options.order == 2
            else self._at_w(valid)
        )
        for name, promised in self._promised(train, valid).items():
            dA[name] = dA[name] - promised
        for name, dR in R_gradient(self._penalised(noise), self.costs).items():
            dA[name] = dA[name] + self.eta * dR
        return dA

    @property
    def eta(self) -> float:
        """The weight of R: what was asked for and, while A asks for more than the limit, the price
        of size."""
        return self.options.eta + (self.price if self.excess > 0 else 0.0)

    def _penalised(self, noise: Matrices | None) -> Matrices:
        """Where R is taken: where L_val is, at the path; with a limit at what would be selected
        without it, because that is what has to become smaller.

        At the A_bar without noise, costly entries would be pressed until they just lose, and so
        come and go for ever.
        """
        if self.options.eta_at == "A":
            return self.A
        return self.unlimited(self.A, noise) if self.budget else self.path

    @staticmethod
    def _judged(A: Matrices, noise: Matrices | None) -> Matrices:
        return {name: a + noise[name] for name, a in A.items()} if noise else A

    def _adapt(self) -> None:
        """Dual ascent on the limit: the price rises while A asks for more than is allowed, and
        falls otherwise.

        It is charged in the first case only (a switching subgradient method): A remembers what it
        was pressed by, and a price that is still falling would press it far below the limit.
        """
        if self.budget:
            self.excess = self.budget.excess(self.unlimited(self.A))
            rate = PRICE_RATE / (len(self.train) * self.w_optimizer.options.epochs)
            self.price = max(0.0, self.price + rate * self.excess)

    def _promised(self, train: Batch, valid: Batch) -> Matrices:
        """What training each candidate is expected to win: xi < u_train , u_valid >, looked up now
        and then."""
        o, w = self.options, self.w_optimizer
        if not o.look_ahead:
            return {}
        if not self.potentials or w.t >= self.looked + self._pause(len(self.train)):
            self.potentials, self.looked = self.net.potentials(train, valid), w.t
        xi = w.pace(o.horizon)
        return {name: xi * potential for name, potential in self.potentials.items()}

    def occasional(self, steps: int, epochs: int) -> tuple[Callable[[], object], float]:
        """The look ahead, which most steps do without."""
        if not self.options.look_ahead:
            return (lambda: None), 0.0
        return (lambda: self.net.potentials(self.train.next(), self.valid.next())), 1 / self._pause(
            steps
        )

    def _pause(self, steps: int) -> int:
        """Steps from one look ahead to the next: weights move with the images seen, however they
        are cut in batches."""
        return max(self.options.look_ahead, steps // LOOKS_AN_EPOCH)

    def _loss_gradient(
        self, batch: Batch, weights: Sequence[Tensor]
    ) -> tuple[Matrices, Sequence[Tensor | None]]:
        return self.net.architecture_gradient(batch, weights, self._share())

    def _share(self) -> Share:
        """What is scored in this step; drawn anew each step from the seed, so that there is no
        state to keep."""
        o = self.options
        if o.score_batch == o.score_nodes == 1:
            return EVERYTHING
        generator = torch.Generator().manual_seed(self.share_seed + self.w_optimizer.t)
        return Share(o.score_batch, o.score_nodes, generator)

    def _at_w(self, valid: Batch) -> Matrices:
        return self._loss_gradient(valid, ())[0]

    def descend(self, dA: Matrices) -> None:
        """One step on A, then the projection."""
        self.A_optimizer.step(dA)
        for name, A in self.A.items():
            A.copy_(self.project(A, self._priority(name)))

    def _use(self, path: Matrices) -> None:
        self.net.use(path, weighted=self.options.value == "a_k")

    def architecture(self) -> tuple[Matrices, Matrices]:
        return self.A, self.A_bar

    def state_dict(self) -> State:
        return {
            "A": self.A_optimizer.state_dict(),
            "A_bar": self.A_bar,
            "potentials": self.potentials,
            "looked": self.looked,
            "costs": self.costs,
            "price": [self.price, self.excess],
            "w": self.w_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        self.A_optimizer.load_state_dict(state["A"])
        self.w_optimizer.load_state_dict(state["w"])
        self.A_bar = {name: state["A_bar"][name].clone() for name in self.A}
        self.potentials, self.looked = state["potentials"], state["looked"]
        self.costs = state["costs"]  # seconds are not measured alike twice
        self.price, self.excess = state["price"]


def nasp(setup: Setup) -> Proximal:
    """NASP, Alg. 2."""
    return Proximal(setup, prox_c1, lambda A, priority: prox_c2(A))


def pa(setup: Setup) -> Proximal:
    """The proximal algorithm, Eq. prox1."""
    return Proximal(setup, prox_c, prox_c)


def lazy_pa(setup: Setup) -> Proximal:
    """The proximal algorithm with lazy steps, Eq. prox2: A is free to leave [0, 1]."""
    return Proximal(setup, prox_c, lambda A, priority: A)
