"""The model card holds what is known, leaves out what is not, and survives any name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxnas.cells import zoo
from proxnas.domains.images.card import ImageFacts, image_card
from proxnas.report.model_card import escape, model_card

CPU = {"batch": 1, "runs": 50, "device": "cpu", "threads": 2, "processor": "x86_64"}
LATENCY = {"torch": {"seconds": 0.00123, **CPU}, "onnx": {"seconds": 0.000456, **CPU}}
INFO = {
    "data": "my_photos",
    "protocol": "quick",
    "epochs": 40,
    "seed": 7,
    "test_accuracy": 0.98123,
    "test_top5": 0.9995,
    "test_images": 1234,
    "valid_accuracy": 0.97,
}


def card(**changes: Any) -> str:
    parts: dict[str, Any] = {
        "genotype": zoo.find_cell("DARTS_V2"),
        "classes": ("cat", "dog"),
        "shape": (3, 24, 32),
        "pixels": "uint8",
        "params": 1234567,
        "flops": 89,
        "info": INFO,
        "found": {"cell": "zoo:DARTS_V2"},
        "latency": LATENCY,
        "files": {"onnx": "model.onnx"},
        "version": "0.1.0",
    }
    return model_card(image_card(ImageFacts(**parts | changes)))


def test_a_fit_by_the_clock_was_no_search_and_training() -> None:
    said = "the search won nothing: of 4 swaps tried none was clear of noise"
    text = card(found={"method": "nasp", "space": "resnet", "data": "my_photos", "said": said})
    assert "- Its network was trained by the clock in space resnet on my\\_photos (ep" in text
    assert "- The search won nothing: of 4 swaps" in text and "found by" not in text


def test_numbers_are_no_classes() -> None:
    text = card(kind="numbers", classes=("age", "height"), output="values")
    assert "| numbers | age, height |" in text and "test accuracy" not in text
    assert "order of the numbers above" in text and "one of the classes" not in text


def test_everything_known_is_told() -> None:
    text = card()
    for words in (
        "| data | my\\_photos |",
        "| test accuracy | 98.12% (among the first five: 99.95%) on 1,234 images |",
        "| validation accuracy | 97.00% |",
        "| parameters | 1,234,567 |",
        "| multiply-adds of an image | 89 |",
        "| latency | 1.23 ms, batch 1, median of 50 (cpu, threads: 2, x86\\_64) |",
        "| latency of the ONNX file | 0.456 ms, batch 1,",
        "| images | 32 x 24 pixels, 3 channels |",
        "| classes | cat, dog |",
        "- The cell: zoo:DARTS\\_V2.",
        "- Its network was trained from scratch by the protocol quick (epochs 40, seed 7).",
        "node 5 = skip_connect(c_{k-2}) + dil_conv_3x3(node 2)",
        "uint8, (N, 24, 32, 3), bytes",
        "onnxruntime.InferenceSession('model.onnx')",
    ):
        assert words in text, words


def test_what_is_not_known_is_left_out() -> None:
    text = card(info={}, found={}, latency={}, files={}, version="")
    for words in (
        "accuracy |",
        "data |",
        "latency",
        "How to use",
        "The cell:",
        "None",
        "protocol",
        "()",
    ):
        assert words not in text, words


def test_float_images_are_not_divided() -> None:
    text = card(pixels="float32", files={"onnx": "a.onnx", "torch": "a.pt2"})
    assert "255" not in text and "values as in the data" in text and text.count("```python") == 2


def test_many_classes_are_cut_short() -> None:
    row = next(
        line
        for line in card(classes=[f"c{i}" for i in range(200)]).splitlines()
        if "| classes" in line
    )
    assert row.endswith("c49 and 150 more |") and "tells 200 classes" in card(classes=["c"] * 200)


NASTY = [
    "a|b",
    "<script>alert(1)</script>",
    "[x](http://y)",
    "**b**",
    "# h",
    "`c`",
    "a\nb",
    "a\x1b[31mb",
    "\\",
    "![i](j)",
]


@pytest.mark.parametrize("name", NASTY)
def test_names_cannot_change_the_page(name: str) -> None:
    text = card(classes=(name, "dog"), info=INFO | {"data": name}, found={"cell": name})
    plain = card(classes=("cat", "dog"))
    assert len(text.splitlines()) == len(plain.splitlines()) and "\x1b" not in text
    row = next(line for line in text.splitlines() if line.startswith("| classes"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert not re.search(r"(?<!\\)[<`*\[\]]", row)


@given(st.text())
def test_escaped_text_is_one_printable_line(text: str) -> None:
    line = escape(text)
    assert line.isprintable() and "  " not in line
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>|~&#!$]", line)


def test_file_names_are_python_strings_in_the_code() -> None:
    text = card(files={"onnx": "it's\n```.onnx"})
    code = text.split("```python\n")[1].split("\n```")[0]
    compile(code, "card", "exec")
