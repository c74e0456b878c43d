"""Options: ranges, errors in the words of Python and of a command line, compositions."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Annotated, Any, Literal

import pytest

from proxnas.cli import main
from proxnas.common.errors import AboutOptions, InputError, OptionError, flag_of, unknown_value
from proxnas.common.options import (
    BELOW_ONE,
    COUNT,
    POSITIVE,
    SHARE,
    Options,
    Range,
    build,
    changed,
    flat_hints,
    flatten,
)


@dataclass(frozen=True)
class Heat(Options):
    tau_start: Annotated[float, POSITIVE] = 1.0
    tau_end: Annotated[float, POSITIVE] = 0.1

    def check(self) -> None:
        if self.tau_end > self.tau_start:
            raise OptionError("tau_end", self.tau_end, "give at most {tau_start}")


@dataclass(frozen=True)
class Colder(Heat):
    tau_end: Annotated[float, POSITIVE] = 0.01
    frozen: bool = False


@dataclass(frozen=True)
class Whole(Options):
    data: str = "digits"
    epochs: Annotated[int, COUNT] = 3
    kind: Literal["a", "b"] = "a"
    threads: Literal["auto"] | int = "auto"
    heat: Heat = field(default_factory=Heat)


@pytest.mark.parametrize(
    ("limits", "inside", "outside"),
    [
        (POSITIVE, [1e-9, 5], [0, -1, math.nan, math.inf]),
        (SHARE, [0.1, 1], [0, 1.1]),
        (BELOW_ONE, [0, 0.99], [1, -0.1]),
        (Range(2, 4), [2, 3, 4], [1, 5, 10**400]),
        (Range(0, also=-1), [0, -1, 7], [-2, -0.5]),
    ],
)
def test_a_range_admits_what_is_within(
    limits: Range, inside: list[float], outside: list[float]
) -> None:
    assert all(limits.admits(value) for value in inside)
    assert not any(limits.admits(value) for value in outside)


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        (POSITIVE, "give a number above 0"),
        (Range(1), "give a number of at least 1"),
        (SHARE, "give a number above 0, at most 1"),
        (BELOW_ONE, "give a number from 0 to below 1"),
        (Range(2, 4), "give a number from 2 to 4"),
        (Range(0, also=-1), "give a number of at least 0, or -1"),
        (Range(0, above=True, reason="or A rests"), "give a number above 0, or A rests"),
    ],
)
def test_a_range_says_what_to_give(limits: Range, advice: str) -> None:
    assert limits.advice() == advice


def test_a_wrong_value_is_named_in_python_and_on_the_command_line() -> None:
    with pytest.raises(OptionError) as caught:
        Heat(tau_end=-1)
    assert str(caught.value) == "tau_end -1: give a number above 0"
    assert caught.value.as_flag() == "--tau-end -1: give a number above 0"


def test_other_options_in_the_advice_are_spelt_alike() -> None:
    with pytest.raises(InputError) as caught:
        Heat(tau_start=0.01)
    assert str(caught.value) == "tau_end 0.1: give at most tau_start"
    assert isinstance(caught.value, OptionError)
    assert caught.value.as_flag() == "--tau-end 0.1: give at most --tau-start"


def test_words_of_the_user_are_not_taken_for_options() -> None:
    error = OptionError("data", "a{b}--c", "no such file, see {{x}}")
    assert str(error) == "data a{b}--c: no such file, see {x}"
    assert error.as_flag() == "DATA a{b}--c: no such file, see {x}"
    assert pickle.loads(pickle.dumps(error)).as_flag() == error.as_flag()


def test_a_name_that_is_not_known() -> None:
    error = unknown_value("max_skip", "nusp{", ["nasp", "pa"])
    assert str(error) == "unknown max_skip 'nusp{': did you mean nasp?"
    assert error.as_flag() == "unknown --max-skip 'nusp{': did you mean nasp?"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": "3"}, "epochs '3': give a whole number"),
        ({"epochs": True}, "epochs True: give a whole number"),
        ({"epochs": 1.5}, "epochs 1.5: give a whole number"),
        ({"epochs": 10**7}, "epochs 10000000: give a number from 1 to 1000000"),
        ({"kind": "c"}, "kind 'c': give one of a, b"),
        ({"threads": "many"}, "threads 'many': give auto or a whole number"),
        ({"tau_end": math.nan}, "tau_end nan: give a number"),
        ({"tau_end": 10**400}, f"tau_end {10**56}...: give a number"),
        ({"tau_ent": 0.1}, "unknown option 'tau_ent': did you mean tau_end or tau_start?"),
    ],
)
def test_values_are_checked_when_options_are_built(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build(Whole, values)
    assert str(caught.value) == message


def test_a_composition_is_flat_outside() -> None:
    whole = Whole(epochs=4, heat=Heat(tau_end=0.5))
    flat = flatten(whole)
    assert flat == {
        "data": "digits",
        "epochs": 4,
        "kind": "a",
        "threads": "auto",
        "tau_start": 1.0,
        "tau_end": 0.5,
    }
    assert build(Whole, flat) == whole
    assert list(flat_hints(Whole)) == list(flat)


def test_a_part_may_be_of_a_class_of_its_own() -> None:
    whole = build(Whole, {"frozen": True}, {"heat": Colder})
    assert whole.heat == Colder(frozen=True)
    assert flatten(whole)["tau_end"] == 0.01
    with pytest.raises(InputError, match="unknown option 'frozen'"):
        build(Whole, {"frozen": True})


def test_changes_by_flat_names() -> None:
    whole = Whole()
    assert changed(whole, epochs=9, tau_end=0.3) == Whole(epochs=9, heat=Heat(tau_end=0.3))
    assert changed(whole) is whole
    with pytest.raises(InputError, match="unknown option 'epoch': did you mean epochs"):
        changed(whole, epoch=1)
    with pytest.raises(OptionError, match="tau_end -1: give a number above 0"):
        changed(whole, tau_end=-1)


def test_a_name_below_a_composition_is_there_once() -> None:
    @dataclass(frozen=True)
    class Twice(Options):
        tau_end: float = 0.0
        heat: Heat = field(default_factory=Heat)

    with pytest.raises(TypeError, match="Twice has tau_end twice"):
        flatten(Twice())


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Whole().epochs = 3  # type: ignore[misc]


def test_flags() -> None:
    assert (flag_of("tau_end"), flag_of("data")) == ("--tau-end", "DATA")


def test_the_command_line_says_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> None:
        raise AboutOptions("{tau_end} and {data}: give one")

    monkeypatch.setattr("proxnas.cli.zoo.main", fail)
    assert main.main(["zoo"]) == 2
    assert "error: --tau-end and DATA: give one" in capsys.readouterr().err
