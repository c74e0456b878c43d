"""proxnas: neural architecture search by proximal iterations (NASP) in PyTorch.

Public names are resolved late, so that `import proxnas` and the command line's help need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Choice": "proxnas.choice",
    "DARTS": "proxnas.method_options",
    "Found": "proxnas.found",
    "GDAS": "proxnas.method_options",
    "Genotype": "proxnas.genotype",
    "Group": "proxnas.choice",
    "InputError": "proxnas.errors",
    "LazyPA": "proxnas.method_options",
    "NASP": "proxnas.method_options",
    "Node": "proxnas.choice",
    "PA": "proxnas.method_options",
    "RandomSearch": "proxnas.method_options",
    "SNAS": "proxnas.method_options",
    "Supernet": "proxnas.supernet",
    "derive": "proxnas.spaces.custom",
    "load_found": "proxnas.found",
    "prox_c": "proxnas.prox",
    "prox_c1": "proxnas.prox",
    "prox_c2": "proxnas.prox",
    "search": "proxnas.custom",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'proxnas' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
