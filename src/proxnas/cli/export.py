"""`proxnas export MODEL [DATA]`: a trained model as files that need no proxnas."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from proxnas.common.cores import Asked
from proxnas.common.errors import InputError
from proxnas.common.say import say
from proxnas.runs.options import require
from proxnas.searching.settings import command_line

if TYPE_CHECKING:
    from proxnas.domains.images.model import Model


@dataclass(frozen=True)
class ExportConfig:
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
        require(
            self.threads == "auto" or self.threads >= 1,
            "--threads",
            self.threads,
            "give auto or a number from 1 on",
        )


def main(argv: list[str]) -> None:
    """Writes the files asked for."""
    config = command_line(ExportConfig, "proxnas export", argv)
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.images.model import load_model
    from proxnas.domains.model_file import find_model
    from proxnas.domains.text.model import is_text_model

    device = pick_device(config.device)
    set_threads(config.threads)
    path = find_model(config.model)
    text = is_text_model(path)
    written = (
        export_text(config, path) if text else export(config, load_model(path, device), path.parent)
    )
    if config.json:
        say(json.dumps(written, indent=2))
        return
    for kind in ("onnx", "torch"):
        if kind in written:
            how = f"its answers differ by at most {written['difference'][kind]:.1e}"
            say(f"{written[kind]} written; checked on {written['images']}: {how}")
    if "card" in written:
        say(f"{written['card']} written")


def export(config: ExportConfig, model: Model, folder: Path) -> dict[str, Any]:
    """Kind of file -> file; `difference` -> kind -> largest difference of a logit; `images`: what
    they were."""
    from proxnas.domains.images.deliver import card_text, found_by
    from proxnas.domains.images.export import export_model
    from proxnas.runs.folder import write_atomically

    files = {
        kind: Path(name) for kind, name in (("onnx", config.onnx), ("torch", config.torch)) if name
    }
    written: dict[str, Any] = {kind: str(path) for kind, path in files.items()}
    if files:
        images, what = images_for(model, config.data, folder)
        differences = export_model(model, images, files.get("onnx"), files.get("torch"))
        written |= {
            "difference": {kind: differences[path] for kind, path in files.items()},
            "images": what,
        }
    if config.card:
        write_atomically(Path(config.card), card_text(model, files, found_by(folder)))
        written["card"] = config.card
    return written


def export_text(config: ExportConfig, path: Path) -> dict[str, Any]:
    """The same of a language model, which needs no data to be checked on."""
    from proxnas.domains.text.deliver import text_card
    from proxnas.domains.text.export import export_text_model
    from proxnas.domains.text.model import load_text_model
    from proxnas.runs.folder import write_atomically

    if config.data:
        raise InputError(f"{config.data}: a language model is exported without DATA: leave it out")
    model = load_text_model(path)
    files = {
        kind: Path(name) for kind, name in (("onnx", config.onnx), ("torch", config.torch)) if name
    }
    differences = export_text_model(model, files.get("onnx"), files.get("torch"))
    written: dict[str, Any] = {kind: str(file) for kind, file in files.items()}
    if files:
        written |= {
            "difference": {kind: differences[file] for kind, file in files.items()},
            "images": "some text",
        }
    if config.card:
        write_atomically(Path(config.card), text_card(model, files))
        written["card"] = config.card
    return written


def images_for(model: Model, data: str, folder: Path) -> tuple[Any, str]:
    """(arrays as the model was trained on, what they are): of DATA, of the run's data, or, if there
    are none, noise."""
    from proxnas.domains.images.deliver import IMAGES
    from proxnas.report.reading import read_config

    spec = data or read_config(folder).get("data", "")
    try:
        if isinstance(spec, str) and spec:
            return real_images(model, spec), f"{IMAGES} images of {spec}"
    except InputError:
        if data:  # else it is not the user's doing that the run's data are gone
            raise
    import numpy as np

    C, H, W = model.shape
    noise = np.random.default_rng(0).integers(0, 256, (IMAGES, H, W, C))
    if model.pixels == "float32":
        mean, std = np.asarray(model.mean), np.asarray(model.std)
        return (mean + std * (noise / 64 - 2)).astype(np.float32), "noise (no DATA given)"
    return noise.astype(np.uint8), "noise (no DATA given)"


def real_images(model: Model, data: str) -> Any:
    """Some images of DATA, of its test part if it has one, as arrays of the size that the model
    reads."""
    import numpy as np

    from proxnas.domains.images.data.images import load
    from proxnas.domains.images.data.options import LoadOptions
    from proxnas.domains.images.deliver import IMAGES

    C, H, W = model.shape
    images = load(data, LoadOptions(for_model=model.shape))
    if images.shape != model.shape or str(images.x_test.dtype) != model.pixels:
        found = f"{'x'.join(map(str, images.shape))} {images.x_test.dtype}"
        raise InputError(
            f"{data}: images are {found}, the model reads {C}x{H}x{W} {model.pixels}: give such"
            " images"
        )
    return np.asarray((images.x_test if len(images.y_test) else images.x_train)[:IMAGES])
