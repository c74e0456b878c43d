"""`proxnas predict MODEL IMAGE...`: what a trained model sees in images."""

from __future__ import annotations

import json

from proxnas.settings import parse
from proxnas.train_config import PredictConfig
from proxnas.train_settings import need


def main(argv: list[str]) -> None:
    """Prints a line an image, or JSON."""
    config = parse(PredictConfig, "proxnas predict", argv)
    need(config, "model", "images")
    from proxnas.environment import pick_device, set_threads
    from proxnas.model import load_model

    set_threads(config.threads)
    model = load_model(config.model, pick_device(config.device))
    answers = model.predict(list(config.images), config.top)
    if config.json:
        rows = [
            {"image": image, "answers": [{"class": a.name, "probability": a.probability} for a in row]}
            for image, row in zip(config.images, answers, strict=True)
        ]
        print(json.dumps(rows, indent=2))
        return
    for image, row in zip(config.images, answers, strict=True):
        print(f"{image}  " + "  ".join(f"{a.name} {a.probability:.4f}" for a in row))
