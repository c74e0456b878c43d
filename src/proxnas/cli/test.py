"""`proxnas test MODEL DATA`: a trained model on the test part of a data set."""

from __future__ import annotations

import json
from pathlib import Path

from proxnas.common.files import write_atomically
from proxnas.common.say import say
from proxnas.common.words import parse_options
from proxnas.workflows.about import testing_domain
from proxnas.workflows.train import need


def main(argv: list[str]) -> None:
    """Tests the model, prints the figures, and writes them into a file if asked."""
    domain = testing_domain(argv)
    options = parse_options(domain.test_options, "proxnas test", argv)
    need(options, "model", "data")
    from proxnas.common.environment import set_threads
    from proxnas.domains.trained import load_model

    set_threads(options.threads)
    model = load_model(options.model, options.device)
    figures = {"model": options.model, "data": options.data} | model.test_by(options)
    for line in domain.test_lines(figures):
        say(line)
    if options.json:
        write_atomically(Path(options.json), json.dumps(figures, indent=2) + "\n")
