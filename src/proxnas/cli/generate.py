"""`proxnas generate MODEL --prompt "..."`: text from a trained language model."""

from __future__ import annotations

from proxnas.common.say import note, say
from proxnas.common.words import parse_options
from proxnas.domains.text.options import GenerateOptions
from proxnas.workflows.train import need


def main(argv: list[str]) -> None:
    """Prints the prompt and what the model makes of it."""
    options = parse_options(GenerateOptions, "proxnas generate", argv)
    need(options, "model")
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.text.model import load_text_model

    set_threads(options.threads)
    model = load_text_model(options.model, pick_device(options.device))
    # on stderr, and before it writes: words that it reads as <unk> explain what it makes of them
    if (unknown := model.unknown(options.prompt)) and not options.quiet:
        shown = ", ".join(map(repr, unknown[:5]))
        note(f"not in the model's vocabulary, read as <unk>: {shown}")
    say(model.generate(options.prompt, options.words, options.temperature, options.seed))
