"""An executor for tests of studies."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from proxnas.cli.main import main
from proxnas.common.interrupt import Interrupted
from proxnas.runs.executors.tasks import Board, Outcome, RunTask


class Here:
    """An executor that runs its tasks in this process, where torch is loaded; `stop_after` so many
    it is stopped."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.ran: list[str] = []
        self.stop_after = stop_after

    def run(
        self, tasks: Sequence[RunTask], board: Board, done: Callable[[Outcome], None]
    ) -> list[Outcome]:
        outcomes = []
        for task in tasks:
            if len(self.ran) == self.stop_after:
                raise Interrupted(signal.SIGTERM)
            self.ran.append(task.name)
            code = main([*task.argv, f"--run={task.folder}", "--resume", "--threads=1", "--quiet"])
            outcomes.append(Outcome(task, code, f"exit code {code}" if code else ""))
            board.end(outcomes[-1])
            done(outcomes[-1])
        return outcomes
