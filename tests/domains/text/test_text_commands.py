"""train, test, generate and export of language models, from the command line."""

from __future__ import annotations

import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from proxnas.cli.main import main
from proxnas.domains.text.model import load_text_model
from proxnas.domains.text.options import TextTestOptions, TextTrainOptions
from proxnas.workflows.about import training_domain, words_of

SMALL = [
    "--units=6",
    "--batch-size=4",
    "--bptt=10",
    "--valid-batch-size=2",
    "--test-batch-size=2",
    "--threads=1",
]
SMALL += ["--device=cpu", "--learning-rate=5", "--average-after=1"]
FORKED = multiprocessing.get_context("forkserver")  # real processes that need not import torch anew
FORKED.set_forkserver_preload(
    ["pytest", "proxnas.domains.text.training", "proxnas.runs.progress", "torch._dynamo"]
)


def work(argv: list[str]) -> None:
    sys.exit(main(argv))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("book")
    for part, lines in (("train", 60), ("valid", 12), ("test", 12)):
        text = "".join(
            f"the {('cat', 'dog', 'cow')[i % 3]} sat on the {('mat', 'bed')[i % 2]}\n"
            for i in range(lines)
        )
        (folder / f"{part}.txt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cell") / "cell.json"
    path.write_text(json.dumps({"recurrent": [["relu", 0], ["tanh", 1]], "concat": [1, 2]}))
    return path


@pytest.fixture(scope="module", params=["cell", "LSTM"])
def trained(
    request: pytest.FixtureRequest, data: Path, cell: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    name = str(cell) if request.param == "cell" else "zoo:LSTM"
    assert (
        main(["train", name, str(data), *SMALL, "--epochs=3", "--quiet", "--run", str(folder)]) == 0
    )
    return folder


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def refused(argv: list[str], capsys: Any) -> str:
    """The one line that a command line is refused with."""
    capsys.readouterr()
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("proxnas: error: ") and error.count("\n") == 1, error
    return str(error)


# the whole way


def test_a_run_folder(trained: Path, data: Path) -> None:
    stored = json.loads((trained / "config.json").read_text())
    assert stored["command"] == "train" and stored["units"] == 6 and stored["tokens"] == "word"
    rows = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert {"train_perplexity", "valid_perplexity", "learning_rate", "seconds"} <= rows[0].keys()
    assert result(trained)["test_perplexity"] < 11  # as many different words
    vocabulary = json.loads((trained / "vocabulary.json").read_text())
    assert vocabulary == ["the", "sat", "on", "<eos>", "mat", "bed", "cat", "dog", "cow", "<unk>"]
    assert (trained / "genotype.json").exists() == (result(trained)["genotype"] is not None)


def test_test_says_what_training_said(
    trained: Path, data: Path, tmp_path: Path, capsys: Any
) -> None:
    for part in ("test", "valid"):
        file = tmp_path / f"{part}.json"
        assert (
            main(
                [
                    "test",
                    str(trained),
                    str(data),
                    "--part",
                    part,
                    "--json",
                    str(file),
                    "--threads=1",
                ]
            )
            == 0
        )
        said = capsys.readouterr().out
        assert f"{part} perplexity" in said and f"tokens of the {part} part of " in said
        assert json.loads(file.read_text())["perplexity"] == result(trained)[f"{part}_perplexity"]


def test_generate(trained: Path, capsys: Any) -> None:
    argv = ["generate", str(trained), "--prompt", "the zebra", "--words", "5", "--threads=1"]
    assert main(argv) == 0
    first = capsys.readouterr()
    assert first.out.startswith("the zebra ") and len(first.out.split()) <= 7
    assert first.err == "proxnas: not in the model's vocabulary, read as <unk>: 'zebra'\n"
    assert main([*argv, "--seed", "0", "--quiet"]) == 0
    assert capsys.readouterr() == (first.out, "")
    assert "--temperature" in refused([*argv, "--temperature", "-1"], capsys)


def test_export(trained: Path, tmp_path: Path, capsys: Any) -> None:
    program, card = tmp_path / "model.pt2", tmp_path / "card.md"
    assert main(["export", str(trained), "--torch", str(program), "--card", str(card)]) == 0
    assert torch.export.load(program) and "test perplexity" in card.read_text()
    assert "DATA" in refused(["export", str(trained), "digits", "--torch", str(program)], capsys)


def test_a_finished_run_is_not_run_again(trained: Path, data: Path, capsys: Any) -> None:
    before = (trained / "result.json").stat().st_mtime_ns
    assert main(["train", "--resume", "--quiet", "--run", str(trained)]) == 0
    assert (trained / "result.json").stat().st_mtime_ns == before
    name = str(result(trained)["cell"])
    assert "holds a finished run" in refused(
        ["train", name, str(data), *SMALL, "--run", str(trained)], capsys
    )
    argv = ["train", name, str(data), "--units=7", "--resume", "--run", str(trained)]
    assert "--units 7: the run in" in refused(argv, capsys)


def test_dry_run(cell: Path, data: Path, capsys: Any) -> None:
    assert main(["train", str(cell), str(data), *SMALL, "--dry-run", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["params_smallest"] == figures["params_largest"] == figures["params"] > 0
    assert figures["seconds_per_epoch"] > 0 and "peak_bytes" in figures
    assert main(["train", str(cell), str(data), *SMALL, "--dry-run"]) == 0
    assert "10 words" in capsys.readouterr().out


def test_characters(cell: Path, data: Path, tmp_path: Path, capsys: Any) -> None:
    argv = [
        "train",
        str(cell),
        str(data),
        *SMALL,
        "--tokens=char",
        "--epochs=1",
        "--quiet",
        "--run",
        str(tmp_path),
    ]
    assert (
        main(argv) == 0
        and main(["generate", str(tmp_path), "--prompt", "the c", "--words", "9"]) == 0
    )
    out = capsys.readouterr().out
    assert "the c" in out and main(["test", str(tmp_path), str(data)]) == 0


def test_protocols_and_flags(cell: Path, data: Path, tmp_path: Path) -> None:
    given = [
        "--units=6",
        "--epochs=1",
        "--batch-size=4",
        "--bptt=10",
        "--quiet",
        "--drop-words=0.2",
        "--threads=1",
    ]
    assert (
        main(["train", str(cell), str(data), "--protocol=ptb", *given, "--run", str(tmp_path)]) == 0
    )
    stored = json.loads((tmp_path / "config.json").read_text())
    wanted = {
        "weight_decay": 8e-7,
        "drop_output": 0.75,
        "test_batch_size": 1,
        "drop_words": 0.2,
        "average_after": 5,
    }
    assert {name: stored[name] for name in wanted} == wanted


def test_the_zoo_names_the_lstm(capsys: Any) -> None:
    assert main(["zoo"]) == 0
    assert "zoo:LSTM" in capsys.readouterr().out
    assert "has no cell to show" in refused(["show", "zoo:LSTM"], capsys)


# killed, for real


def outcome(folder: Path) -> dict[str, Any]:
    """Everything that must be equal to the bit."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("seconds")
    found = result(folder)
    found.pop("seconds")
    weights = {name: w.tolist() for name, w in load_text_model(folder).network.state_dict().items()}
    return {"metrics": rows, "result": found, "weights": weights}


def killed(argv: list[str], ready: Callable[[], bool]) -> bool:
    """Runs the command in a process of its own and kills it; whether it was still running then."""
    process = FORKED.Process(target=work, args=(argv,))
    process.start()
    limit = time.monotonic() + 60
    while process.is_alive() and not ready():
        assert time.monotonic() < limit
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.parametrize("trained", ["cell", "LSTM"], indirect=True)
def test_killed_and_resumed_ends_the_same(trained: Path, data: Path, tmp_path: Path) -> None:
    argv = [
        "train",
        str(result(trained)["cell"]),
        str(data),
        *SMALL,
        "--epochs=3",
        "--quiet",
        "--run",
        str(tmp_path),
    ]
    path = tmp_path / "metrics.jsonl"
    for ready in (
        lambda: (tmp_path / "checkpoint.pt").exists(),
        lambda: path.exists(),
    ):  # in the first epoch; after it
        assert killed([*argv, "--checkpoint-minutes=0", "--resume"], ready)
    assert not (tmp_path / "result.json").exists()
    assert main([*argv, "--resume"]) == 0
    assert outcome(tmp_path) == outcome(trained)


# what a command is about


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["zoo:LSTM", "pydocs", "--quiet"], ["zoo:LSTM", "pydocs"]),
        (["--quiet", "zoo:LSTM", "--units", "5", "pydocs"], ["zoo:LSTM", "pydocs"]),
        (["--units=5", "--run", "place", "a", "--force", "b"], ["a", "b"]),
    ],
)
def test_words_of_a_command_line(argv: list[str], words: list[str]) -> None:
    assert words_of(argv, TextTrainOptions) == words


@pytest.mark.parametrize("trained", ["cell"], indirect=True)
def test_the_cell_says_what_a_training_is_about(trained: Path, cell: Path, tmp_path: Path) -> None:
    def about(*argv: str) -> str:
        return training_domain(list(argv)).name

    assert about(str(cell), "pydocs") == about("--help", "zoo:lstm") == "text"
    assert about("--run", str(trained), "--resume") == "text"
    assert about("zoo:DARTS_V2", "digits") == about("--help") == about("nothing", "d") == "images"
    (tmp_path / "c.json").write_text(json.dumps({"cell": "zoo:LSTM"}))
    assert about("--config", str(tmp_path / "c.json")) == "text"
    # the cell is gone since: what the run was told says whose it is
    run = tmp_path / "run"
    run.mkdir()
    stored = json.loads((trained / "config.json").read_text()) | {"cell": "gone"}
    (run / "config.json").write_text(json.dumps(stored))
    assert about("--run", str(run), "--resume") == "text"


def test_test_of_no_model(tmp_path: Path, capsys: Any) -> None:
    assert "nothing" in refused(["test", "nothing", "pydocs"], capsys)
    (tmp_path / "model.safetensors").write_text("rubbish")
    assert "not a readable safetensors file" in refused(["test", str(tmp_path), "pydocs"], capsys)
    assert TextTestOptions.__test__ is False


# bad input: one line each


def write(folder: Path, train: bytes) -> Path:
    folder.mkdir()
    for part in ("train", "valid", "test"):
        (folder / f"{part}.txt").write_bytes(train)
    return folder


BAD: dict[str, tuple[bytes, list[str], list[str]]] = {
    "empty": (b"", [], ["train.txt", "is empty"]),
    "one word": (b"word", [], ["fewer than two words"]),
    "binary": (b"\x00\x01\x02" * 100, [], ["train.txt", "binary data"]),
    "not UTF-8": (b"caf\xe9 " * 100, [], ["train.txt", "binary data", "byte 3"]),
    "long windows": (b"a b c d\n" * 20, ["--bptt", "50"], ["--bptt 50", "give 1 to"]),
    "many columns": (b"a b c d\n" * 20, ["--batch-size", "90"], ["--batch-size 90", "give 1 to"]),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_texts(cell: Path, tmp_path: Path, fault: str, capsys: Any) -> None:
    content, flags, expected = BAD[fault]
    folder = write(tmp_path / "text", content)
    line = refused(
        ["train", str(cell), str(folder), *SMALL, *flags, "--run", str(tmp_path / "run")], capsys
    )
    assert all(word in line for word in expected), line
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_mismatch(trained: Path, tmp_path: Path, capsys: Any) -> None:
    other = write(tmp_path / "text", b"a cat sat on a hot tin roof\n" * 9)
    line = refused(["test", str(trained), str(other)], capsys)
    assert (
        "its vocabulary (9 words, 4 of them unknown to the model) is not the model's (10, from"
        in line
    )
    assert main(["test", str(trained), str(other), "--other-text"]) == 0
    assert "55.6% <unk>" in capsys.readouterr().out


def test_cells_of_the_wrong_kind(data: Path, tmp_path: Path, capsys: Any) -> None:
    run = ["--run", str(tmp_path / "run"), "--threads=1"]
    line = refused(["train", "zoo:DARTS_V2", str(data), *run], capsys)
    assert str(data) in line  # which is no folder of images
    assert "no such file" in refused(["train", "zoo:LSTM", "digits.txt", *run], capsys)
    assert "unknown text 'digits'" in refused(["train", "zoo:LSTM", "digits", *run], capsys)
    assert not (tmp_path / "run").exists()
