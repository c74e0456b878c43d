"""Whether a module with Choices can be searched: asked before the search, so that its answer names
the place."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from proxnas.common.errors import InputError
from proxnas.common.types import Batch
from proxnas.core.choice import Call, Choice, MisusedChoice, Source
from proxnas.core.groups import NONE
from proxnas.core.supernet import Supernet


def check_parameters(module: nn.Module) -> None:
    """Candidates of one Choice have weights of their own: else training one would change
    another."""
    for choice in (part for part in module.modules() if isinstance(part, Choice)):
        owner: dict[int, str] = {}  # id of a parameter -> the candidate that holds it
        for name, candidate in zip(choice.names, choice.candidates, strict=True):
            for parameter, w in candidate.named_parameters():
                if id(w) in owner and owner[id(w)] != name:
                    raise InputError(
                        f"Choice {_name(choice)!r}: candidates {owner[id(w)]!r} and {name!r} share"
                        f" the parameter {parameter!r}: give each its own"
                    )
                owner[id(w)] = name
    if not any(w.requires_grad for w in module.parameters()):
        raise InputError(
            "the module has no parameters that can be trained: there is nothing to search by"
        )


@torch.no_grad()
def check_candidates(net: Supernet, batch: Batch) -> None:
    """Every candidate of every Choice is run once on a batch: it takes the input, leaves it as it
    is, and puts out what the others do. Every Choice must be called, if only inside a candidate."""
    called: set[str] = set()
    try:
        # no row is listed: every Choice runs its first candidate, the others follow below
        net.use({})
        with net.taped() as tape:
            net.loss(batch)
            for call in tape:  # grows while candidates that hold Choices are run
                if isinstance(call, Call):
                    called |= set(map(_name, call.choices))
                    _check_call(call)
    except MisusedChoice as error:
        raise InputError(str(error)) from error
    for name in net.groups:
        if name not in called:
            raise InputError(
                f"Choice {name!r} is never called in forward: call it, or take it out of the module"
            )


def _check_call(call: Call) -> None:
    for choice, k, source in _candidates(call):
        output = _run(choice, k, source)
        # the first candidate put out what the call did, so it is what the others are held to
        for what in ("shape", "dtype", "device"):
            found, wanted = getattr(output, what), getattr(call.output, what)
            if found != wanted:
                raise InputError(
                    f"Choice {_name(choice)!r}: candidate {choice.names[k]!r} puts out {what}"
                    f" {_text(found)}, {choice.names[0]!r} {_text(wanted)}: all candidates must put"
                    f" out the same {what}"
                )
        if choice.names[k] == NONE and output.any():
            raise InputError(
                f"Choice {_name(choice)!r}: candidate {NONE!r} is no connection and must put out"
                " zeros"
            )


def _candidates(call: Call) -> Iterator[tuple[Choice, int, Source]]:
    for choice, source in zip(call.choices, call.sources, strict=True):
        for k, name in enumerate(choice.names):
            if k or name == NONE:  # the first one has run
                yield choice, k, source


def _run(choice: Choice, k: int, source: Source) -> Tensor:
    try:
        return choice.run(k, source)
    except (InputError, MisusedChoice):
        raise
    except Exception as error:
        where = f"Choice {_name(choice)!r}: candidate {choice.names[k]!r}"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{where} fails on its input: {reason}") from error


def _name(choice: Choice) -> str:
    assert choice.row is not None
    return choice.row.group


def _text(value: object) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)
