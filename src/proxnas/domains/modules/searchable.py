"""Choices in a module that has none: layers are found by type or by name, and each may stay as it
is or become something else.

For models that are built elsewhere (timm, transformers, torchvision), where nobody wants to write
the code of a block again to put a Choice into it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch import nn

from proxnas.common.errors import InputError
from proxnas.common.say import list_names
from proxnas.core.choice import Choice

KEPT = "as_is"
"""The candidate that is the layer itself, with its weights; the first one, so that a module does
before a search what it did without Choices."""
RANK = 4
"""A linear map through 1 / RANK of its smaller side has at most half as many parameters."""
LEAST_RANK = 8
"""Less is none for what tells classes apart."""

Layers: TypeAlias = Mapping[str, nn.Module]
Rule: TypeAlias = Layers | Callable[[Any], Layers | None]
Rules: TypeAlias = Mapping[str | type[nn.Module], Rule]


def searchable(module: nn.Module, candidates: Rules | None = None) -> nn.Module:
    """A copy of a module in which layers are Choices: as they are, or something else.

    Args:
        module: any nn.Module, with the weights that it has.
        candidates: what else a layer may be: its type, or its name with * for any part of it
            (`"layer3.*"`, `"blocks.*.mlp"`) -> a dict of modules, or a function from the layer to
            one (empty, or None: this layer stays). They take what the layer takes and put out one
            tensor of the same shape. Without `candidates` something lighter: of convolutions
            `separable` and `pointwise`, of large linear maps `low_rank`.
    """
    module = copy.deepcopy(module)
    found = _lighter_layers(module) if candidates is None else _asked_layers(module, candidates)
    choices = {layer: Choice({KEPT: layer, **others}) for layer, others in found.items()}
    # listed before: a Choice is no place for itself. Layers within layers are among them, so
    # Choices may stand in Choices
    for parent in list(module.modules()):
        # not named_children, which passes over the second name of a layer
        for name, child in list(parent._modules.items()):
            if child in choices:
                setattr(parent, name, choices[child])
    return choices.get(module, module)


def _asked_layers(module: nn.Module, rules: Rules) -> dict[nn.Module, dict[str, nn.Module]]:
    """Layer -> its other candidates, by the rules of the user."""
    found: dict[nn.Module, dict[str, nn.Module]] = {}
    for key, rule in rules.items():
        layers = [part for name, part in module.named_modules() if _matches(key, name, part)]
        if not layers:
            raise InputError(f"candidates: {_no_layer(module, key)}")
        for layer in layers:
            # a dict is for all of them: each has weights of its own
            others = rule(layer) if callable(rule) else copy.deepcopy(dict(rule))
            for name, other in (others or {}).items():
                known = (KEPT, *found.get(layer, {}))
                if name in known or not isinstance(other, nn.Module):
                    why = "is there already" if name in known else f"is a {type(other).__name__}"
                    raise InputError(
                        f"candidates: {name!r} of {_called(key)} {why}: give modules with names of"
                        " their own"
                    )
                found.setdefault(layer, {})[name] = other
    if not found:
        raise InputError("candidates: none is given for any layer: nothing is to be chosen")
    return found


def _matches(key: str | type[nn.Module], name: str, part: nn.Module) -> bool:
    if not isinstance(key, str):
        return isinstance(part, key)
    # part by part: blocks.* are the blocks, and not what is inside them; the module has no name
    parts, wanted = name.split("."), key.split(".")
    return name != "" and len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _called(key: str | type[nn.Module]) -> str:
    return repr(key) if isinstance(key, str) else key.__name__


def _no_layer(module: nn.Module, key: str | type[nn.Module]) -> str:
    """That nothing is called so, and what is."""
    parts = dict(module.named_modules())
    if isinstance(key, str):
        close = get_close_matches(key, parts, 3) or [name for name in parts if name]
        return f"no layer of {type(module).__name__} is called {key!r}: there is {_few(close)}"
    kinds = sorted({type(part).__name__ for name, part in parts.items() if name})
    return f"{type(module).__name__} has no {key.__name__}: it has {_few(kinds)}"


def _few(names: list[str]) -> str:
    return list_names(names, 6) or "none"


# ------------------------------------------------- what is lighter


READ_INSIDE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Modules of torch that compute with the weights of their layers without calling them."""
CONVOLUTIONS: tuple[type[Any], ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _lighter_layers(module: nn.Module) -> dict[nn.Module, dict[str, nn.Module]]:
    """Layer -> what has fewer parameters and takes and puts out the same."""
    shared = _shared_weights(module)
    untouched: set[nn.Module] = set()
    for part in module.modules():
        if isinstance(part, READ_INSIDE):
            untouched.update(part.modules())
    found = {}
    for layer in module.modules():
        # a weight that others use as well, as of tied embeddings, would stay anyway
        if layer in untouched or any(id(w) in shared for w in layer.parameters()):
            continue
        if others := _lighter(layer):
            found[layer] = others
    if not found:
        raise InputError(
            f"{type(module).__name__} has no layer that something lighter is known for"
            " (convolutions of odd kernels, large linear maps): give candidates={type or name:"
            " function from the layer to a dict of modules}"
        )
    return found


def _shared_weights(module: nn.Module) -> set[int]:
    """The ids of the weights that stand in several layers."""
    owners: dict[int, int] = {}
    for part in module.modules():
        for w in part.parameters(recurse=False):
            owners[id(w)] = owners.get(id(w), 0) + 1
    return {key for key, count in owners.items() if count > 1}


def _lighter(layer: nn.Module) -> dict[str, nn.Module]:
    # by the very type: a layer that inherits may compute something else
    if type(layer) in CONVOLUTIONS:
        return _lighter_convolutions(layer)
    if type(layer) is nn.Linear:
        return _low_rank(layer)
    return {}


def _lighter_convolutions(layer: Any) -> dict[str, nn.Module]:
    """A depthwise convolution with a pointwise one, and a pointwise one alone, of those whose
    output is as large as that of a pointwise one: padded by half of what the kernel spans."""
    spans = [(k - 1) * d for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
    even = any(span % 2 for span in spans)
    halves = "same" if layer.padding == "same" else tuple(span // 2 for span in spans)
    if even or not any(spans) or layer.groups > 1 or layer.padding != halves:
        return {}
    make, bias = type(layer), layer.bias is not None
    like: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    depthwise = make(
        layer.in_channels,
        layer.in_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        groups=layer.in_channels,
        bias=False,
        padding_mode=layer.padding_mode,
        **like,
    )
    ends = layer.in_channels, layer.out_channels, 1
    separable = nn.Sequential(depthwise, make(*ends, bias=bias, **like))
    pointwise = make(*ends, stride=layer.stride, bias=bias, **like)
    return _smaller(layer, {"separable": separable, "pointwise": pointwise})


def _low_rank(layer: nn.Linear) -> dict[str, nn.Module]:
    """Two maps with few channels between them, which begin as near to the layer as so few can."""
    rank = min(layer.in_features, layer.out_features) // RANK
    if rank < LEAST_RANK:
        return {}
    like: dict[str, Any] = {"device": layer.weight.device, "dtype": layer.weight.dtype}
    first = nn.Linear(layer.in_features, rank, bias=False, **like)
    second = nn.Linear(rank, layer.out_features, bias=layer.bias is not None, **like)
    with torch.no_grad():
        # W = U S V; half of the scale in each of them
        U, S, V = torch.linalg.svd(layer.weight.float(), full_matrices=False)
        scale = S[:rank].sqrt()
        second.weight.copy_(U[:, :rank] * scale)
        first.weight.copy_(scale[:, None] * V[:rank])
        if layer.bias is not None:
            second.bias.copy_(layer.bias)
    return _smaller(layer, {"low_rank": nn.Sequential(first, second)})


def _smaller(layer: nn.Module, others: Layers) -> dict[str, nn.Module]:
    """Those that have fewer parameters, in the mode of the layer."""
    size = _parameters(layer)
    found = {name: other for name, other in others.items() if _parameters(other) < size}
    return {name: other.train(layer.training) for name, other in found.items()}


def _parameters(module: nn.Module) -> int:
    return sum(w.numel() for w in module.parameters())
