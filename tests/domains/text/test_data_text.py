from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxnas.common.errors import InputError
from proxnas.domains.text.data import corpus, vocabulary
from proxnas.domains.text.data.corpus import cut_parts, is_text, read_corpus
from proxnas.domains.text.data.text import Text, TextOptions, load

REAL = Path(os.environ.get("PROXNAS_TEXT_DATA", "/nonexistent"))
LINES = "the cat sat\nthe dog sat\n\n the <unk> sat \n"


def folder(
    path: Path, train: str = LINES, valid: str = "the cow sat\n", test: str = "the cat\n"
) -> Path:
    for part, text in (("train", train), ("valid", valid), ("test", test)):
        (path / f"{part}.txt").write_text(text, encoding="utf-8")
    return path


def spelled(text: Text, part: str) -> list[str]:
    return [text.vocabulary[number] for number in getattr(text, part)]


# words and characters


def test_words_of_a_folder(tmp_path: Path) -> None:
    text = load(str(folder(tmp_path)))
    assert text.vocabulary == (
        "<eos>",
        "the",
        "sat",
        "cat",
        "dog",
        "<unk>",
    )  # by frequency, then by first use
    assert (
        " ".join(spelled(text, "train"))
        == "the cat sat <eos> the dog sat <eos> <eos> the <unk> sat <eos>"
    )
    assert " ".join(spelled(text, "valid")) == "the <unk> sat <eos>"  # cow is not in train
    assert text.train.dtype == np.int64 and text.num_words == 6


def test_characters_of_a_folder(tmp_path: Path) -> None:
    text = load(
        str(folder(tmp_path, train="abab\nb", valid="abc\n", test="ba")), TextOptions(tokens="char")
    )
    assert text.vocabulary == ("b", "a", "\n", "<unk>")
    assert spelled(text, "train") == [
        "a",
        "b",
        "a",
        "b",
        "\n",
        "b",
        "\n",
    ]  # the missing last newline is added
    assert spelled(text, "valid") == ["a", "b", "<unk>", "\n"]
    assert vocabulary.join(spelled(text, "test"), "char") == "ba\n"


def test_a_text_without_unk_learns_it_from_words_that_occur_once(tmp_path: Path) -> None:
    text = load(str(folder(tmp_path, train="a b a b once\n")), TextOptions())
    assert text.vocabulary == ("a", "b", "<unk>")
    assert spelled(text, "train") == [
        "a",
        "b",
        "a",
        "b",
        "<unk>",
        "<unk>",
    ]  # <eos> occurs once as well
    kept = load(str(folder(tmp_path, train="a b a b once\n")), TextOptions(min_count=1))
    assert kept.vocabulary == ("a", "b", "once", "<eos>", "<unk>")


def test_max_words_keeps_the_most_frequent(tmp_path: Path) -> None:
    text = load(str(folder(tmp_path)), TextOptions(max_words=4))
    assert text.vocabulary == ("<eos>", "the", "sat", "<unk>")
    assert spelled(text, "train")[:4] == ["the", "<unk>", "sat", "<eos>"]


def test_train_tokens_limits_train_and_its_vocabulary(tmp_path: Path) -> None:
    text = load(str(folder(tmp_path)), TextOptions(train_tokens=4, min_count=1))
    assert spelled(text, "train") == ["the", "cat", "sat", "<eos>"] and "dog" not in text.vocabulary
    assert spelled(text, "test") == ["the", "cat", "<eos>"]


def test_the_vocabulary_of_a_model_is_used_as_it_is(tmp_path: Path) -> None:
    text = load(str(folder(tmp_path)), vocabulary=("dog", "the", "<unk>", "cow"))
    assert spelled(text, "valid") == ["the", "cow", "<unk>", "<unk>"]


@given(st.lists(st.sampled_from(["a", "bb", "<unk>", "é", "<eos>"])), st.integers(0, 4))
def test_vocabularies_are_distinct_words_by_frequency(words: list[str], most: int) -> None:
    made = vocabulary.build_vocabulary(words, max_words=most)
    assert vocabulary.check_vocabulary(list(made), "here") == made
    counts = [words.count(word) for word in made]
    assert counts == sorted(counts, reverse=True) and (not most or len(made) <= max(most, 1))


@given(st.lists(st.lists(st.sampled_from(["a", "bb", "c"]), max_size=4), min_size=1))
def test_join_turns_words_back_into_lines(lines: list[list[str]]) -> None:
    text = "".join(" ".join(line) + "\n" for line in lines)
    assert vocabulary.join(vocabulary.split_tokens(text, "word", ""), "word") == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_cut_loses_nothing(text: str) -> None:
    assert "".join(cut_parts(text)) == text


# kinds of data


def test_one_file_is_cut_by_position_at_line_ends(tmp_path: Path) -> None:
    lines = [f"line {i % 7} of many" for i in range(100)]
    (tmp_path / "My book!.txt").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    text = load(str(tmp_path / "My book!.txt"))
    assert text.name == "My-book" and [len(text.train), len(text.valid), len(text.test)] == [
        405,
        50,
        45,
    ]
    together = spelled(text, "train") + spelled(text, "valid") + spelled(text, "test")
    assert vocabulary.join(together, "word") == "\n".join(lines) + "\n"  # in order, nothing lost


def test_published_names_of_the_parts(tmp_path: Path) -> None:
    for part in corpus.PARTS:
        (tmp_path / f"wiki.{part}.tokens").write_text(LINES * 2)
    assert is_text(str(tmp_path)) and len(load(str(tmp_path)).test) == 26


def test_pydocs_is_large_enough_and_the_same_each_time() -> None:
    text, again = load("pydocs"), load("pydocs")
    assert text.vocabulary == again.vocabulary and (text.train == again.train).all()
    assert len(text.train) > 20_000 and min(len(text.valid), len(text.test)) > 2_000
    unknown = text.vocabulary.index("<unk>")
    assert (text.test == unknown).mean() < 0.25  # the parts speak of the same things


def test_pydocs_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(InputError, match="pydocs: this Python comes without pydoc_data"):
        load("pydocs")


@pytest.mark.parametrize(
    ("spec", "text"),
    [("pydocs", True), ("digits", False), ("book.txt", True), ("a.npz", False), ("hf:x", False)],
)
def test_is_text(spec: str, text: bool) -> None:
    assert is_text(spec) == text


def test_folders_of_other_things_are_not_text(tmp_path: Path) -> None:
    assert not is_text(str(tmp_path)) and is_text(str(folder(tmp_path)))


def hub_folder(path: Path, parts: dict[str, list[str]], column: str = "text") -> str:
    datasets = pytest.importorskip("datasets")
    path.mkdir()
    for part, rows in parts.items():
        datasets.Dataset.from_dict({column: rows}).to_parquet(path / f"{part}.parquet")
    return f"hf:{path}"


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.usefixtures("own_cache")
def test_a_hub_data_set_in_a_local_folder(tmp_path: Path) -> None:
    parts = {"train": ["a b a", "b <unk>"], "validation": ["a c"], "test": ["b", "a"]}
    text = load(hub_folder(tmp_path / "corpus", parts))
    assert text.name == "corpus" and set(text.vocabulary) == {"a", "b", "<eos>", "<unk>"}
    assert spelled(text, "valid") == ["a", "<unk>", "<eos>"] and spelled(text, "test") == [
        "b",
        "<eos>",
        "a",
        "<eos>",
    ]


@pytest.mark.usefixtures("own_cache")
def test_a_hub_data_set_without_parts_is_cut(tmp_path: Path) -> None:
    spec = hub_folder(tmp_path / "corpus", {"train": ["a b"] * 50}, column="line")
    text = load(f"{spec}?text=line")
    assert [len(text.train), len(text.valid), len(text.test)] == [123, 15, 12]
    with pytest.raises(InputError, match=r"no column text \(found: line\): give .*\?text=COLUMN"):
        load(spec)
    with pytest.raises(InputError, match="unknown choice 'label'"):
        load(f"{spec}?label=x")


@pytest.mark.usefixtures("own_cache")
def test_empty_hub_data_sets(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is empty"):
        load(hub_folder(tmp_path / "corpus", {"train": [" ", ""]}))


# bad input: one line that names the file and says what to do

BAD: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "empty": (lambda p: p.write_bytes(b""), ["book.txt", "is empty", "give"]),
    "white space": (lambda p: p.write_text(" \n\n \t\n"), ["book.txt", "is empty"]),
    "one word": (lambda p: p.write_text("word"), ["book.txt", "fewer than two words", "longer"]),
    "one word again and again": (
        lambda p: p.write_text("word\n" * 100),
        ["book.txt", "fewer than two words"],
    ),
    "NUL": (
        lambda p: p.write_bytes(b"text\0text" * 50),
        ["book.txt", "binary data", "NUL", "UTF-8"],
    ),
    "not UTF-8": (
        lambda p: p.write_bytes(b"good text \xff\xfe"),
        ["book.txt", "binary data", "byte 10"],
    ),
    "a very long word": (
        lambda p: p.write_text("x" * 20_000 + " a b\n" * 9),
        ["book.txt, train", "line 1", "char"],
    ),
    "two words": (lambda p: p.write_text("a b a b a b"), ["book.txt", "tokens in part", "longer"]),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_files(tmp_path: Path, fault: str) -> None:
    write, expected = BAD[fault]
    write(tmp_path / "book.txt")
    with pytest.raises(InputError) as caught:
        load(str(tmp_path / "book.txt"))
    message = str(caught.value)
    assert all(word in message for word in expected) and "\n" not in message, message


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    monkeypatch.setattr(vocabulary, "LONGEST_LINE", 5)
    with pytest.raises(InputError, match="line 1 has over 5 characters"):
        load(str(tmp_path))
    monkeypatch.setattr(corpus, "LARGEST_FILE", 10)
    with pytest.raises(InputError, match=r"train.txt: .* above the limit of 10"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("nothing/here", "no such file or folder"),
        ("book.txt", "no such file or folder"),
        ("pydoc", "unknown text 'pydoc'"),
        ("a\0b", "unknown text"),
    ],
)
def test_missing_data(spec: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        read_corpus(spec)


def test_other_files_and_missing_parts(tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_text("text")
    with pytest.raises(InputError, match="not a kind of text"):
        read_corpus(str(tmp_path / "book.pdf"))
    folder(tmp_path)
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(InputError, match=r"no file valid\.txt"):
        read_corpus(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tokens": "line"}, "tokens"),
        ({"max_words": 1}, "max_words"),
        ({"min_count": -1}, "min_count"),
        ({"train_tokens": 1}, "train_tokens"),
    ],
)
def test_bad_options(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        TextOptions(**options)


@pytest.mark.parametrize("bad", ["words", ["a", 1], ["a", "a", "<unk>"], ["a", "b"]])
def test_bad_vocabularies(bad: Any) -> None:
    with pytest.raises(InputError, match=r"model\.safetensors: the vocabulary"):
        vocabulary.check_vocabulary(bad, "model.safetensors")


# the published counts, where the data is at hand: PROXNAS_TEXT_DATA names the folder with ptb and
# wikitext-2


@pytest.mark.skipif(
    not REAL.is_dir(), reason="PROXNAS_TEXT_DATA does not name a folder with ptb and wikitext-2"
)
@pytest.mark.parametrize(
    ("name", "words", "tokens"),
    [
        ("ptb", 10_000, (929_589, 73_760, 82_430)),
        ("wikitext-2", 33_278, (2_088_628, 217_646, 245_569)),
    ],
)
def test_published_counts(name: str, words: int, tokens: tuple[int, ...]) -> None:
    text = load(str(REAL / name))
    assert (text.num_words, (len(text.train), len(text.valid), len(text.test))) == (words, tokens)


@pytest.mark.parametrize(
    ("train", "valid", "test"),
    [
        ("train.txt", "val.txt", "test.txt"),
        ("Training.TXT", "Validation.txt", "testing.txt"),
        ("ptb.train.txt", "ptb.dev.txt", "ptb.test.txt"),
        ("train.txt", "dev.txt", "TEST.txt"),
    ],
)
def test_files_go_by_the_usual_names_of_parts(
    train: str, valid: str, test: str, tmp_path: Path
) -> None:
    for name, text in ((train, "a b\n"), (valid, "c d\n"), (test, "e f\n")):
        (tmp_path / name).write_text(text)
    assert is_text(str(tmp_path))
    found = read_corpus(str(tmp_path))
    assert (found.train, found.valid, found.test) == ("a b\n", "c d\n", "e f\n")
    (tmp_path / train).with_name("valid.txt" if valid != "valid.txt" else "val.txt").write_text(
        "x\n"
    )
    if not valid.startswith("ptb."):
        with pytest.raises(InputError, match="two names for one part"):
            read_corpus(str(tmp_path))


@pytest.mark.parametrize("own", ["train", "train test", "train valid", "train valid test"])
def test_parts_of_a_set_on_the_hub_are_kept(
    own: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """What a set has is used as it is; only what it lacks is cut from the end of its training
    text."""

    class Rows:
        column_names = ("text",)

        def __init__(self, part: str) -> None:
            self.rows = [f"{part} {number}" for number in range(100)]

        def __getitem__(self, column: str) -> list[str]:
            return self.rows

    parts = {part: Rows(part) for part in own.split()}
    monkeypatch.setattr(
        "proxnas.domains.hub.load_hub", lambda spec, columns: (f"set-{len(parts)}", {}, parts)
    )
    found = read_corpus(f"hf:{own}")
    whole = {part: "".join(f"{row}\n" for row in rows.rows) for part, rows in parts.items()}
    for part in set(parts) - {"train"}:
        assert getattr(found, part) == whole[part]
    cut_off = [getattr(found, part) for part in ("valid", "test") if part not in parts]
    assert found.train + "".join(cut_off) == whole["train"]
    assert all(8 < len(text.splitlines()) < 13 for text in cut_off)
    assert bool(cut_off) == bool(capsys.readouterr().err) == bool(found.warnings)
