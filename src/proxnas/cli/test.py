"""`proxnas test MODEL DATA`: a trained model on the test part of a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxnas.cli import text as text_commands
from proxnas.common.say import plain, say
from proxnas.searching.settings import parse
from proxnas.training.options import TestConfig
from proxnas.workflows.train_settings import need

MOST_SHOWN = 20  # classes whose confusion matrix fits on a screen


def main(argv: list[str]) -> None:
    """Tests the model, prints the figures or writes them into a file."""
    if text_commands.about_text_model(argv):
        text_commands.test(argv)
        return
    config = parse(TestConfig, "proxnas test", argv)
    need(config, "model", "data")
    figures = _figures(config)
    _print(figures)
    if config.json:
        from proxnas.runs.folder import write_atomically

        write_atomically(Path(config.json), json.dumps(figures, indent=2) + "\n")


def _figures(config: TestConfig) -> dict[str, Any]:
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.images.model import load_model
    from proxnas.domains.images.testing import load_for, test_model

    set_threads(config.threads)
    device = pick_device(config.device)
    model = load_model(config.model, device)
    return {"model": config.model, "data": config.data} | test_model(
        model, load_for(model, config), config.part
    )


def _print(figures: dict[str, Any]) -> None:
    top5 = f"  top 5 {figures['top5']:.4f}" if "top5" in figures else ""
    say(
        f"{figures['part']} accuracy {figures['accuracy']:.4f}{top5}  loss {figures['loss']:.4f}"
        f"  ({figures['images']} images: {figures['tested']})"
    )
    accuracies = {plain(name): accuracy for name, accuracy in figures["per_class"].items()}
    width = max(map(len, accuracies))
    for name, accuracy in accuracies.items():
        say(f"  {name:<{width}}  {'no images' if accuracy is None else f'{accuracy:.4f}'}")
    if len(figures["confusion"]) <= MOST_SHOWN:
        say("confusion (row: true class, column: answer)")
        digits = len(str(max(map(max, figures["confusion"]))))
        for name, row in zip(figures["classes"], figures["confusion"], strict=True):
            say(f"  {plain(name):<{width}}  " + " ".join(f"{count:>{digits}}" for count in row))
