"""Any module that holds Choices as a search space: names for its rows, and the plain module that a
selection makes.

Nothing is built anew: the plain module is a deep copy in which each Choice is its selected
candidate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import CUSTOM
from proxnas.cells.parts import Edge
from proxnas.common.errors import InputError, unknown
from proxnas.common.types import Matrices
from proxnas.core.choice import Choice, Node
from proxnas.core.groups import NONE, Group, Row
from proxnas.core.size.nesting import holders

ROOT = "choice"
"""The name of a Choice that is the whole module."""

Pick = Callable[[Choice], Edge]
"""Which candidate of a Choice is selected, and its factor."""


class Sum(nn.Module):
    """x_j = sum_i O_i(x_i): a Node whose edges are decided."""

    def __init__(self, parts: Mapping[int, nn.Module]) -> None:
        """Place among the node's inputs -> what it goes through."""
        super().__init__()
        self.places = tuple(parts)
        self.parts = nn.ModuleList(parts.values())

    def forward(self, states: Any) -> Tensor:
        outputs = [part(states[i]) for i, part in zip(self.places, self.parts, strict=True)]
        total: Tensor = outputs[0]
        for output in outputs[1:]:
            total = total + output
        return total


class Scaled(nn.Module):
    """a_k O_k(x): a candidate that keeps the factor it was searched with (value a_k)."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self.module = module
        self.factor = factor

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        output: Tensor = self.module(*args, **kwargs)
        return output * self.factor


class CustomSpace:
    """The plain modules that one module with Choices holds."""

    def __init__(self, module: nn.Module) -> None:
        """`module` gets its rows named."""
        name_rows(module)
        self.module, self.name = module, CUSTOM
        # a row that several Choices share is one group
        names = {
            row_name(part): part.names for part in module.modules() if isinstance(part, Choice)
        }
        inside = {name: of.pop() for name, of in holders(module).rows.items() if len(of) == 1}
        self.groups = {
            name: Group(candidates, inside=inside.get(name)) for name, candidates in names.items()
        }

    def search_network(self, size: object) -> nn.Module:
        return self.module

    def choice_network(self, size: object) -> nn.Module:
        return self.module

    def genotype(self, A_bar: Matrices) -> Genotype:
        """The candidates of the Choices that are reached; those inside unselected candidates are
        left out."""
        edges = {name: _edge(name, self.groups[name], matrix) for name, matrix in A_bar.items()}
        run = inside_out(self.module, lambda choice: edges[row_name(choice)])
        reached = {row_name(part) for part in run if isinstance(part, Choice)}
        chosen = {name: edges[name] for name in self.groups if name in reached}
        values = {name: edge.value for name, edge in chosen.items()}
        return Genotype.of_choices({name: edge.op for name, edge in chosen.items()}, values)

    def network(self, genotype: Genotype, size: object = None, searched: bool = False) -> nn.Module:
        """The plain module with the weights of the search."""
        return derive(self.module, genotype)


def _edge(name: str, group: Group, A_bar: Tensor) -> Edge:
    chosen = [(group.candidates[k], a) for k, a in enumerate(A_bar[0].tolist()) if a]
    if len(chosen) != 1:
        raise InputError(
            f"Choice {name!r}: the method selects {len(chosen)} candidates, not one: choose another"
            " method"
        )
    ((op, value),) = chosen
    return Edge(op, 0, value)


def derive(module: nn.Module, genotype: Mapping[str, str] | Genotype) -> nn.Module:
    """A deep copy of a module in which each Choice is replaced by the candidate that `genotype`
    names for it.

    The weights are those of `module`: built anew, it gives the found architecture untrained.
    """
    return _derive(module, genotype, {})


def skeleton(module: nn.Module, genotype: Genotype) -> nn.Module:
    """The same without copying any weights: for counting."""
    # what stands in the memo is not copied: the skeleton shares the weights
    return _derive(module, genotype, {id(x): x for x in (*module.parameters(), *module.buffers())})


def _derive(
    module: nn.Module, genotype: Mapping[str, str] | Genotype, memo: dict[int, Any]
) -> nn.Module:
    pick = picker(module, genotype)
    # deepcopy takes what is in the memo wherever it meets the original
    for part in inside_out(module, pick):
        if isinstance(part, Choice):
            memo[id(part)] = _plain_choice(part, pick(part), memo)
        else:
            memo[id(part)] = _sum(part, pick, memo)
    return copy.deepcopy(module, memo)


def _plain_choice(choice: Choice, edge: Edge, memo: dict[int, Any]) -> nn.Module:
    # Choices inside the candidate are in the memo already: inside_out has them first
    plain = copy.deepcopy(choice.candidates[choice.names.index(edge.op)], memo)
    return plain if edge.value == 1 else Scaled(plain, edge.value)


def _sum(node: Node, pick: Pick, memo: dict[int, Any]) -> Sum:
    choices = cast("list[Choice]", list(node.choices))
    kept = {i: memo[id(choice)] for i, choice in enumerate(choices) if pick(choice).op != NONE}
    # a node must put something out: of nothing but `none` the first one, which is zero
    return Sum(kept or {0: memo[id(choices[0])]})


def picker(module: nn.Module, genotype: Mapping[str, str] | Genotype) -> Pick:
    """What a genotype says of each Choice; an InputError if it is not one of this module."""
    if isinstance(genotype, Genotype):
        genotype.choices()  # refuses other kinds
        edges = {name: cell.nodes[0][0] for name, cell in genotype.cells.items()}
    else:
        edges = {name: Edge(op, 0) for name, op in genotype.items()}
    names = row_names(module)
    for name in edges:
        if name not in names.values():
            raise unknown("Choice", name, names.values())

    def pick(choice: Choice) -> Edge:
        name = names[choice]
        if name not in edges:
            raise InputError(
                f"the genotype says nothing of Choice {name!r}: give one of"
                f" {', '.join(choice.names)}"
            )
        if edges[name].op not in choice.names:
            raise unknown(f"candidate of Choice {name!r}", edges[name].op, choice.names)
        return edges[name]

    return pick


def inside_out(module: nn.Module, pick: Pick) -> list[Choice | Node]:
    """The Choices and Nodes that a selection runs, each once and after all that is inside it."""
    found: list[Choice | Node] = []
    seen: set[int] = set()

    def walk(part: nn.Module) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        choice = part if isinstance(part, Choice) else None
        # of a Choice only what is selected is run, and only that is looked into
        for child in (
            [choice.candidates[choice.names.index(pick(choice).op)]] if choice else part.children()
        ):
            walk(child)
        if isinstance(part, Choice | Node):
            found.append(part)

    walk(module)
    return found


def row_name(choice: Choice) -> str:
    """Of a Choice whose rows are named."""
    assert choice.row is not None
    return choice.row.group


def name_rows(module: nn.Module) -> None:
    """Gives every Choice its row: of that name, or shared."""
    for choice, name in row_names(module).items():
        choice.row = Row(name, 0)


def row_names(module: nn.Module) -> dict[Choice, str]:
    """Choice -> name of its row: the one it shares, else where it stands, with the names of
    candidates on the way."""
    places = dict(_places(module))
    shared = {row_name(choice) for choice in places if choice.row}
    names: dict[Choice, str] = {}
    for choice, place in places.items():
        if choice.row and choice.row.edge:
            raise InputError(
                f"Choice {place!r} has row {choice.row.edge} of {choice.row.group!r}: share by name"
                " only"
            )
        if not choice.row and (place in shared or place in names.values()):
            raise InputError(
                f"two Choices are called {place!r}: rename the attribute, the candidate or what is"
                " shared"
            )
        names[choice] = row_name(choice) if choice.row else place
    return names


def _places(module: nn.Module) -> Iterator[tuple[Choice, str]]:
    """Each Choice once, with the first place where it stands, in the order of the module."""
    seen: set[int] = set()

    def walk(part: nn.Module, place: str) -> Iterator[tuple[Choice, str]]:
        if id(part) in seen:
            return
        seen.add(id(part))
        children: Mapping[str, nn.Module] = dict(part.named_children())
        if isinstance(part, Choice):
            yield part, place or ROOT
            children = dict(zip(part.names, part.candidates, strict=True))
        for name, child in children.items():
            yield from walk(child, f"{place}.{name}" if place else name)

    yield from walk(module, "")
