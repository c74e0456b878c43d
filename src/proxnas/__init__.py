"""proxnas: neural architecture search by proximal iterations (NASP) in PyTorch.

Public names are resolved late, so that `import proxnas` and the command line's help need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "Choice": "proxnas.choice",
    "Genotype": "proxnas.genotype",
    "Group": "proxnas.choice",
    "InputError": "proxnas.errors",
    "Node": "proxnas.choice",
    "Supernet": "proxnas.supernet",
    "prox_c": "proxnas.prox",
    "prox_c1": "proxnas.prox",
    "prox_c2": "proxnas.prox",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'proxnas' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
