"""`proxnas predict MODEL IMAGE...`: what a trained model sees in images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from proxnas.common.say import note, plain, say
from proxnas.common.words import parse
from proxnas.training.options import PredictOptions
from proxnas.workflows.train_settings import need

if TYPE_CHECKING:
    from proxnas.domains.images.predicting import Row


def main(argv: list[str]) -> None:
    """Prints a line an image, or JSON; images that cannot be read are named at the end."""
    options = parse(PredictOptions, "proxnas predict", argv)
    need(options, "model", "images")
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.images.model import load_model
    from proxnas.domains.images.predicting import Seen, predict

    set_threads(options.threads)
    model, seen = load_model(options.model, pick_device(options.device)), Seen()
    rows = predict(model, options.images, options.top, seen)
    if options.json:
        say(json.dumps([_json(row) for row in rows], indent=2))
    else:
        for row in rows:
            if not row.error:
                say(
                    f"{plain(row.image)}  "
                    + "  ".join(f"{plain(a.name)} {a.probability:.4f}" for a in row.answers)
                )
    if warning := seen.warning(model.shape):
        note(f"warning: {warning}")
    seen.check()


def _json(row: Row) -> dict[str, Any]:
    answers = [{"class": a.name, "probability": a.probability} for a in row.answers]
    return {"image": row.image, "answers": answers} | ({"error": row.error} if row.error else {})
