"""proxnas: neural architecture search by proximal iterations (NASP) in PyTorch.

Public names are resolved late, so that `import proxnas` and the command line's help need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Choice": "proxnas.core.choice",
    "DARTS": "proxnas.methods.darts",
    "Found": "proxnas.searching.found",
    "Genotype": "proxnas.cells.genotype",
    "Group": "proxnas.core.choice",
    "ImageClassifier": "proxnas.workflows.classifier",
    "InputError": "proxnas.common.errors",
    "Node": "proxnas.core.choice",
    "Supernet": "proxnas.core.supernet",
    "TrainedModel": "proxnas.domains.trained",
    "compare": "proxnas.workflows.compare",
    "derive": "proxnas.domains.modules.space",
    "fit": "proxnas.workflows.fitting",
    "load_found": "proxnas.searching.found",
    "load_model": "proxnas.domains.trained",
    "prox_c": "proxnas.core.prox",
    "prox_c1": "proxnas.core.prox",
    "prox_c2": "proxnas.core.prox",
    "search": "proxnas.searching.module",
    "searchable": "proxnas.domains.modules.searchable",
    "sweep": "proxnas.workflows.sweep",
    "train": "proxnas.workflows.train",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    if name[:1].isupper():  # the options of a method: NASP, GDAS, ...
        methods = import_module("proxnas.methods")
        for public, options in methods.public_options():
            if public == name:
                return options
    raise AttributeError(f"module 'proxnas' has no attribute {name!r}")
