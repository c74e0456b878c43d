"""`proxnas watch RUN`: the report of a run that is under way, live in the browser."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proxnas.common.errors import InputError, OptionError
from proxnas.common.say import say
from proxnas.common.words import command_line
from proxnas.report.live import ADDRESS, serve


@dataclass(frozen=True)
class WatchConfig:
    """Show a run as a page that follows it, on this machine only; Ctrl-C ends it, the run goes
    on."""

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run folder; the search need not have begun, and may be stopped and resumed meanwhile."""
    port: int = 0
    """Port on 127.0.0.1; 0: a free one."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise OptionError("port", self.port, "give a number from 0 to 65535")


def main(argv: list[str]) -> None:
    """Serves until it is stopped."""
    config = command_line(WatchConfig, "proxnas watch", argv)
    folder = Path(config.run)
    if not folder.is_dir():
        raise InputError(
            f"{config.run}: no such folder: start the run first (proxnas runs lists them)"
        )
    # the port is bound here, so the address can be said before the first answer
    with serve(folder, config.port) as server:
        say(
            f"watching {folder} at http://{ADDRESS}:{server.server_port}/ (Ctrl-C ends)", flush=True
        )
        # a shell without job control gave it to the background so
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        server.serve_forever(poll_interval=0.2)
