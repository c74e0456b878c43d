"""What a domain is: all that differs between images, text and modules of the user, and the domains
by name.

A domain is a folder here, or a package of somebody else's that names it in an entry point
`proxnas.domains`. Searches, trainings, tests, exports and plans are written once over `Domain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from proxnas.cells.kinds import CUSTOM
from proxnas.common.errors import AboutOptions, InputError, escape, unknown
from proxnas.common.plugins import of_others, resolve

if TYPE_CHECKING:
    import torch

    from proxnas.cells.designs import Architecture
    from proxnas.domains.fitting import Fitting
    from proxnas.domains.search_options import DomainOptions, SpaceTraits
    from proxnas.domains.task import Task
    from proxnas.runs.fingerprint import Fingerprint
    from proxnas.training.job import Model, Training
    from proxnas.training.options import Defaults, TestOptions, TrainOptions


class Data(Protocol):
    """What a domain has read."""

    @property
    def name(self) -> str:
        """A short word, safe as part of a folder's name."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is odd about the data, a line each."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Whether they are still the same data."""


class Domain(Protocol):
    """One kind of data with the spaces for it. Options, data and tasks are its own: whatever it has
    made comes back to it."""

    @property
    def name(self) -> str: ...

    @property
    def spaces(self) -> Mapping[str, str]:
        """Search space -> 'module:what makes it', resolved late."""

    @property
    def search_options(self) -> type[DomainOptions]:
        """What a search in its spaces is told, besides the method."""

    def traits(self, space: str) -> SpaceTraits:
        """What is known of one of its spaces before it is built."""

    def claims(self, data: object) -> bool:
        """Whether DATA is of this kind: a word or path, or what was read already."""

    def claims_cell(self, cell: str) -> bool:
        """Whether CELL makes a network of this domain."""

    def claims_model(self, metadata: Mapping[str, str]) -> bool:
        """Whether a model file with such metadata is of this domain."""

    def load(self, data: Any, options: Any) -> Data:
        """DATA, as far as its own options for reading say; what was read already as it is."""

    def task(self, options: Any, data: Any, space: Any, device: torch.device) -> Task:
        """A search: its streams, its networks, its figures."""


@runtime_checkable
class TrainableDomain(Domain, Protocol):
    """A domain whose networks proxnas trains, tests, uses and exports: all but modules of the
    user, who does that with them."""

    @property
    def protocols(self) -> Mapping[str, Defaults]:
        """How its networks are trained: name -> values for the options of a training."""

    @property
    def shared(self) -> tuple[str, ...]:
        """Options of a search that the training of what it found takes over."""

    @property
    def train_options(self) -> type[TrainOptions]:
        """What a training is told."""

    @property
    def test_options(self) -> type[TestOptions]:
        """What a test is told."""

    @property
    def fitting(self) -> Fitting:
        """How it is fitted: search, training, test and export in one go."""

    def kept_as(self, data: Any) -> str:
        """The name of a file that DATA in memory is kept in."""

    def content_of(self, data: Any) -> bytes:
        """DATA that a program holds, as the content of a file that `load` can read."""

    def read_cell(self, cell: str | Path) -> Architecture | None:
        """What CELL names; None: a network of the domain that no genotype describes."""

    def train_values(
        self, protocol: str, data: str, architecture: Architecture | None
    ) -> dict[str, Any]:
        """The values of a protocol, `auto` decided by the data, fitted to the kind of the cell."""

    def check_training(self, options: Any, architecture: Architecture | None) -> None:
        """An InputError for options that this network has no use for."""

    def training(self, options: Any, data: Any, architecture: Architecture | None) -> Training:
        """The training of a network from scratch, ready for its first step."""

    def plan_lines(self, figures: Mapping[str, Any]) -> list[str]:
        """What a training would build, for people: of its figures those of the data and the
        network."""

    def read_model(self, file: Any, metadata: Mapping[str, str], device: torch.device) -> Model:
        """The trained model in an open file."""

    def test(self, model: Any, options: Any, data: Any = None) -> dict[str, Any]:
        """How good a model is on DATA, or on what a program has in its place."""

    def score(self, figures: Mapping[str, Any]) -> float:
        """The one figure of a test that says how good: more is better."""

    def test_lines(self, figures: Mapping[str, Any]) -> list[str]:
        """The figures of a test for people."""

    def predict(self, model: Any, inputs: Any, top: int) -> list[Any]:
        """The answers of a model to each input, the most probable first."""

    def generate(self, model: Any, prompt: str, **how: Any) -> str:
        """What a model writes; an InputError if it does not write."""

    def export(
        self, model: Any, files: Mapping[str, Path], data: Any, folder: Path | None
    ) -> tuple[dict[str, float], str]:
        """Writes onnx and torch files; (kind -> largest difference of an answer, what it was
        checked on)."""

    def card(self, model: Any, files: Mapping[str, Path], found: Mapping[str, Any]) -> str:
        """The model card; `found`: how the cell was found."""


DOMAINS: dict[str, str] = {
    "modules": "proxnas.domains.modules.domain:MODULES",
    "text": "proxnas.domains.text.domain:TEXT",
    "images": "proxnas.domains.images.domain:IMAGES",
}
"""Name -> 'module:object', resolved late. Asked in this order whose something is: images come last,
because their reader is the one to say what is wrong with a path that nobody knows."""
USUAL = "images"
ELSEWHERE = (
    "is no model that proxnas trains: a module of your own is trained, tested and exported as any"
    " module, and a file of Found.save is read by proxnas.load_found(path, module)"
)


@cache
def every_domain() -> Mapping[str, Domain]:
    """Ours, and before them those that other packages bring."""
    found: dict[str, Domain] = {}
    # ours win where a name is taken
    for name, place in (of_others("domains") | DOMAINS).items():
        found[name] = resolve("domain", name, place)
    return found


def named(name: str) -> Domain:
    """The domain of that name."""
    if name not in every_domain():
        raise unknown("domain", name[:40], every_domain())
    return every_domain()[name]


def every_space() -> dict[str, str]:
    """Space -> 'module:what makes it', of all domains; those of images first, as in all lists."""
    found: dict[str, str] = {}
    # images are asked last, and listed first
    for domain in reversed(list(every_domain().values())):
        found |= domain.spaces
    return found


def of_space(space: str) -> Domain:
    """The domain that a space is of."""
    for domain in every_domain().values():
        # a module of the user's is no space that could be listed
        if space in domain.spaces or (space == CUSTOM and domain.name == "modules"):
            return domain
    raise unknown("space", space, every_space())


def of_data(data: object) -> Domain:
    """The domain that claims DATA; images where no other does, which are not asked: to know, they
    read it."""
    return of_unusual_data(data) or named(USUAL)


def of_unusual_data(data: object) -> Domain | None:
    """The domain that claims DATA, but for images; None if none does."""
    for domain in every_domain().values():
        if domain.name != USUAL and domain.claims(data):
            return domain
    return None


def of_cell(cell: str) -> TrainableDomain:
    """The domain whose network CELL makes; images where none claims it, to say what is wrong."""
    for domain in every_domain().values():
        if domain.claims_cell(cell):
            return trainable(domain)
    return trainable(named(USUAL))


def of_metadata(metadata: Mapping[str, str]) -> TrainableDomain:
    """The domain of a model file with such metadata."""
    for domain in every_domain().values():
        if domain.claims_model(metadata):
            return trainable(domain)
    return trainable(named(USUAL))


def of_options(options: TrainOptions) -> TrainableDomain:
    """The domain whose training is told so."""
    return trainable(named(options.DOMAIN))


def trainable(domain: Domain) -> TrainableDomain:
    """The domain, if its networks are trained here; else an InputError."""
    if not isinstance(domain, TrainableDomain):
        raise InputError(f"{domain.name}: {ELSEWHERE}")
    return domain


def load_for_search(space: str, data: Any, options: Any) -> Data:
    """DATA for a search in a space, unless it is of another domain than the space."""
    domain = of_space(space)
    # said before anything is read as what it is not
    if other := _other_domain(domain, data):
        raise AboutOptions(
            f"{escape(data)}: is {other.name}, and {{space}} {space} is for {domain.name}: give"
            f" {{space}} {' or '.join(other.spaces)}, or other data"
        )
    return domain.load(data, options)


def _other_domain(domain: Domain, data: object) -> Domain | None:
    """The domain that DATA is of, if it is surely not the one asked for."""
    # images claim by reading: only the others are asked
    if domain.name == USUAL:
        return of_unusual_data(data)
    if domain.claims(data):
        return None
    # not claimed by its own domain: whose are they?
    return next((other for other in every_domain().values() if other.claims(data)), None)
