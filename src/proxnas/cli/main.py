"""The command line: one dict of commands, each imported when it is called, so that help is
quick."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from importlib import import_module

from proxnas import __version__
from proxnas.common.cores import wait_without_spinning
from proxnas.common.errors import InputError, in_flags, unknown
from proxnas.common.interrupt import Interrupted, terminable
from proxnas.common.launch import (
    PeerLost,
    ProcessPlace,
    check_command,
    command_to_continue,
    place_by_torchrun,
    speaks,
    taking,
)
from proxnas.common.say import note, say
from proxnas.runs.processes import Ended

COMMANDS = {
    "fit": "search, train, test and export, in one go",
    "search": "search a cell on your data; makes a run folder",
    "train": "train the network of a cell from scratch, and test it",
    "test": "test a trained model: accuracy, by class, confusion matrix",
    "predict": "say what a trained model sees in images",
    "generate": "let a trained language model write on from a prompt",
    "show": "show a cell as text, or draw it with --svg, --png or --pdf FILE",
    "report": "one HTML page of runs: the cell by epoch, curves, configuration",
    "watch": "the same page live while a run is under way",
    "runs": "list runs: how far, how good, how large, how long",
    "export": "write a trained model as ONNX or torch.export program, and its card",
    "evaluate": "evaluate one cell of a search: what its workers do",
    "zoo": "list the published cells and networks, or show one",
    "sweep": "search with several etas or limits; size against accuracy",
    "compare": "search with several methods and seeds; tables, tests and figures",
    "query": "look a NAS-Bench-201 cell up in a table of trained networks",
    "latency": "measure the operations of a space on this machine, for limits on time",
    "bench": "time and memory of an iteration, NASP beside DARTS",
}
"""Command -> what it does; `main` of the module of that name takes the rest of the command line."""


def usage() -> str:
    """The text of `proxnas --help`."""
    commands = "\n".join(f"  {name:<8} {text}" for name, text in COMMANDS.items())
    return f"""usage: proxnas COMMAND ...

Neural architecture search by proximal iterations.

{commands}

proxnas COMMAND ... --help lists its flags, with the values that they have on that
command line; proxnas --version prints the version."""


def main(argv: list[str] | None = None) -> int:
    """Runs a command line; returns its exit code: 0 done, 2 bad input, 1 an internal error, 130,
    143 or 129 stopped."""
    # a process of our own: torch is not loaded yet, and nobody else's threads wait here
    if argv is None:
        wait_without_spinning()
    arguments = sys.argv[1:] if argv is None else argv
    return _answered(lambda: _launched(arguments))


def _launched(arguments: list[str]) -> int:
    """Runs a command line by itself, or as one process of those that torchrun has started."""
    place = place_by_torchrun()
    if place is None:
        return _dispatch(arguments)
    # the others would print the same
    own = nullcontext() if place.leads else redirect_stdout(io.StringIO())
    # whether a process may say what went wrong is known only while it takes its place
    with taking(place), own:
        return _answered(lambda: _together(place, command_to_continue(place, arguments)))


def _together(place: ProcessPlace, arguments: list[str]) -> int:
    check_command(place, arguments)
    if place.alone:
        return _dispatch(arguments)
    from proxnas.runs.messages import take_part

    with take_part(place):
        return _answered(lambda: _dispatch(arguments))


def _answered(work: Callable[[], int]) -> int:
    """The exit code of what is done; every fault is said in one line, but for those of proxnas."""
    try:
        with terminable():
            code = work()
        sys.stdout.flush()  # here, where a broken pipe can still be told
        return code
    except InputError as error:
        return _say(in_flags(error), 2)
    except PeerLost as error:
        return _say(str(error), 1)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        # else Python complains again when it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # a full disk, a folder that vanished: no traceback would explain it
        place, why = error.filename or "input or output", error.strerror or error
        return _say(f"{place}: {why}: check the path and the disk", 2)
    except Interrupted as stop:
        goes_on = "; a checkpoint is written: the same command with --resume goes on"
        return _say(f"{stop}{goes_on if stop.saved else ''}", stop.exit_code)
    except Ended as end:  # what went wrong was said by those who did the work
        return end.code
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except Exception:
        say(traceback.format_exc(), file=sys.stderr)
        return _say(
            f"internal error in proxnas {__version__}: please report the lines above with the"
            " command",
            1,
        )


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        say(f"proxnas {__version__}")
        return 0
    # only the module of this command is imported: help must be quick
    name, *rest = arguments
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    import_module(f"proxnas.cli.{name}").main(rest)
    return 0


def _say(message: str, code: int) -> int:
    if not speaks():
        return code
    note(f"{'error: ' if code in (1, 2) else ''}{message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
