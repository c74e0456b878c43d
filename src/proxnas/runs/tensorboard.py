"""Event files for TensorBoard, beside the run's own files: the figures of every epoch.

After a resumption the epochs that are run again hide those written before.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proxnas.common.errors import AboutOptions
from proxnas.common.files import make_folder
from proxnas.common.metrics_row import MetricsRow

FOLDER = "tensorboard"


def check_tensorboard() -> None:
    """An InputError if the extra is not installed."""
    if find_spec("tensorboard") is None:
        raise AboutOptions(
            "{tensorboard}: not installed: pip install 'proxnas[tensorboard]', or leave it out"
        )


class Board:
    """The event files of a run."""

    check = staticmethod(check_tensorboard)

    def __init__(self, run: Path) -> None:
        self.folder = run / FOLDER
        self.writer: Any = None

    def epoch(self, row: MetricsRow) -> None:
        if self.writer is None:
            from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

            make_folder(self.folder)  # its files have names that are new each time
            # purge_step: what earlier files say of this epoch and later ones is hidden
            self.writer = SummaryWriter(str(self.folder), purge_step=row["epoch"])
        for name, value in scalars(row).items():
            self.writer.add_scalar(name, value, row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        """Ends the file, if one was begun."""
        if self.writer is not None:
            self.writer.close()


def scalars(row: MetricsRow) -> dict[str, float]:
    """The numbers of an epoch by name: train/loss, valid/accuracy, changes, params,
    seconds/forward, ..."""
    found = {}
    for name, value in row.items():
        part, _, figure = name.partition("_")
        if name not in ("epoch", "step") and isinstance(value, int | float):
            found[f"{part}/{figure}" if figure else name] = value
    return found | {f"seconds/{part}": value for part, value in row["seconds"].items()}
