"""Files of options: JSON, YAML or TOML, an object of names and values, checked before anything is
made of it. No torch here."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from proxnas.common.errors import InputError, in_one_line, unknown
from proxnas.common.options import Options, describe_type, fits
from proxnas.common.stored import parse_json

FINGERPRINT = "fingerprint"
"""The key of config.json that tells whether the data are still the same."""
STAMP = ("proxnas", "command", FINGERPRINT)
"""Keys of a stored config.json that are no options: the version, the command that wrote it, what
tells its data."""
RENAMED = {"budget_minutes": "minutes"}
"""Keys of files that earlier versions wrote, with their names today."""
KINDS = {".yaml": "YAML", ".yml": "YAML", ".toml": "TOML"}
"""Ending -> kind of file; JSON for all others."""


def read_values(path: Path, known: type[Options] | Mapping[str, Any]) -> dict[str, Any]:
    """Name -> value from a file, checked against the types, which a class has or a dict."""
    kind = KINDS.get(path.suffix.lower(), "JSON")
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}): give a JSON, YAML or TOML file"
        ) from error
    try:
        values = PARSERS[kind](text)
    except (ValueError, RecursionError) as error:
        reason = in_one_line(error) if kind != "JSON" else str(error)
        raise InputError(
            f"{path}: not {kind} ({reason}): give an object of option names and values"
        ) from error
    return check_values(path, values, known.all_hints() if isinstance(known, type) else known)


def _parse_toml(text: bytes) -> Any:
    return tomllib.loads(text.decode())


def _parse_yaml(text: bytes) -> Any:
    """Plain data only: nothing of a file is ever run."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(
            "YAML files need the extra yaml: pip install 'proxnas[yaml]', or give JSON or TOML"
        ) from error
    try:
        return yaml.safe_load(text.decode())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


PARSERS = {"JSON": parse_json, "YAML": _parse_yaml, "TOML": _parse_toml}


def check_values(path: Path, values: Any, hints: Mapping[str, Any]) -> dict[str, Any]:
    """The same from a file that is parsed already."""
    if not isinstance(values, dict):
        raise InputError(f"{path}: not a JSON object of option names and values")
    kept: dict[str, Any] = {}
    for key, value in values.items():
        # of a stored config.json, which is a file of options too
        if key not in STAMP:
            # a file may spell options as flags do
            name = str(key).replace("-", "_")
            kept[RENAMED.get(name, name)] = value
    if kept.get("threads", 1) in (0, None):  # so earlier versions wrote "as many as torch takes"
        kept["threads"] = "auto"
    for name, value in kept.items():
        if name not in hints:
            raise InputError(f"{path}: {unknown('key', name, hints)}")
        if not fits(value, hints[name]):
            raise InputError(
                f"{path}: {name} is {json.dumps(value, default=str)[:60]}: give"
                f" {wanted_in_json(hints[name])}"
            )
    return kept


def wanted_in_json(hint: Any) -> str:
    """A type for people, its choices as JSON writes them."""
    if get_origin(hint) is Annotated:
        return wanted_in_json(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(hint))
    return describe_type(hint)
