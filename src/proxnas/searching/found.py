"""What a search in a module of the user's own has found, and how it is kept in a file."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proxnas import __version__
from proxnas.cells.genotype import Genotype
from proxnas.common.errors import InputError
from proxnas.common.metrics_row import MetricsRow
from proxnas.domains.modules.space import derive
from proxnas.training.model_file import read_file, write_weights


@dataclass(frozen=True, eq=False)
class Found:
    """The outcome of `proxnas.search`."""

    genotype: dict[str, str]
    """Choice -> candidate; Choices inside candidates that were not chosen are left out."""
    A: dict[str, dict[str, float]]
    """Choice -> candidate -> its strength, for all of them; can start another search."""
    result: dict[str, Any]
    """What result.json holds: valid_loss and the metric, params, flops, epochs, seconds, converged,
    ..."""
    history: list[MetricsRow]
    """One row an epoch, as in metrics.jsonl."""
    module: nn.Module
    """The module that was searched, a copy of yours, with its Choices and all weights."""
    plain: nn.Module
    """The found model; `model()` gives copies of it."""
    selection: Genotype
    """The genotype as it is written into files, with the factors of candidates that were searched
    with value a_k."""

    def model(self) -> nn.Module:
        """A plain module without Choices, in evaluation mode: a copy with the weights of the
        search, the statistics of its batch norms measured on training batches. For the same
        architecture with fresh weights see `derive`."""
        return copy.deepcopy(self.plain)

    def save(self, path: str | os.PathLike[str]) -> None:
        """The model's weights as safetensors, the genotype and the figures in the metadata;
        `load_found` reads it."""
        metadata = {
            "proxnas": __version__,
            "genotype": self.selection.to_json(),
            "info": json.dumps(self.result),
        }
        for name, w in self.plain.state_dict().items():
            if not isinstance(w, Tensor):
                raise InputError(
                    f"{path}: {name} of the model is a {type(w).__name__}: only tensors can be"
                    " saved"
                )
        write_weights(Path(path), self.plain, metadata)

    def __str__(self) -> str:
        width = max(map(len, self.genotype))
        return "\n".join(
            f"{name:<{width}} = {candidate}" for name, candidate in self.genotype.items()
        )


def load_found(path: str | os.PathLike[str], module: nn.Module) -> nn.Module:
    """The plain model that `Found.save` or a run folder holds; `module` is built as it was for the
    search.

    Its weights do not matter, and it is left as it is. The model is in evaluation mode, on the
    module's device.
    """
    return read_file(path, lambda file, metadata: _read(file, metadata, module))


def _read(file: Any, metadata: Mapping[str, str], module: nn.Module) -> nn.Module:
    if "genotype" not in metadata:
        raise InputError(
            "not written by proxnas (no genotype in its metadata): give a file of Found.save"
        )
    model = derive(module, Genotype.from_json(metadata["genotype"]))
    wanted, names = model.state_dict(), set(file.keys())
    # what only one of the two has
    if different := sorted(wanted.keys() ^ names):
        where = "the file" if different[0] in wanted else "the module"
        missing = f"{different[0]} is not in {where} ({len(different)} in all)"
        raise InputError(f"{missing}: build the module as for the search")
    for name, like in wanted.items():
        if (shape := list(file.get_slice(name).get_shape())) != list(like.shape):
            raise InputError(
                f"{name} has shape {shape}, in the module {list(like.shape)}: build it as for the"
                " search"
            )
    with torch.no_grad():
        model.load_state_dict({name: file.get_tensor(name) for name in wanted})
    return model.eval()
