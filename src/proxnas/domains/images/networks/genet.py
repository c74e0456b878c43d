"""The networks of Genetic CNN (Xie, Yuille, ICCV 2017): stages of nodes, each a convolution, whose
connections are bits.

    a node reads the sum of those that are connected to it from before, or the input node if there
    are none; the output node reads the sum of the nodes that nothing else reads; a node without any
    connection is left out; a stage without any connection is its input and its output node

Input node, nodes and output node are 3x3 convolutions with their normalisation and ReLU. `cells` is
how many of them a node has in a row. Between stages the map is halved, and channels double.
"""

# C channels, K nodes of a stage

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from proxnas.cells.genotype import Genotype
from proxnas.cells.kinds import GENET_STAGES
from proxnas.domains.images.networks.chain import STRIDES, Halve
from proxnas.domains.images.networks.cnn import Size, sum_of
from proxnas.domains.images.operations import Norm, final_norm, search_norm

Inputs = Sequence[Sequence[tuple[int, float]]]
"""Of every node: the numbers of those that it reads, and their factors."""


def convolutions(C_in: int, C: int, number: int, norm: Norm, stride: int = 1) -> nn.Module:
    """A node."""
    layers: list[nn.Module] = []
    for i in range(number):
        # the first one changes the channels, and has the stride
        conv = nn.Conv2d(C if i else C_in, C, 3, 1 if i else stride, 1, bias=False)
        layers += [conv, norm(C), nn.ReLU()]
    return nn.Sequential(*layers)


def connected_nodes(inputs: Inputs) -> list[bool]:
    """Of every node whether it is connected to any other."""
    read = {i for node in inputs for i, _ in node}
    return [bool(node) or j in read for j, node in enumerate(inputs)]


def ends(inputs: Inputs) -> list[int]:
    """The nodes that the output node reads: connected ones that nothing else reads."""
    read = {i for node in inputs for i, _ in node}
    return [j for j, there in enumerate(connected_nodes(inputs)) if there and j not in read]


class DiscreteStage(nn.Module):
    """A stage whose connections are fixed."""

    def __init__(
        self, inputs: Inputs, C_in: int, C: int, number: int, norm: Norm, stride: int
    ) -> None:
        super().__init__()
        self.inputs, self.ends = inputs, ends(inputs)
        self.begin = convolutions(C_in, C, 1, norm, stride)
        self.nodes = nn.ModuleDict(
            {
                str(j): convolutions(C, C, number, norm)
                for j, there in enumerate(connected_nodes(inputs))
                if there
            }
        )
        self.end = convolutions(C, C, 1, norm)

    def forward(self, x: Tensor) -> Tensor:
        begin = self.begin(x)
        states: dict[int, Tensor] = {}
        for name, node in self.nodes.items():
            j = int(name)
            read = [states[i] if a == 1 else a * states[i] for i, a in self.inputs[j]]
            states[j] = node(sum_of(read) if read else begin)
        y: Tensor = self.end(sum_of([states[j] for j in self.ends]) if self.ends else begin)
        return y


StageBuilder = Callable[[int, int, int, int], nn.Module]
"""Makes a stage of (its number, C_in, C, stride)."""


class Genet(nn.Module):
    """Stages of C, 2C and 4C channels, the mean over the map, a linear classifier."""

    def __init__(self, size: Size, stage: StageBuilder) -> None:
        super().__init__()
        self.stages = nn.Sequential()
        C_in = size.image_channels
        for s in range(len(GENET_STAGES)):
            C = size.channels * 2**s
            if s:
                self.stages.append(Halve())
            self.stages.append(stage(s, C_in, C, 1 if s else STRIDES[size.stem]))
            C_in = C
        self.classifier = nn.Linear(C_in, size.classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.stages(x).mean((2, 3)))
        return logits


def genet_network(genotype: Genotype, size: Size, searched: bool = False) -> Genet:
    """The discrete network of a genotype; `searched`: normalised as in a search network."""
    norm = search_norm if searched else final_norm

    def stage(s: int, C_in: int, C: int, stride: int) -> nn.Module:
        cell = genotype.cells[GENET_STAGES[s].name]
        later = [[(e.input, e.value) for e in node if e.op != "none"] for node in cell.nodes]
        return DiscreteStage([[], *later], C_in, C, size.cells, norm, stride)

    return Genet(size, stage)
