"""genotype.py: every valid cell survives the way out and back in; everything else is one clear
line."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.cells.genotype import MAX_BYTES, Genotype
from proxnas.cells.kinds import CELLS, CHAINS, COMPLETE, FIRST_NODE, OPERATIONS
from proxnas.cells.parts import Cell, Edge
from proxnas.cells.reading import read_genotype
from proxnas.common.errors import InputError
from support.places import SHARED

PUBLISHED = SHARED / "facts" / "cells.json"
NB201 = (
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|"
    "+|skip_connect~0|nor_conv_3x3~1|skip_connect~2|"
)
HUGE = 10**400


@st.composite
def genotypes(draw: st.DrawFn) -> Genotype:
    kind = draw(st.sampled_from(sorted(OPERATIONS)))
    space = draw(st.none() | st.text(st.characters(categories=("L", "N", "P", "S")), max_size=8))
    return Genotype(kind, {name: draw(_cells(kind, name)) for name in CELLS[kind]}, space)


@st.composite
def _cells(draw: st.DrawFn, kind: str, name: str) -> Cell:
    ops = st.sampled_from(OPERATIONS[kind])
    values = st.just(1.0) | st.floats(allow_nan=False, allow_infinity=False)
    if kind in CHAINS:
        kinds = CHAINS[kind]
        blocks = [Edge(draw(st.sampled_from(ops)), i, draw(values)) for i, ops in enumerate(kinds)]
        return Cell(tuple((block,) for block in blocks), (len(kinds),))
    first = FIRST_NODE[kind]

    def node(index: int) -> tuple[Edge, ...]:
        if kind in COMPLETE:  # one edge from every state before
            return tuple(Edge(draw(ops), i, draw(values)) for i in range(index))
        edges = st.builds(Edge, ops, st.integers(0, index - 1), values)
        return tuple(draw(st.lists(edges, min_size=1, max_size=1 if kind == "rnn" else 4)))

    if kind in COMPLETE:
        count, concat = COMPLETE[kind][name]
        return Cell(tuple(node(first + n) for n in range(count)), concat)
    count = draw(st.integers(1, 6))
    nodes = tuple(node(first + n) for n in range(count))
    states = st.integers(0, first + count - 1)
    return Cell(nodes, tuple(draw(st.lists(states, min_size=1, unique=True))))


def darts(**changes: Any) -> dict[str, Any]:
    """A small valid genotype as JSON data, some of it replaced."""
    cell = {
        "nodes": [[["sep_conv_3x3", 0], ["skip_connect", 1]], [["max_pool_3x3", 2]]],
        "concat": [2, 3],
    }
    return {
        "schema": 1,
        "kind": "cnn",
        "space": None,
        "cells": {"normal": cell, "reduce": cell},
    } | changes


def normal(**changes: Any) -> dict[str, Any]:
    """The same, with parts of the normal cell replaced."""
    data = copy.deepcopy(darts())
    data["cells"]["normal"] |= changes
    return data


def rnn(nodes: Any, concat: Any = (1,)) -> dict[str, Any]:
    return darts(kind="rnn", cells={"recurrent": {"nodes": nodes, "concat": concat}})


def nb201(nodes: Any, concat: Any = (3,)) -> dict[str, Any]:
    return darts(kind="nasbench201", cells={"cell": {"nodes": nodes, "concat": concat}})


@given(genotypes())
@settings(deadline=None)
def test_json_round_trip(genotype: Genotype) -> None:
    text = genotype.to_json()
    back = Genotype.from_json(text)
    assert back == genotype
    assert hash(back) == hash(genotype)
    assert back.to_json() == text
    assert pickle.loads(pickle.dumps(genotype)) == copy.deepcopy(genotype) == genotype


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(HUGE) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


def _parsed_or_refused(text: str) -> None:
    try:
        Genotype.from_json(text)
    except InputError as error:
        assert str(error).isprintable() and len(str(error)) < 600


@given(json_values | st.text())
@settings(deadline=None)
def test_fuzz_any_value(value: Any) -> None:
    _parsed_or_refused(json.dumps(value))
    _parsed_or_refused(str(value))
    with pytest.raises(InputError):
        Genotype.from_string(str(value))


@given(genotypes(), st.data(), json_values)
@settings(deadline=None)
def test_fuzz_one_part_replaced(genotype: Genotype, data: st.DataObject, value: Any) -> None:
    tree = json.loads(genotype.to_json())
    where: Any = tree
    for _ in range(data.draw(st.integers(0, 5))):
        key = data.draw(
            st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where)))
        )
        if not isinstance(where[key], dict | list) or not where[key]:
            break
        where = where[key]
    where[
        data.draw(st.sampled_from(sorted(where) if isinstance(where, dict) else range(len(where))))
    ] = value
    _parsed_or_refused(json.dumps(tree))


@given(
    st.sampled_from([None, "cnn", "rnn", "nasbench201"]),
    st.dictionaries(
        st.sampled_from(
            [
                "normal",
                "normal_nodes",
                "normal_concat",
                "reduce",
                "reduce_nodes",
                "recurrent",
                "concat",
            ]
        ),
        json_values
        | st.lists(
            st.lists(st.sampled_from(["tanh", "skip_connect", 0, 1, []]), max_size=3), max_size=4
        ),
    ),
)
@settings(deadline=None)
def test_fuzz_published_form(kind: str | None, data: dict[str, Any]) -> None:
    _parsed_or_refused(json.dumps(data | ({"kind": kind} if kind else {})))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "a genotype is a JSON object"),
        (None, "a genotype is a JSON object"),
        ({}, "cell normal is missing"),
        (darts(schema=2), "unknown schema version 2"),
        (darts(schema=True), "unknown schema version True"),
        (darts(schema=None), "unknown schema version None"),
        (darts(kind="cn"), "unknown kind 'cn': did you mean cnn"),
        (darts(kind=["cnn"]), "kind is one of cnn, rnn, nasbench201"),
        ({"schema": 1, "cells": {}}, "unknown kind ''"),
        (darts(space=3), "space is a printable name or null"),
        (darts(space="a\nb"), "space is a printable name or null"),
        (darts(cells=None), "cells is an object"),
        (darts(cells={"normal": 1}), "each an object with nodes and concat"),
        (darts(cells={"normal": darts()["cells"]["normal"]}), "cell reduce is missing"),
        (
            darts(cells=darts()["cells"] | {"norm": {}}),
            "unknown cell of kind cnn 'norm': did you mean normal",
        ),
        (darts(kind="rnn"), "unknown cell of kind rnn 'normal': choose one of recurrent"),
        (normal(nodes=[]), "cell normal: nodes is a list of at least one node"),
        (normal(nodes=None), "cell normal: nodes is a list of at least one node"),
        (normal(nodes=["sep"]), "cell normal, node 2: a node is a list of edges"),
        (normal(nodes=[[]]), "cell normal, node 2 has no edges"),
        (normal(nodes=[["skip_connect", 0]]), "cell normal, node 2: an edge is [operation, input]"),
        (normal(nodes=[[["skip_connect"]]]), "cell normal, node 2: an edge is [operation, input]"),
        (normal(nodes=[[[1, 0]]]), "cell normal, node 2: an edge is [operation, input]"),
        (
            normal(nodes=[[["skip_connect", 0, 1, 1]]]),
            "cell normal, node 2: an edge is [operation, input]",
        ),
        (
            normal(nodes=[[["sep_conv_3x4", 0]]]),
            "cell normal, node 2: unknown operation 'sep_conv_3x4': did you mean",
        ),
        (normal(nodes=[[["x" * 5000, 0]]]), "cell normal, node 2: unknown operation 'xxx"),
        (
            normal(nodes=[[["nor_conv_3x3", 0]]]),
            "cell normal, node 2: unknown operation 'nor_conv_3x3'",
        ),
        (
            normal(nodes=[[["skip_connect", 2]]]),
            "cell normal, node 2: skip_connect reads state 2, allowed are 0 to 1",
        ),
        (normal(nodes=[[["skip_connect", -1]]]), "reads state -1, allowed are 0 to 1"),
        (normal(nodes=[[["skip_connect", HUGE]]]), "allowed are 0 to 1"),
        (
            normal(nodes=[[["skip_connect", True]]]),
            "the input of 'skip_connect' is the whole number of a state, not True",
        ),
        (normal(nodes=[[["skip_connect", 0.0]]]), "the whole number of a state, not 0.0"),
        (normal(nodes=[[["skip_connect", "0"]]]), "the whole number of a state, not '0'"),
        (
            normal(nodes=[[["skip_connect", 0, "1"]]]),
            "the value of 'skip_connect' is a finite number, not '1'",
        ),
        (normal(nodes=[[["skip_connect", 0, True]]]), "is a finite number, not True"),
        (normal(nodes=[[["skip_connect", 0, HUGE]]]), "is a finite number, not 1000"),
        (normal(nodes=[[["skip_connect", 0, float("nan")]]]), "is a finite number, not nan"),
        (normal(nodes=[[["skip_connect", 0, float("inf")]]]), "is a finite number, not inf"),
        (normal(concat=[]), "cell normal: concat is a list of at least one state"),
        (normal(concat=3), "cell normal: concat is a list of at least one state"),
        (normal(concat=[2, 4]), "cell normal: concat names state 4, allowed are 0 to 3"),
        (normal(concat=[-1]), "cell normal: concat names state -1"),
        (normal(concat=[2, 2]), "concat names state 2, allowed are 0 to 3, each once"),
        (normal(concat=[True]), "concat names state True"),
        (normal(concat=[[]]), "concat names state []"),
        (rnn([[]]), "cell recurrent, node 1 has no edges"),
        (
            rnn([[["tanh", 0], ["relu", 0]]]),
            "cell recurrent, node 1 has 2 edges: a node of an rnn cell has one",
        ),
        (rnn([[["tanh", 1]]]), "cell recurrent, node 1: tanh reads state 1, allowed are 0 to 0"),
        (nb201([[["none", 0]]], [1]), "a NAS-Bench-201 cell has 3 nodes (not 1)"),
        (
            nb201([[["none", 0]], [["none", 0]]]),
            "cell cell, node 2 needs one edge from each of the states 0 to 1",
        ),
        (
            nb201([[["none", 0]], [["none", 0], ["none", 0]]]),
            "cell cell, node 2 needs one edge from each",
        ),
        (
            {"normal": [["skip_connect", 0]] * 3},
            "cell normal: 3 edges in a flat list do not make 2 a node",
        ),
        ({"normal": "x"}, "cell normal: nodes is a list of at least one node"),
        (
            {"normal_nodes": [[]], "normal_concat": [2], "reduce": []},
            "cell reduce: nodes is a list of at least one",
        ),
        (
            {"normal_nodes": [[]], "normal_concat": [2], "reduce_nodes": [[]]},
            "cell normal, node 2 has no edges",
        ),
        (
            {"recurrent": [["tanh", 0]]},
            "cell recurrent: concat is a list of at least one state, not None",
        ),
        ({"kind": "convnet", "normal": []}, "unknown kind 'convnet'"),
        ({"kind": "nasbench201"}, "cell cell is missing"),
    ],
)
def test_malformed_data(data: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Genotype.from_json(json.dumps(data))
    assert message in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value (line 1, column 1)"),
        ('{"schema": 1,\n  "kind" "cnn"}', "not JSON: Expecting ':' delimiter (line 2, column 10)"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("9" * 5000, "a number of more than 4300 digits"),
        ('{"schema": 1, "schema": 2, "cells": {}}', "unknown schema version 2"),
        ("NaN", "a genotype is a JSON object, not nan"),
    ],
)
def test_malformed_text(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as caught:
        Genotype.from_json(text)
    assert message in str(caught.value)
    path = tmp_path / "cell.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_genotype(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_is_immutable_and_comparable() -> None:
    genotype = Genotype.from_json(json.dumps(darts()))
    with pytest.raises(TypeError):
        genotype.cells["normal"] = genotype.cells["reduce"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        genotype.kind = "rnn"  # type: ignore[misc]
    assert genotype != dataclasses.replace(genotype, space="darts7")
    assert len({genotype, Genotype.from_json(genotype.to_json())}) == 1


def test_lists_become_tuples_and_integers_factors() -> None:
    cell = Cell([[["tanh", 0, 2]]], [1])  # type: ignore[arg-type]
    assert Genotype("rnn", {"recurrent": cell}).cells["recurrent"] == Cell(
        ((Edge("tanh", 0, 2.0),),), (1,)
    )


def test_json_is_one_node_a_line_and_omits_factors_of_one() -> None:
    cell = Cell(((Edge("tanh", 0),), (Edge("relu", 1, 0.25),)), (1, 2))
    text = Genotype("rnn", {"recurrent": cell}, "rnn").to_json()
    assert '        [["tanh", 0]],\n        [["relu", 1, 0.25]]\n' in text
    assert json.loads(text)["schema"] == 1


def test_nasbench201_string() -> None:
    genotype = Genotype.from_string(f" {NB201}\n")
    assert genotype.to_string() == NB201
    assert genotype.cells["cell"].nodes[1] == (Edge("nor_conv_3x3", 0), Edge("avg_pool_3x3", 1))
    shuffled = "|none~0|+|none~1|skip_connect~0|+|none~2|none~1|none~0|"
    assert (
        Genotype.from_string(shuffled).to_string()
        == "|none~0|+|skip_connect~0|none~1|+|none~0|none~1|none~2|"
    )


@given(st.lists(st.sampled_from(OPERATIONS["nasbench201"]), min_size=6, max_size=6))
def test_nasbench201_round_trip(ops: list[str]) -> None:
    text = "|{}~0|+|{}~0|{}~1|+|{}~0|{}~1|{}~2|".format(*ops)
    assert Genotype.from_json(Genotype.from_string(text).to_json()).to_string() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("|", "not a NAS-Bench-201 string"),
        ("|none~0", "not a NAS-Bench-201 string"),
        ("|none~0|+||", "not a NAS-Bench-201 string"),
        ("|none~x|", "not a NAS-Bench-201 string"),
        ("|none~0|", "3 nodes (not 1)"),
        (
            NB201.replace("avg_pool_3x3", "avg_pool"),
            "cell cell, node 2: unknown operation 'avg_pool': did you mean",
        ),
        (
            NB201.replace("~2", "~3"),
            "cell cell, node 3: skip_connect reads state 3, allowed are 0 to 2",
        ),
        (NB201 + "+" + NB201, "node 4 needs one edge from each of the states 0 to 3"),
    ],
)
def test_malformed_nasbench201_string(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_genotype(text)
    assert message in str(caught.value)


def test_to_string_refuses_what_it_cannot_say() -> None:
    with pytest.raises(InputError, match="not one of kind cnn"):
        Genotype.from_json(json.dumps(darts())).to_string()
    cell = Genotype.from_string(NB201).cells["cell"]
    weighted = Cell(((cell.nodes[0][0]._replace(value=0.5),), *cell.nodes[1:]), cell.concat)
    with pytest.raises(InputError, match="cannot hold the factors"):
        Genotype("nasbench201", {"cell": weighted}).to_string()


def test_read_accepts_folder_file_and_string(tmp_path: Path) -> None:
    genotype = Genotype.from_string(NB201)
    (tmp_path / "genotype.json").write_text(genotype.to_json())
    (tmp_path / "cell.txt").write_text("\ufeff" + NB201 + "\n", encoding="utf-8")
    for source in (tmp_path, tmp_path / "genotype.json", str(tmp_path / "cell.txt"), NB201):
        assert read_genotype(source) == genotype


def test_read_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * (MAX_BYTES + 1))
    (tmp_path / "binary.json").write_bytes(b'{"kind": "\xff"}')
    (tmp_path / "string.txt").write_text("|nor~0|")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "genotype.json").write_text("{}")
    (tmp_path / "two\nlines").write_text("{}")
    expected = {
        "missing.json": "no such file",
        "": "genotype.json: no such file: give a run folder",
        "large.json": "too large to be a genotype",
        "binary.json": "not UTF-8 text (byte 10)",
        "string.txt": "cell cell, node 1: unknown operation 'nor'",
        "run": "run/genotype.json: cell normal is missing",
        "string.txt/x": "Not a directory",
        "x" * 5000: "File name too long",
        "nul\0": "null byte",
        "two\nlines": "cell normal is missing",
    }
    for name, message in expected.items():
        with pytest.raises(InputError) as caught:
            read_genotype(os.path.join(tmp_path, name))
        assert message in str(caught.value) and str(tmp_path) in str(caught.value)
        assert str(caught.value).isprintable()


def _published() -> list[Any]:
    if not PUBLISHED.is_file():
        return [
            pytest.param(
                "",
                {},
                marks=pytest.mark.skip(reason=f"no table of published cells at {PUBLISHED.name}"),
            )
        ]
    fixed = pytest.mark.skip(reason="its reduction cell is a fixed module, not a searched cell")
    table = {
        name: cell for name, cell in json.loads(PUBLISHED.read_text()).items() if name != "_meta"
    }
    return [
        pytest.param(n, c, id=n, marks=[fixed] if c.get("reduce_fixed") else [])
        for n, c in table.items()
    ]


@pytest.mark.parametrize(("name", "data"), _published())
def test_published_cells_read(name: str, data: dict[str, Any]) -> None:
    genotype = Genotype.from_json(json.dumps(data))
    assert Genotype.from_json(genotype.to_json()) == genotype
    for cell_name, cell in genotype.cells.items():
        printed = data.get(f"{cell_name}_nodes") or [[edge] for edge in data[cell_name]]
        assert len(cell.nodes) == len(printed)
        if all(printed):
            assert [[list(edge[:2]) for edge in node] for node in cell.nodes] == printed


def test_published_flat_list_without_kind() -> None:
    flat = [["sep_conv_3x3", 0], ["skip_connect", 1], ["max_pool_3x3", 2], ["none", 1]]
    data = {"normal": flat, "normal_concat": [2, 3], "reduce": flat, "reduce_concat": [3]}
    genotype = Genotype.from_json(json.dumps(data))
    assert genotype.kind == "cnn"
    assert genotype.cells["reduce"] == Cell(
        (
            (Edge("sep_conv_3x3", 0), Edge("skip_connect", 1)),
            (Edge("max_pool_3x3", 2), Edge("none", 1)),
        ),
        (3,),
    )


def test_published_empty_node_becomes_none_and_loses_its_edges() -> None:
    nodes = [[["sep_conv_3x3", 0]], [], [["skip_connect", 3], ["sep_conv_3x3", 1]]]
    data = {
        "normal_nodes": nodes,
        "normal_concat": [2, 4],
        "reduce_nodes": nodes,
        "reduce_concat": [2, 4],
    }
    cell = Genotype.from_json(json.dumps(data)).cells["normal"]
    assert cell.nodes[1:] == ((Edge("none", 0),), (Edge("sep_conv_3x3", 1),))


def test_published_leaves() -> None:
    data = {"recurrent": [["tanh", 0], ["relu", 1], ["tanh", 1]], "concat": "leaves"}
    assert Genotype.from_json(json.dumps(data)).cells["recurrent"].concat == (2, 3)


def test_a_file_full_of_nodes_is_read_in_linear_time() -> None:
    data = {"normal_nodes": [[]] * 150_000, "normal_concat": [2] * 150_000}
    with pytest.raises(InputError):
        Genotype.from_json(json.dumps(data))


def test_needs_no_torch() -> None:
    code = (
        "import sys, proxnas.cells.genotype, proxnas.report.cell; sys.exit('torch' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert (
        subprocess.run([sys.executable, "-c", code], check=False, env=environment).returncode == 0
    )
