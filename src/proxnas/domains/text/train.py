"""A language model from its cell and a text to a tested model in a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proxnas.cells.genotype import Genotype
from proxnas.cells.reading import read_genotype
from proxnas.core.size.complexity import parameters
from proxnas.domains.model_file import FILE
from proxnas.domains.text.data.text import Text, TextOptions, load
from proxnas.domains.text.data.vocabulary import UNKNOWN
from proxnas.domains.text.language import LanguageModel
from proxnas.domains.text.model import TextModel, multiply_adds, save_text_model
from proxnas.domains.text.options import TextTrainConfig, TokenFlags
from proxnas.domains.text.perplexity import Reading, perplexity, read_through
from proxnas.domains.text.settings import is_lstm
from proxnas.domains.text.training import TextTraining
from proxnas.runs.deadline import MINUTES, Deadline
from proxnas.runs.folder import Run, write_atomically
from proxnas.runs.loop import Progress, run_epochs
from proxnas.training.origin import method_of


def find_cell(spec: str) -> Genotype | None:
    """The recurrent genotype that CELL names; None for the LSTM."""
    return None if is_lstm(spec) else read_genotype(spec)


def text_options(config: TokenFlags) -> TextOptions:
    """How the text becomes tokens."""
    return TextOptions(config.tokens, config.max_words, config.min_count, config.train_tokens)


def build_text_training(config: TextTrainConfig, folder: Path) -> TextTraining:
    """The training that is described, after all input was found good; a resumed one keeps its
    cell."""
    kept = folder / "genotype.json"
    cell = read_genotype(kept) if config.resume and kept.exists() else find_cell(config.cell)
    return TextTraining(config, load(config.data, text_options(config)), cell)


def train_text(
    this: TextTraining, run: Run, progress: Progress, deadline: Deadline | None = None
) -> dict[str, Any]:
    """Trains to the end, from where the folder stands, tests the best weights; returns what
    result.json holds."""
    if this.cell:
        write_atomically(run / "genotype.json", this.cell.to_json())
    run.keep_vocabulary(this.text.vocabulary)
    deadline = deadline or Deadline()
    rows = run_epochs(this, run, progress, deadline)
    network = this.best_network()
    tested = read_through(network, this.text.test, this.config.test_batch_size, this.config.bptt)
    result = {"method": method_of(this.config.cell, run)} | _result(this, rows, network, tested)
    if deadline.cut:
        result["stopped"] = MINUTES
    save_text_model(run / FILE, _model(this, network, result))
    run.write_json("result.json", result)
    return result


def _result(
    this: TextTraining, rows: list[dict[str, Any]], network: LanguageModel, tested: Reading
) -> dict[str, Any]:
    return {
        "cell": this.config.cell,
        "space": this.cell.space if this.cell else None,
        "data": this.config.data,
        "seed": this.config.seed,
        "genotype": json.loads(this.cell.to_json()) if this.cell else None,
        "params": parameters(network),
        "flops": multiply_adds(network),
        "words": this.text.num_words,
        "valid_loss": this.best["loss"],
        "valid_perplexity": perplexity(this.best["loss"]),
        "best_epoch": this.best["epoch"],
        "averaged_from": this.averaged_from or None,
        "test_loss": tested.loss,
        "test_perplexity": tested.perplexity,
        "test_tokens": tested.tokens,
        "epochs": this.epochs_done,
        "seconds": sum(sum(row["seconds"].values()) for row in rows),
    }


def _model(this: TextTraining, network: LanguageModel, result: dict[str, Any]) -> TextModel:
    wanted = (
        "params",
        "flops",
        "valid_perplexity",
        "test_perplexity",
        "test_tokens",
        "epochs",
        "seed",
    )
    c = this.config
    info = {"data": this.text.name, "protocol": c.protocol} | {key: result[key] for key in wanted}
    reading = {
        "bptt": c.bptt,
        "valid_batch_size": c.valid_batch_size,
        "test_batch_size": c.test_batch_size,
    }
    return TextModel(
        network, this.cell, this.size, this.text.vocabulary, text_options(c), info | reading
    )


def text_figures(model: TextModel, text: Text, part: str) -> dict[str, Any]:
    """The figures of `proxnas test`, read in the same pieces as at the end of training."""
    tokens = {"train": text.train, "valid": text.valid, "test": text.test}[part]
    found = read_through(
        model.network, tokens, model.whole(f"{part}_batch_size", 10), model.whole("bptt", 35)
    )
    return {
        "part": part,
        "loss": found.loss,
        "perplexity": found.perplexity,
        "accuracy": found.accuracy,
        "tokens": found.tokens,
        "unknown": float((tokens == model.vocabulary.index(UNKNOWN)).mean()),
    }
