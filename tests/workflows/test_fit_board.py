"""What a fit by the clock says of its search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxnas.domains.images.one_pass import OnePass
from proxnas.workflows.fit_board import what_search_won
from support.passes import PLAN, images

CHOICE: dict[str, Any] = {"gain": 0.25, "error": 0.05, "seconds": 3.0}
MADE, NOT_MADE = (["body", 0, 0, 1, 0.2, 0.01, made] for made in (True, False))


@pytest.mark.parametrize(
    ("changes", "choice", "tried", "said"),
    [
        ({"search": False}, {}, [], "nothing was searched for: without a limit"),
        ({}, {}, [NOT_MADE], "the search won nothing: of 1 swaps tried none was clear of noise"),
        (
            {},
            CHOICE,
            [MADE, NOT_MADE],
            "the search made 1 of 2 swaps tried: validation loss lower by 0.250 (+- 0.050) at the"
            " choice, 1,234 parameters where the plain network has ",
        ),
        (
            {"limit_of": "params", "limit": 3000.0, "limit_asked": "--max-params 3000"},
            CHOICE,
            [],
            "within the limit: validation loss changed by -0.250 (+- 0.050) at the choice, 1,234"
            " parameters where the plain network has ",
        ),
    ],
)
def test_a_line_says_what_the_search_won(
    changes: dict[str, Any], choice: dict[str, Any], tried: list[Any], said: str
) -> None:
    job = OnePass(replace(PLAN, **changes), images(), follow=[0.0])
    job.choice, job.tried = choice, tried
    won = what_search_won(job, 1234)
    plain = f"{sum(w.numel() for w in job.network().parameters()):,}"
    assert won["said"].startswith(said)
    assert not choice or won["said"] == said + plain
    assert (won["tried"], won["won"]) == (len(tried), sum(row[-1] for row in tried))
