"""From the words of a command line to options, by tyro; and back, for processes of other workers.

No torch here: `--help` must be quick.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, redirect_stderr
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import tyro

from proxnas.common.config_file import read_values
from proxnas.common.cores import check_threads
from proxnas.common.errors import POSITIONAL, InputError, flag_of, in_flags
from proxnas.common.help import page
from proxnas.common.launch import here
from proxnas.common.options import Options, flatten
from proxnas.common.say import note, say

Config = TypeVar("Config", bound=Any)
AnyConfig = TypeVar("AnyConfig", bound=Options)
HELP = ("--help", "-h")


def given_values(argv: list[str], name: str) -> list[str]:
    """The values of a flag on a command line that nobody has judged yet."""
    given = [value for word, value in pairwise(argv) if word == name]
    return given + [word.removeprefix(f"{name}=") for word in argv if word.startswith(f"{name}=")]


def words_without_flags(argv: list[str], without_value: set[str]) -> list[str]:
    """The words of a command line that are neither flags nor their values."""
    found, is_value = [], False
    for word in argv:
        flag = word.startswith("--")
        if not is_value and not word.startswith("-"):
            found.append(word)
        negated = word.replace("--no-", "--", 1)
        alone = "=" in word or {word, negated} & without_value
        # the next word belongs to this flag, unless that takes none or has it behind a =
        is_value = flag and not is_value and not alone
    return found


def flag_words(name: str, value: Any) -> list[str]:
    """A flag with its value; what is false or empty needs none."""
    if isinstance(value, bool):
        return [flag_of(name)] * value
    return [f"{flag_of(name)}={value}"] if value != "" else []


def words_for(values: Mapping[str, Any]) -> list[str]:
    """The words of a command line that give these values."""
    # DATA and CELL are words by their place, and so come first
    left = dict(values)
    words = [left.pop(name) for name in reversed(POSITIONAL) if name in left]
    for name, value in left.items():
        words += flag_words(name, value)
    return words


def with_address(argv: list[str]) -> list[str]:
    """The command line with `--ray` alone spelt out: a flag of ours may go without its value."""
    found = []
    for word, after in zip(argv, [*argv[1:], "--"], strict=False):
        alone = word == "--ray" and after.startswith("-")
        found.append("--ray=local" if alone else word)
    return found


def command_line(
    cls: type[Config],
    prog: str,
    argv: list[str],
    values: Mapping[str, Any] | None = None,
    default: Config | None = None,
) -> Config:
    """The options from flags, with `values`, or those of `default`, in place of their defaults."""
    if default is None and values:
        default = cls.from_values(values) if issubclass(cls, Options) else cls(**values)
    markers: tuple[Any, ...] = (tyro.conf.OmitArgPrefixes,)
    # else tyro would offer --no-pick in place of --pick, not both
    if not any(value is True for value in _leaves(default)):
        markers = (*markers, tyro.conf.FlagCreatePairsOff)  # --quiet without --no-quiet
    given = {} if default is None else {"default": default}
    # of several processes one complains
    with nullcontext() if here().leads else redirect_stderr(io.StringIO()):
        found: Config = tyro.cli(cls, args=with_address(argv), prog=prog, config=markers, **given)
    # not at birth: a run may be read, or go on, on another machine
    check_threads(getattr(found, "threads", "auto"))
    return found


def _leaves(default: Any) -> Iterable[Any]:
    if isinstance(default, Options):
        return flatten(default).values()
    return () if default is None else vars(default).values()


def with_help(
    argv: list[str],
    prog: str,
    resolve: Callable[[list[str]], AnyConfig],
    show: Callable[[AnyConfig], None] | None = None,
) -> AnyConfig:
    """The options that a command line resolves to; with --help its values are shown as the
    defaults, as `show` prints them or on a page.

    They come in layers, so no earlier step may print them. What cannot be resolved is said, and the
    help is that of the command alone.
    """
    words = [word for word in argv if word not in HELP]
    if words == argv:
        return resolve(argv)
    try:
        config = resolve(words)
    except InputError as error:
        note(f"{in_flags(error)}; the defaults below are those without flags")
        config = resolve([])
    if show is None:
        say(page(config, prog))
    else:
        show(config)
    raise SystemExit(0)


def parse_options(cls: type[AnyConfig], prog: str, argv: list[str]) -> AnyConfig:
    """The options of a command without layers: as declared, a --config file, the flags."""

    def resolve(words: list[str]) -> AnyConfig:
        asked = command_line(cls, prog, words)
        file: str = getattr(asked, "config", "")
        values = read_values(Path(file), cls) if file else None
        return command_line(cls, prog, words, values) if values else asked

    return with_help(argv, prog, resolve)


def config_file(argv: list[str], known: type[Options] | Mapping[str, Any]) -> dict[str, Any]:
    """The values of the --config file, found without judging the flags, which may be right only
    together with it."""
    given = given_values(argv, "--config")
    return read_values(Path(given[-1]), known) if given else {}


def epochs_given(argv: list[str], known: type[Options] | Mapping[str, Any]) -> bool:
    """Whether a flag or the --config file says how many epochs; the file of a run does, as they
    were chosen then."""
    return bool(given_values(argv, "--epochs")) or "epochs" in config_file(argv, known)
