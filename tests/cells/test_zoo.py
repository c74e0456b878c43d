"""The published cells: complete, readable, and of the sizes that they are known to have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from proxnas.cells import zoo
from proxnas.cells.designs import from_json
from proxnas.cells.reading import read_genotype
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.domains.images import networks
from proxnas.domains.images.networks.cnn import Size, forward_auxiliary
from support.places import ROOT

SIZES = json.loads((Path(__file__).parent / "published_sizes.json").read_text())
"""Counted with the public code: protocol -> millions of parameters, the same with auxiliary tower,
multiply-adds."""
PROTOCOLS = {
    "cifar": (Size(20, 36, 3, 10, auxiliary=True), 32),
    "imagenet": (Size(14, 48, 3, 1000, "imagenet", auxiliary=True), 224),
    "tinyimagenet": (Size(14, 48, 3, 200, "tinyimagenet", auxiliary=True), 64),
}
KNOWN = [(name, protocol) for name in SIZES["protocols"] for protocol in PROTOCOLS]
EVERYWHERE = {
    "NASP_12ops",
    "DARTS_V2",
    "GDAS_FRC",
}  # the others are held to all their figures by the slow tests
CNN = [name for name, entry in zoo.entries().items() if entry.genotype.kind == "cnn"]


@pytest.fixture(autouse=True)
def no_initial_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here looks at them, and drawing them takes half of the time even on the meta
    device."""
    for module in (nn.Conv2d, nn.Linear, nn.BatchNorm2d):
        monkeypatch.setattr(module, "reset_parameters", lambda self: None)


def slow(case: Any, quick: bool) -> Any:
    return pytest.param(*case, marks=[] if quick else [pytest.mark.slow])


def on_meta(name: str, size: Size) -> nn.Module:
    with torch.device("meta"):
        return networks.build_network(zoo.find_cell(name), size)


def in_millions(network: nn.Module, side: int) -> tuple[float, float, float]:
    everything = sum(w.numel() for w in network.parameters())
    return (
        parameters(network) / 1e6,
        everything / 1e6,
        multiply_adds(network, (3, side, side)) / 1e6,
    )


def close(known: Any) -> Any:
    """Equal when rounded as the figures were."""
    return (
        *(pytest.approx(x, abs=5.01e-4) for x in known[:2]),
        *(pytest.approx(x, abs=0.0501) for x in known[2:]),
    )


@pytest.mark.parametrize(
    ("name", "protocol"), [slow(k, k[1] == "cifar" or k[0] in EVERYWHERE) for k in KNOWN]
)
def test_parameters_of_published_cells(name: str, protocol: str) -> None:
    network = on_meta(name, PROTOCOLS[protocol][0])
    everything = sum(w.numel() for w in network.parameters())
    assert (parameters(network) / 1e6, everything / 1e6) == close(
        SIZES["protocols"][name][protocol][:2]
    )
    if protocol == "cifar":
        assert zoo.zoo_entry(name).params == parameters(network)


@pytest.mark.parametrize(("name", "protocol"), [slow(k, k[0] == "NASP_12ops") for k in KNOWN])
def test_multiply_adds_of_published_cells(name: str, protocol: str) -> None:
    size, side = PROTOCOLS[protocol]
    assert in_millions(on_meta(name, size), side) == close(SIZES["protocols"][name][protocol])


@pytest.mark.parametrize(
    ("name", "protocol", "cells", "channels", "params", "with_auxiliary", "adds"),
    [slow(case, case[0] in ("GDAS_V1", "NASNet_A_official")) for case in SIZES["others"]],
)
def test_published_cells_at_the_sizes_of_their_papers(
    name: str,
    protocol: str,
    cells: int,
    channels: int,
    params: float,
    with_auxiliary: float,
    adds: float,
) -> None:
    size, side = PROTOCOLS[protocol]
    network = on_meta(name, Size(cells, channels, 3, size.classes, size.stem, auxiliary=True))
    assert in_millions(network, side) == close((params, with_auxiliary, adds))


def test_multiply_adds_agree_with_a_count_by_hooks() -> None:
    """An independent count: out positions x window x channels in a group, summed over all layers
    that ran."""
    counted = 0

    def count(layer: nn.Module, _: Any, output: torch.Tensor) -> None:
        nonlocal counted
        if isinstance(layer, nn.Conv2d):
            height, width = layer.kernel_size
            counted += output[0].numel() * height * width * layer.in_channels // layer.groups
        elif isinstance(layer, nn.Linear):
            counted += layer.in_features * layer.out_features

    network = on_meta("GDAS_V1", Size(14, 50, 3, 1000, "imagenet")).eval()
    hooks = [module.register_forward_hook(count) for module in network.modules()]
    network(torch.empty(1, 3, 224, 224, device="meta"))
    for hook in hooks:
        hook.remove()
    assert counted == multiply_adds(network, (3, 224, 224))
    assert counted / 1e6 == pytest.approx(581.0, abs=0.05)  # as published


def test_params_in_the_zoo_are_those_of_the_cifar_network() -> None:
    """For cells without a known count; a wrong number is shown beside the right one: put that into
    zoo.json."""
    others = [name for name in CNN if name not in SIZES["protocols"]]
    counts = {name: parameters(on_meta(name, Size(20, 36, 3, 10))) for name in others}
    assert others and counts == {name: zoo.zoo_entry(name).params for name in others}


def test_params_of_recurrent_cells_follow_from_their_nodes() -> None:
    """Tied embedding and bias of 10,000 words, two matrices for the first node, two halves of one
    for each other."""
    for entry in zoo.entries().values():
        if entry.genotype.kind == "rnn":
            nodes = len(entry.genotype.cells["recurrent"].nodes)
            assert entry.params == 10_000 * 851 + (2 * 850) ** 2 + nodes * 850 * 2 * 850, entry.name


@pytest.mark.parametrize("name", CNN)
def test_every_cell_runs_on_odd_images(name: str) -> None:
    """With real numbers, whatever they are: the meta device takes five times as long."""
    network = networks.build_network(zoo.find_cell(name), Size(3, 16, 3, 7, auxiliary=True)).eval()
    with torch.no_grad():
        outputs = forward_auxiliary(network, torch.empty(2, 3, 33, 31))
    assert [tuple(x.shape) for x in outputs] == [(2, 7), (2, 7)]


def test_entries_say_where_they_come_from() -> None:
    assert len(zoo.entries()) >= 50
    for entry in zoo.entries().values():
        assert entry.published["source"] and isinstance(entry.params, int)
        figures = [
            key
            for key in entry.published
            if key.split("_")[-1] in ("error", "perplexity", "accuracy")
        ]
        assert not figures or entry.published["figures"], entry.name
        assert from_json(entry.genotype.to_json()) == entry.genotype


def test_names_are_found_whatever_their_case_and_near_ones_suggested() -> None:
    assert (
        zoo.find_cell("darts_v2")
        == zoo.find_cell("zoo:DARTS_V2")
        == read_genotype("zoo:DARTS_V2")
        == zoo.zoo_entry("DARTS_V2").genotype
    )
    with pytest.raises(
        InputError, match=r"unknown cell of the zoo 'darts_2': did you mean .*DARTS_V2"
    ):
        zoo.find_cell("darts_2")
    with pytest.raises(InputError, match="unknown cell of the zoo 'nosuch'"):
        read_genotype("zoo:nosuch")


# ---------------------------------------------------------------- command line


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def run(*argv: str) -> str:
        assert main(list(argv)) == 0
        return capsys.readouterr().out

    yield run


def test_zoo_lists_all_cells(run: Any) -> None:
    text = run("zoo")
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert set(zoo.entries()) <= rows.keys()
    assert {"7.36M", "7.40M", "2.44±0.04"} <= set(rows["NASP_12ops"].split())


def test_zoo_lists_json(run: Any) -> None:
    rows = json.loads(run("zoo", "--json"))
    assert [row["name"] for row in rows] == list(zoo.entries())
    assert all({"name", "kind", "params", "published"} <= row.keys() for row in rows)
    assert {row["kind"] for row in rows} == {"cnn", "rnn", "network"}


def test_zoo_shows_a_cell(run: Any) -> None:
    text = run("zoo", "DARTS_V2")
    assert run("show", "zoo:DARTS_V2").strip() in text
    assert "quark0/darts:cnn/genotypes.py" in text and "3,349,342" in text


def test_zoo_shows_a_cell_as_json_that_can_be_read_back(run: Any, tmp_path: Path) -> None:
    shown = json.loads(run("zoo", "RNN_GDAS", "--json"))
    (tmp_path / "cell.json").write_text(json.dumps(shown["genotype"]))
    assert shown["name"] == "RNN_GDAS" and read_genotype(tmp_path / "cell.json") == zoo.find_cell(
        "RNN_GDAS"
    )


def test_an_unknown_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "GDAS_FCR"]) == 2
    assert (
        capsys.readouterr().err
        == "proxnas: error: unknown cell of the zoo 'GDAS_FCR': did you mean GDAS_FRC or GDAS_FG or"
        " GDAS_V1?\n"
    )


def test_the_package_ships_the_table() -> None:
    assert '"proxnas.cells" = ["*.json"]' in (ROOT / "pyproject.toml").read_text()
