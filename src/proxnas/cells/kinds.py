"""The kinds of cells: which operations and cells each has, and where its first node stands."""

from __future__ import annotations

from typing import NamedTuple

from proxnas.common.plugins import of_others

RECURRENT = "rnn"
"""Kind of the cells of language models."""
BY_HAND = "network"
"""Kind of what has a name in place of cells: designs.py."""

CHAIN_ENTRIES = ("conv_3x3", "conv_5x5", "sep_conv_3x3", "sep_conv_5x5")
CHAIN_BODIES = (
    *("res_one_3x3", "res_3x3", "res_3x3_se", "res_5x5", "res_group_3x3", "res_sep_3x3"),
    *("bottleneck_2", "bottleneck_2_se", "bottleneck_4", "skip_connect"),
)
MOBILE_FIRST = tuple(
    f"mb{expansion}_{kernel}x{kernel}{excite}"
    for kernel in (3, 5, 7)
    for expansion in (3, 6)
    for excite in ("", "_se")
)
"""Kinds of inverted residual blocks."""
SKIP = "skip_connect"
MOBILE_LATER = (*MOBILE_FIRST, SKIP)
MOBILE_BLOCKS = (4, 4, 4, 4, 4, 1)
"""Of every stage; the first of them cannot be skipped."""


class Stage(NamedTuple):
    """Of a network of Genetic CNN."""

    name: str
    nodes: int


GENET_STAGES = (Stage("stage1", 3), Stage("stage2", 4), Stage("stage3", 5))
"""As the paper has them on CIFAR-10."""
OPERATIONS: dict[str, tuple[str, ...]] = {
    "cnn": (
        *(
            "none",
            "skip_connect",
            "max_pool_2x2",
            "max_pool_3x3",
            "max_pool_5x5",
            "max_pool_7x7",
            "avg_pool_3x3",
        ),
        *(
            "sep_conv_3x3",
            "sep_conv_5x5",
            "sep_conv_7x7",
            "dil_conv_3x3",
            "dil_conv_5x5",
            "dil_sep_conv_5x5",
        ),
        *("conv_1x1", "conv_3x3", "conv_5x5", "conv_3x1_1x3", "conv_7x1_1x7"),
        *("group_conv_3x1_1x3", "max_pool_3x3_norm"),  # of GDAS' fixed reduction cell
    ),
    RECURRENT: ("none", "tanh", "relu", "sigmoid", "identity"),
    "nasbench201": ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"),
    "chain": (*CHAIN_ENTRIES, *CHAIN_BODIES),
    "mobile": MOBILE_LATER,
    "genet": ("none", SKIP),
}
CELLS: dict[str, tuple[str, ...]] = {
    "cnn": ("normal", "reduce"),
    RECURRENT: ("recurrent",),
    "nasbench201": ("cell",),
    "chain": ("chain",),
    "mobile": ("mobile",),
    "genet": tuple(stage.name for stage in GENET_STAGES),
}
CUSTOM = "custom"
"""The kind of any module that holds Choices: it has cells and operations of its own."""
KINDS = (*OPERATIONS, CUSTOM)
CHAIN_STAGES = 3
CHAINS: dict[str, tuple[tuple[str, ...], ...]] = {
    "chain": (CHAIN_ENTRIES, CHAIN_BODIES) * CHAIN_STAGES,
    "mobile": tuple(
        MOBILE_LATER if place else MOBILE_FIRST
        for blocks in MOBILE_BLOCKS
        for place in range(blocks)
    ),
}
"""Kinds in which every node reads the one before it: what each of their nodes may be."""
COMPLETE: dict[str, dict[str, tuple[int, tuple[int, ...]]]] = {
    "nasbench201": {"cell": (3, (3,))},
    "genet": {stage.name: (stage.nodes - 1, tuple(range(stage.nodes))) for stage in GENET_STAGES},
}
"""Kinds in which every node has an edge from every state before it, absent ones being `none`: the
nodes of each cell, and its output."""
FIRST_NODE: dict[str, int] = {
    **{"cnn": 2, RECURRENT: 1, "nasbench201": 1, "genet": 1, CUSTOM: 1},
    **dict.fromkeys(CHAINS, 1),
}


def operations_of(kind: str) -> tuple[str, ...]:
    """What an edge of such a cell may be; in cells of images also what other packages add (entry
    point `proxnas.operations`)."""
    return (*OPERATIONS[kind], *of_others("operations")) if kind == "cnn" else OPERATIONS[kind]
