"""`proxnas generate MODEL --prompt "..."`: text from a trained language model."""

from __future__ import annotations

from proxnas.common.say import note, say
from proxnas.domains.text.options import GenerateConfig
from proxnas.searching.settings import parse
from proxnas.workflows.train_settings import need


def main(argv: list[str]) -> None:
    """Prints the prompt and what the model makes of it."""
    config = parse(GenerateConfig, "proxnas generate", argv)
    need(config, "model")
    from proxnas.common.environment import pick_device, set_threads
    from proxnas.domains.text.model import load_text_model

    set_threads(config.threads)
    model = load_text_model(config.model, pick_device(config.device))
    if (unknown := model.unknown(config.prompt)) and not config.quiet:
        shown = ", ".join(map(repr, unknown[:5]))
        note(f"not in the model's vocabulary, read as <unk>: {shown}")
    say(model.generate(config.prompt, config.words, config.temperature, config.seed))
