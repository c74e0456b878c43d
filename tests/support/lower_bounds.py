"""Prints the lowest version of every dependency that pyproject.toml allows, for `make lower`."""

from __future__ import annotations

import re
import tomllib

from support.places import ROOT


def lower_bounds() -> list[str]:
    """`name==version` for each `name>=version`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [
        re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement) for requirement in project["dependencies"]
    ]
    assert all(found), "a dependency without a lower bound"
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    print("\n".join(lower_bounds()))
