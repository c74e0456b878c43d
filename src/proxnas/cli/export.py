"""`proxnas export MODEL [DATA]`: a trained model as files that need no proxnas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from proxnas.common.cores import Asked
from proxnas.common.errors import InputError, OptionError
from proxnas.common.say import say
from proxnas.common.words import command_line

if TYPE_CHECKING:
    from proxnas.domains.exporting import Exported


@dataclass(frozen=True)
class ExportOptions:
    """Write a trained model as an ONNX file or a torch.export program, checked on images, and its
    model card."""

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """The folder of a train or fit run, or a model.safetensors."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[DATA]")] = ""
    """Images to check the files on; without it the data of the run."""
    onnx: str = ""
    """ONNX file to write (needs the extra: pip install 'proxnas[onnx]')."""
    torch: str = ""
    """torch.export program to write, for example model.pt2."""
    card: str = ""
    """Model card to write (Markdown)."""
    device: str = "cpu"
    """Where the latency of the card is measured."""
    threads: Asked = "auto"
    """CPU threads of the latency; auto: as many as there are cores."""
    json: bool = False
    """Print JSON."""

    def __post_init__(self) -> None:
        if not (self.onnx or self.torch or self.card):
            raise InputError("nothing to write: give --onnx FILE, --torch FILE or --card FILE")
        if self.threads != "auto" and self.threads < 1:
            raise OptionError("threads", self.threads, "give auto or a number from 1 on")


def main(argv: list[str]) -> None:
    """Writes the files asked for."""
    options = command_line(ExportOptions, "proxnas export", argv)
    from proxnas.common.environment import set_threads
    from proxnas.domains.trained import load_model

    # before the model is loaded: its latency is measured by so many
    set_threads(options.threads)
    model = load_model(options.model, options.device)
    exported = model.export(options.onnx, options.torch, options.card, options.data or None)
    if options.json:
        say(json.dumps(_json(exported), indent=2))
        return
    for kind, file in exported.files.items():
        checked = ""
        # a card is written, not checked
        if kind in exported.differences:
            how = f"its answers differ by at most {exported.differences[kind]:.1e}"
            checked = f"; checked on {exported.checked_on}: {how}"
        say(f"{file} written{checked}")


def _json(exported: Exported) -> dict[str, Any]:
    """Kind of file -> file; `difference` -> kind -> largest difference of a logit; `images`: what
    they were."""
    written: dict[str, Any] = {kind: str(file) for kind, file in exported.files.items()}
    if exported.differences:
        written |= {"difference": dict(exported.differences), "images": exported.checked_on}
    return written
