"""`proxnas predict MODEL IMAGE...`: what a trained model sees in images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proxnas.common.say import note, plain, say
from proxnas.common.words import parse_options
from proxnas.training.answers import Answer, Value
from proxnas.training.options import PredictOptions
from proxnas.workflows.train import need

if TYPE_CHECKING:
    from proxnas.domains.images.predicting import ImageRow


def main(argv: list[str]) -> None:
    """Prints a line an image, or JSON; images that cannot be read are named at the end."""
    options = parse_options(PredictOptions, "proxnas predict", argv)
    need(options, "model", "images")
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.images.model import load_model
    from proxnas.domains.images.predicting import Seen, predict

    set_threads(options.threads)
    model, seen = load_model(options.model, pick_device(options.device)), Seen()
    # an iterator: rows are printed while later images are still to be read
    rows = predict(model, options.images, options.top, seen)
    if options.json:
        say(json.dumps([_json(row) for row in rows], indent=2))
    else:
        for row in rows:
            if not row.error:
                say(
                    f"{plain(row.image)}  "
                    + "  ".join(f"{plain(name)} {figure:.4f}" for name, figure in row.answers)
                )
    if warning := seen.warning(model.shape):
        note(f"warning: {warning}")
    seen.check()


def _json(row: ImageRow) -> dict[str, Any]:
    answers = [_answer(answer) for answer in row.answers]
    return {"image": row.image, "answers": answers} | ({"error": row.error} if row.error else {})


def _answer(answer: Answer | Value) -> dict[str, Any]:
    """A class and its probability, or the name of a number and its value."""
    name, figure = answer
    if isinstance(answer, Value):
        return {"name": name, "value": figure}
    return {"class": name, "probability": figure}
