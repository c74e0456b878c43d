"""A network of limited size for the images in a folder of class folders: [FOLDER [LIMIT [FLAGS OF
proxnas fit]]]."""

import json
import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

import proxnas
from proxnas.cli.main import main

SHORT = ("--search-epochs", "3", "--epochs", "8")
"""Flags if none are given: some minutes; without them it takes as many epochs as `proxnas fit` by
itself."""


def digits(folder, most=2000):
    """scikit-learn's digits as a folder of PNG files, one folder a class: put your own images in
    their place."""
    for i, (pixels, label) in enumerate(
        list(zip(*load_digits(return_X_y=True), strict=True))[:most]
    ):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels.reshape(8, 8) * 15).astype("uint8")).save(
            folder / str(label) / f"{i:04}.png"
        )
    return folder


def fit(folder=None, limit="200k", *flags):
    """Searches a cell whose final network keeps the limit, trains, tests and exports it; can be
    stopped and resumed.

    Returns the exit code.
    """
    folder, run = Path(folder) if folder else digits(Path("digits")), Path("runs/folder")
    code = main(
        [
            "fit",
            str(folder),
            "--max-params",
            limit,
            "--run",
            str(run),
            "--resume",
            *(flags or SHORT),
        ]
    )
    if code or "--dry-run" in flags:
        return code
    result = json.loads((run / "result.json").read_text())
    print(
        f"parameters = {result['params']} of {limit}, test accuracy {result['test_accuracy']:.3f}"
    )
    image = next(folder.rglob("*.png"))
    print(image, proxnas.load_model(run).predict([image], top=2)[0])
    return 0


if __name__ == "__main__":
    sys.exit(fit(*sys.argv[1:]))
