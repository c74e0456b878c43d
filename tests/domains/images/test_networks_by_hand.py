"""Networks made by hand: their sizes, their forms for small and large images, and the way from
training to a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from proxnas.cells import zoo
from proxnas.cells.designs import DESIGNS, Design, from_json
from proxnas.cells.reading import read_architecture
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.core.size.complexity import multiply_adds, parameters
from proxnas.domains.images import networks
from proxnas.domains.images.model import load_model
from proxnas.domains.images.networks.baselines import HandMade
from proxnas.domains.images.networks.branches import Dense, Shuffled, densenet
from proxnas.domains.images.networks.cnn import Size, forward_auxiliary

IMAGENET = {
    "ResNet18": (11_689_512, 1814.1),
    "MobileNet": (4_231_976, 568.7),
    "GoogLeNet": (6_624_904, 1498.4),
    "ShuffleNetV2": (2_278_604, 144.9),
    "ShuffleNetV2_2x": (7_393_996, 583.3),
    "MobileNetV2": (3_504_872, 300.8),
    "MnasNet_A1": (3_887_038, 311.6),
    "MnasNet_B1": (4_383_312, 314.4),
    "ProxylessNAS_mobile": (4_080_512, 320.4),
    "ProxylessNAS_CPU": (4_361_648, 439.2),
    "ProxylessNAS_GPU": (7_119_848, 465.3),
    "FBNet_A": (4_321_464, 249.9),
    "FBNet_B": (4_813_048, 296.6),
    "FBNet_C": (5_572_200, 385.0),
    "SPOS": (3_346_088, 318.7),
}
"""Parameters and millions of multiply-adds of 224 x 224 pixels and 1,000 classes, as widely
published."""


def on_meta(name: str, stem: str, classes: int = 10, image_channels: int = 3) -> HandMade:
    with torch.device("meta"):
        network = networks.build_network(Design(name), Size(1, 1, image_channels, classes, stem))
    assert isinstance(network, HandMade)
    return network


def shallow(name: str, stem: str, classes: int = 10, image_channels: int = 3) -> HandMade:
    """With real weights, whatever they are, since the meta device takes longer to run; a DenseNet
    has a few layers: it has the same forms."""
    size = Size(1, 1, image_channels, classes, stem)
    if name == "DenseNet_BC":
        return densenet(size, depth=10, k=4)
    network = networks.build_network(Design(name), size)
    assert isinstance(network, HandMade)
    return network


@pytest.fixture(autouse=True)
def no_initial_weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "trained" not in request.fixturenames:
        monkeypatch.setattr(nn.init, "kaiming_normal_", lambda weight, **_: weight)


@pytest.mark.parametrize("name", IMAGENET)
def test_parameters_and_multiply_adds_of_the_imagenet_form(name: str) -> None:
    network = on_meta(name, "imagenet", 1000)
    assert parameters(network) == IMAGENET[name][0]
    assert multiply_adds(network, (3, 224, 224)) / 1e6 == pytest.approx(IMAGENET[name][1], abs=0.06)


@pytest.mark.parametrize("name", IMAGENET)
def test_what_the_papers_say_of_their_size(name: str) -> None:
    """To a tenth of a million, or to 3.5%; FBNet-B has 7% more than its paper says (its notes)."""
    published = zoo.zoo_entry(name).published
    close = {"FBNet_B": 0.07, "ShuffleNetV2_2x": 0.5}.get(name, 0.035)
    if "imagenet_params" in published:
        assert IMAGENET[name][0] == pytest.approx(published["imagenet_params"], rel=close)
    if "imagenet_multiply_adds" in published:
        assert IMAGENET[name][1] * 1e6 == pytest.approx(published["imagenet_multiply_adds"], 0.03)


def test_parameters_of_densenet_follow_from_its_layers() -> None:
    """25.6M as published: a convolution to 80 channels, three blocks of 31 layers of 40, two
    halvings between."""
    expected, C = 3 * 80 * 9, 80
    for block in range(3):
        if block:
            expected, C = expected + 2 * C + C * (C // 2), C // 2
        for _ in range(31):
            expected, C = expected + 2 * C + C * 160 + 2 * 160 + 160 * 40 * 9, C + 40
    expected += 2 * C + (C + 1) * 10
    assert expected == parameters(on_meta("DenseNet_BC", "cifar")) == 25_624_430


@pytest.mark.parametrize("name", DESIGNS)
def test_the_zoo_has_them_all_with_their_size_on_cifar(name: str) -> None:
    entry = zoo.zoo_entry(f"zoo:{name.lower()}")
    assert (
        entry.genotype == Design(name) == read_architecture(f"zoo:{name}")
        and entry.genotype.kind == "network"
    )
    assert entry.params == parameters(on_meta(name, "cifar"))


@pytest.mark.parametrize("name", DESIGNS)
def test_the_stem_decides_how_often_the_map_is_halved(name: str) -> None:
    last = {}
    for stem, sides in {"imagenet": [224], "tinyimagenet": [64], "cifar": [32, 8]}.items():
        network = shallow(name, stem).eval()
        with torch.no_grad():
            maps = [network.features(torch.zeros(1, 3, side, side)) for side in sides]
        last[stem] = [tuple(x.shape[2:]) for x in maps]
    small = name == "DenseNet_BC"  # its three blocks halve once less
    assert last == {
        "imagenet": [(14, 14) if small else (7, 7)],
        "tinyimagenet": [(8, 8) if small else (4, 4)],
        "cifar": [(8, 8), (2, 2)] if small else [(4, 4), (1, 1)],
    }


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_every_network_reads_odd_grey_images(name: str, stem: str) -> None:
    network = shallow(name, stem, classes=7, image_channels=1).train()
    with torch.no_grad():
        logits, auxiliary = forward_auxiliary(network, torch.zeros(2, 1, 33, 31))
    assert logits.shape == (2, 7) and auxiliary is None


def test_halves_are_shuffled_channel_by_channel() -> None:
    unit = Shuffled(4, 4, 1).eval()
    x = torch.arange(4.0).view(1, 4, 1, 1).expand(1, 4, 2, 2)
    convolved = unit.convolved(x[:, 2:])
    y = unit(x)
    assert torch.equal(y[:, 0::2], x[:, :2]) and torch.equal(y[:, 1::2], convolved)


def test_a_dense_layer_keeps_what_it_read() -> None:
    x = torch.randn(2, 6, 4, 4)
    y = Dense(6, 3).eval()(x)
    assert y.shape == (2, 9, 4, 4) and torch.equal(y[:, :6], x)


def test_a_design_is_written_and_read_like_a_genotype(tmp_path: Path) -> None:
    design = Design("ResNet18")
    (tmp_path / "genotype.json").write_text(design.to_json())
    assert (
        from_json(design.to_json())
        == design
        == read_architecture(tmp_path)
        == read_architecture(str(tmp_path / "genotype.json"))
    )
    with pytest.raises(InputError, match="unknown network 'ResNet19': did you mean ResNet18"):
        from_json(design.to_json().replace("18", "19"))
    with pytest.raises(InputError, match="damaged"):
        from_json('{"schema": 2, "kind": "network", "name": "ResNet18"}')


@pytest.mark.parametrize("command", ["show", "query"])
def test_there_is_no_cell_to_show(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "genotype.json").write_text(Design("ResNet18").to_json())
    more = ["--table", "t.csv"] if command == "query" else []
    for cell in ("zoo:ResNet18", str(tmp_path)):
        assert main([command, cell, *more]) == 2
        assert "made by hand" in capsys.readouterr().err


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, str]:
    """A run folder of ShuffleNet after an epoch, and the data."""
    stripes = str(request.getfixturevalue("stripes"))
    run = tmp_path_factory.mktemp("hand") / "run"
    flags = ["--epochs", "1", "--batch-size", "36", "--threads", "1", "--device", "cpu", "--quiet"]
    assert main(["train", "zoo:ShuffleNetV2", stripes, *flags, "--run", str(run)]) == 0
    return run, stripes


def test_it_trains_like_any_cell(trained: tuple[Path, str]) -> None:
    run, _ = trained
    result = json.loads((run / "result.json").read_text())
    assert result["genotype"] == {"schema": 1, "kind": "network", "name": "ShuffleNetV2"}
    assert (
        result["cell"] == "zoo:ShuffleNetV2"
        and 0 <= result["test_accuracy"] <= 1
        and result["space"] is None
    )
    assert (
        result["params"] == parameters(load_model(run).network) == 1_255_222
    )  # two classes, grey images
    assert load_model(run).genotype == Design("ShuffleNetV2")


def test_it_is_tested_and_described_like_any_cell(
    trained: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained
    assert main(["test", str(run), data, "--device", "cpu", "--threads", "1"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert main(["export", str(run), "--card", str(tmp_path / "card.md"), "--threads", "1"]) == 0
    assert "ShuffleNetV2, made by hand" in (tmp_path / "card.md").read_text()


@pytest.mark.slow
def test_it_is_exported_like_any_cell(trained: tuple[Path, str], tmp_path: Path) -> None:
    program = tmp_path / "model.pt2"
    assert main(["export", str(trained[0]), "--torch", str(program), "--threads", "1"]) == 0
    assert program.stat().st_size > 1_000_000  # checked on images before it was put there


def test_a_finished_run_is_resumed_by_what_its_folder_says(trained: tuple[Path, str]) -> None:
    run, data = trained
    before = (run / "result.json").read_bytes()
    assert main(["train", "zoo:ShuffleNetV2", data, "--resume", "--run", str(run), "--quiet"]) == 0
    assert (run / "result.json").read_bytes() == before


@pytest.mark.parametrize("flag", ["--cells", "--channels", "--auxiliary", "--drop-path"])
def test_flags_of_cells_are_refused(
    flag: str, stripes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "0.5" if flag in ("--auxiliary", "--drop-path") else "4"
    assert (
        main(["train", "zoo:ResNet18", str(stripes), flag, value, "--run", str(tmp_path / "run")])
        == 2
    )
    assert f"{flag} {value}: is for cells, not for zoo:ResNet18" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_dry_run_names_the_network(stripes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--batch-size", "4", "--threads", "1", "--device", "cpu", "--dry-run"]
    assert main(["train", "zoo:ShuffleNetV2", str(stripes), *flags]) == 0
    assert "network: ShuffleNetV2, 1,255,222 parameters" in capsys.readouterr().out
