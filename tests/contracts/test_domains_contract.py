"""What every domain keeps to, and the way through train, test, predict and export in Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import proxnas
from proxnas import domains
from proxnas.cells.kinds import CUSTOM
from proxnas.common.errors import InputError, OptionError
from proxnas.common.options import build
from proxnas.core.selection import one_hot
from proxnas.domains.domain import DOMAINS, Domain, TrainableDomain, every_domain, of_options
from proxnas.domains.spaces import SPACES, find
from proxnas.domains.trained import TrainedModel
from proxnas.searching.defaults import resolve
from proxnas.training.options import TrainOptions

NAMES = list(DOMAINS)
TRAINED = ["images", "text"]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "book.txt"
    lines = (f"the {('cat', 'dog')[i % 2]} sat on {('mat', 'bed')[i % 3 % 2]}" for i in range(90))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kinds of images that are told apart by how bright they are."""
    path = tmp_path_factory.mktemp("data") / "pictures.npz"
    random = np.random.RandomState(0)
    y = np.arange(60) % 2
    x = (random.rand(60, 8, 8) * 60 + 150 * y[:, None, None]).astype(np.uint8)
    np.savez(path, x_train=x, y_train=y)
    return path


SMALL: dict[str, dict[str, Any]] = {
    "images": {
        "cell": "zoo:DARTS_V2",
        "cells": 1,
        "channels": 2,
        "batch_size": 8,
        "warmup": 0,
        "ema": 0.0,
    },
    "text": {"cell": "zoo:LSTM", "units": 4, "batch_size": 4, "bptt": 8},
}


@pytest.fixture(scope="module", params=TRAINED)
def trained(
    request: pytest.FixtureRequest,
    book: Path,
    pictures: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> proxnas.TrainedModel:
    """A model of each domain, trained in Python in a run folder."""
    data = {"images": pictures, "text": book}[request.param]
    run = tmp_path_factory.mktemp(request.param) / "run"
    small = SMALL[request.param] | {"epochs": 2, "device": "cpu", "threads": 1}
    return proxnas.train(data=str(data), run=run, **small)


# what a domain is


def test_every_space_is_of_one_domain() -> None:
    found = [name for domain in every_domain().values() for name in domain.spaces]
    assert sorted(found) == sorted(SPACES)
    for name in SPACES:
        assert name in domains.of_space(name).spaces
        assert find(name).groups
    assert domains.of_space(CUSTOM).name == "modules"
    with pytest.raises(InputError, match="unknown space 'dart7'"):
        domains.of_space("dart7")


@pytest.mark.parametrize("name", NAMES)
def test_a_domain_is_registered_by_its_name(name: str) -> None:
    assert domains.named(name).name == name


@pytest.mark.parametrize(
    ("data", "name"), [("digits", "images"), ("pydocs", "text"), ("a.npz", "images")]
)
def test_data_say_whose_they_are(data: str, name: str) -> None:
    assert domains.of_data(data).name == name
    claiming = [domain.name for domain in every_domain().values() if domain.claims(data)]
    assert claiming == [name]


@pytest.mark.parametrize("name", TRAINED)
def test_options_of_a_training_know_their_domain(name: str) -> None:
    domain = every_domain()[name]
    assert isinstance(domain, TrainableDomain)
    assert of_options(domain.train_options()) is domain
    for protocol in domain.protocols:
        options = build(domain.train_options, domain.train_values(protocol, "x", None))
        assert options.protocol == protocol


def test_modules_are_trained_by_their_owners() -> None:
    assert not isinstance(domains.named("modules"), TrainableDomain)
    custom = {"genotype": f'{{"kind": "{CUSTOM}"}}'}
    with pytest.raises(InputError, match=r"load_found\(path, module\)"):
        domains.of_metadata(custom)


def test_another_package_brings_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point is enough: its space and its data are known."""

    class Sounds:
        name = "sounds"
        spaces: Mapping[str, str] = {"waves": "nowhere:Waves"}

        def claims(self, data: object) -> bool:
            return data == "hum"

        def claims_cell(self, cell: str) -> bool:
            return False

        def claims_model(self, metadata: Mapping[str, str]) -> bool:
            return False

        def load(self, data: Any, options: Any) -> Any:
            return data

        def task(self, options: Any, data: Any, space: Any, device: Any) -> Any:
            return None

    sounds: Domain = Sounds()

    package = ModuleType("sounds_package")
    vars(package)["SOUNDS"] = sounds
    monkeypatch.setitem(sys.modules, "sounds_package", package)
    found = {"sounds": "sounds_package:SOUNDS"}
    monkeypatch.setattr("proxnas.domains.domain.of_others", lambda group: found)
    every_domain.cache_clear()
    try:
        assert domains.of_space("waves") is sounds and domains.of_data("hum") is sounds
        with pytest.raises(InputError, match="hum: is sounds, and space darts7 is for images"):
            domains.load_for_search("darts7", "hum", None)
    finally:
        every_domain.cache_clear()


# the way through it in Python


def test_a_training_leaves_a_run_folder(trained: proxnas.TrainedModel) -> None:
    assert trained.folder is not None
    result = json.loads((trained.folder / "result.json").read_text())
    assert result == trained.result
    wanted = {"schema", "method", "space", "data", "seed", "genotype", "params", "flops", "epochs"}
    assert wanted <= result.keys()
    assert result["schema"] == 1 and result["epochs"] == 2
    assert result["params"] == sum(w.numel() for w in trained.network.parameters())


def test_a_test_says_what_training_said(trained: proxnas.TrainedModel) -> None:
    data = json.loads((trained.folder / "config.json").read_text())["data"]  # type: ignore[operator]
    figures = trained.test(data)
    names = {"images": "accuracy", "text": "perplexity"}
    name = names[trained.domain.name]
    assert figures[name] == trained.result[f"test_{name}"]
    better = {"images": figures["accuracy"], "text": -figures["loss"]}
    assert trained.score(data) == better[trained.domain.name]


def test_saved_and_loaded_it_answers_the_same(
    trained: proxnas.TrainedModel, tmp_path: Path
) -> None:
    inputs: Any = ["the cat", "on"]
    if trained.domain.name == "images":
        inputs = np.arange(2 * 64).reshape(2, 8, 8).astype(np.uint8)
    file = trained.save(tmp_path)
    assert file == tmp_path / "model.safetensors"
    again = proxnas.load_model(file)
    assert again.domain is trained.domain and again.info == trained.info
    answers = trained.predict(inputs, top=2)
    assert answers == again.predict(inputs, top=2)
    assert len(answers) == 2
    for best, second in answers:
        assert 1 >= best.probability >= second.probability >= 0
    with pytest.raises(InputError, match="top 0"):
        trained.predict(inputs, top=0)


def test_it_is_exported_and_the_files_are_checked(
    trained: proxnas.TrainedModel, tmp_path: Path
) -> None:
    exported = trained.export(torch=tmp_path / "m.pt2", card=tmp_path / "card.md")
    assert exported.differences["torch"] < 1e-4 and exported.checked_on
    assert set(exported.files) == {"torch", "card"}
    assert exported.files["torch"].exists()
    card = exported.files["card"].read_text()
    for heading in ("# Model card", "## How it was made", "## How to use it", "## Limits"):
        assert f"{heading}\n" in card
    assert "(epochs 2, seed 0)" in card and f"| parameters | {trained.result['params']:,} |" in card
    with pytest.raises(InputError, match="nothing to write"):
        trained.export()


def test_its_run_is_reported(trained: proxnas.TrainedModel, tmp_path: Path) -> None:
    page = trained.report(tmp_path / "page.html")
    assert page == tmp_path / "page.html" and "<html" in page.read_text()
    alone = TrainedModel(trained.domain, trained.model)
    with pytest.raises(InputError, match="a report needs the files of a run"):
        alone.report()


def test_only_language_models_write(trained: proxnas.TrainedModel) -> None:
    if trained.domain.name == "text":
        assert trained.generate("the cat", words=3).startswith("the cat")
    else:
        with pytest.raises(InputError, match="not a language model"):
            trained.generate("the cat")


@pytest.mark.parametrize("name", TRAINED)
def test_without_a_folder_nothing_is_written(
    name: str, book: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"images": pictures, "text": book}[name]
    small = SMALL[name] | {"epochs": 1, "device": "cpu", "threads": 1}
    model = proxnas.train(data=str(data), **small)
    assert model.folder is None and model.result["epochs"] == 1
    assert list(tmp_path.iterdir()) == []


def test_images_may_be_arrays_or_a_dataset(pictures: Path) -> None:
    """What is in memory trains the same network as the file that it was read from."""
    arrays = dict(np.load(pictures))
    pair = arrays["x_train"], arrays["y_train"]
    small = SMALL["images"] | {"epochs": 1, "device": "cpu", "threads": 1}
    models = [proxnas.train(data=data, **small) for data in (str(pictures), arrays, pair)]
    items = [(x, int(y)) for x, y in zip(*pair, strict=True)]
    models.append(proxnas.train(data=items, **small))
    accuracies = {model.result["test_accuracy"] for model in models}
    assert len(accuracies) == 1
    tested = {model.score(pair, part="all") for model in models}
    assert len(tested) == 1
    with pytest.raises(InputError, match="a float is no data set of images"):
        proxnas.train(data=1.5, **small)


def test_a_training_leaves_the_random_numbers_and_threads_of_its_caller(pictures: Path) -> None:
    threads, before = torch.get_num_threads(), torch.get_rng_state()
    proxnas.train(data=str(pictures), **SMALL["images"] | {"epochs": 1, "threads": 1})
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


def test_resumed_in_python_it_goes_on_with_what_it_was_told(book: Path, tmp_path: Path) -> None:
    small = SMALL["text"] | {"data": str(book), "device": "cpu", "threads": 1, "run": tmp_path}
    first = proxnas.train(**small | {"epochs": 1, "slowness": 0.5})
    longer = proxnas.train("zoo:LSTM", str(book), run=tmp_path, epochs=2, resume=True)
    assert (first.result["epochs"], longer.result["epochs"]) == (1, 2)
    assert json.loads((tmp_path / "config.json").read_text())["slowness"] == 0.5
    with pytest.raises(InputError, match="holds a finished run"):
        proxnas.train(**small | {"epochs": 1})


def test_errors_name_the_option() -> None:
    with pytest.raises(OptionError, match=r"^epochs 0: give a number from 1") as error:
        proxnas.train("zoo:DARTS_V2", "digits", epochs=0)
    assert error.value.as_flag().startswith("--epochs 0: ")
    with pytest.raises(InputError, match="unknown option 'epoch': did you mean epochs"):
        proxnas.train("zoo:DARTS_V2", "digits", epoch=1)


def test_every_training_has_the_common_options() -> None:
    for name in TRAINED:
        domain = every_domain()[name]
        assert isinstance(domain, TrainableDomain) and issubclass(
            domain.train_options, TrainOptions
        )


@pytest.mark.parametrize("protocol", ["quick", "cifar"])
@pytest.mark.parametrize("space", [name for name in SPACES if name != "rnn"])
def test_a_search_counts_the_network_that_a_training_builds_by_itself(
    space: str, protocol: str
) -> None:
    """Else a limit would hold for a network that nobody trains."""
    groups = find(space).groups
    A = {name: torch.rand(group.shape, dtype=torch.float64) for name, group in groups.items()}
    A_bar = {name: one_hot(a, groups[name]) for name, a in A.items()}
    found = domains.named("images")
    assert isinstance(found, TrainableDomain)
    trained = found.train_values(protocol, "digits", find(space).genotype(A_bar))
    searched = resolve({"space": space, "protocol": protocol})
    sizes = (searched.domain.final_cells, searched.domain.final_channels)  # type: ignore[attr-defined]
    assert sizes == (trained["cells"], trained["channels"])
