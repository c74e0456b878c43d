"""Faults made on purpose, a few of each kind; `make faults` makes them in great number."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import proxnas.common.files
from faults import crash, disk
from faults import methods as killed_methods
from faults.crash import FORKED, Fault
from proxnas import methods
from proxnas.cli.main import main
from proxnas.common.errors import InputError
from proxnas.common.files import make_folder
from proxnas.report.live import Snapshot
from proxnas.runs.checkpoint import sound_state
from proxnas.runs.executors.pool import is_locked
from proxnas.runs.executors.processes import start_process
from proxnas.runs.executors.progress import progress_of
from proxnas.runs.folder import Run, open_run, write_atomically
from support.run_folders import make_run

EPOCHS = 2


@pytest.fixture(scope="module", params=["search", "train"])
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[str], Path]:
    """A command line, and the folder of its undisturbed run."""
    place = tmp_path_factory.mktemp(request.param)
    argv = crash.command(request.param, crash.stripes(place), EPOCHS)
    assert crash.run(argv, place / "alone") == 0, crash.printed(place / "alone")
    return argv, place / "alone"


only_search = pytest.mark.parametrize("alone", ["search"], indirect=True)

# killed


@pytest.mark.parametrize(
    ("alone", "kind", "share"),
    [
        ("search", "write", 0.55),
        ("train", "rename", 0.7),
        ("search", "after", 0.5),
        pytest.param("train", "write", 0.55, marks=pytest.mark.slow),
        pytest.param("search", "rename", 0.7, marks=pytest.mark.slow),
        pytest.param("train", "after", 0.5, marks=pytest.mark.slow),
    ],
    indirect=["alone"],
)
def test_killed_in_the_middle_and_resumed_ends_the_same(
    alone: tuple[list[str], Path], tmp_path: Path, kind: str, share: float
) -> None:
    argv, folder = alone
    moment = share * crash.counts(folder)[kind]
    code = crash.run(argv, tmp_path / "run", Fault(kind, moment))
    assert (
        code == -signal.SIGKILL or kind == "after"
    )  # a machine that is busy now and idle then may have finished
    if kind == "write":
        assert list((tmp_path / "run").glob("*.part"))  # torn, and left behind
    assert crash.run(argv, tmp_path / "run", resume=True) == 0, crash.printed(tmp_path / "run")
    assert crash.outcome(tmp_path / "run") == crash.outcome(folder)
    assert not list((tmp_path / "run").glob("*.part"))


# disks


@only_search
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(
    alone: tuple[list[str], Path], tmp_path: Path
) -> None:
    argv, folder = alone
    code = crash.run(argv, tmp_path / "run", Fault("full", 0.6 * crash.counts(folder)["write"]))
    assert "No space left on device" in crash.printed(tmp_path / "run")
    assert sound_state(tmp_path / "run" / "checkpoint.pt") is not None
    ok, said = disk.judged(argv, tmp_path / "run", code, crash.outcome(folder))
    assert ok, said


@only_search
@pytest.mark.skipif(not disk.can_mount(), reason="this system lets us mount no disks")
@pytest.mark.parametrize("kind", ["full", "locked"])
def test_real_disks(alone: tuple[list[str], Path], tmp_path: Path, kind: str) -> None:
    argv, folder = alone
    size, trial = {
        "full": (disk.MEGABYTE, disk.filled),
        "locked": (50 * disk.MEGABYTE, disk.locked),
    }[kind]
    with disk.mounted(tmp_path / "disk", size) as place:
        ok, said = trial(argv, place, crash.outcome(folder))
    assert ok, said


def test_a_file_beyond_the_limit_of_the_process_leaves_the_old_one(tmp_path: Path) -> None:
    """The system itself refuses: no file may have more than 1000 bytes."""
    run = Run(tmp_path)
    run.save_checkpoint({"n": 1})
    run.append_metrics({"epoch": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for write in (
            lambda: run.save_checkpoint({"w": torch.rand(100_000)}),
            lambda: run.append_metrics({"epoch": 2, "A": [0.5] * 1000}),
            lambda: write_atomically(tmp_path / "checkpoint.pt", "x" * 10_000),
        ):
            with pytest.raises(
                InputError, match=r"cannot be written \(File too large\): make room"
            ):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_disk_that_may_only_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(part: Path) -> Any:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(proxnas.common.files, "open_new", refused)
    with pytest.raises(InputError, match=r"x: cannot be written \(Read-only file system\)"):
        write_atomically(tmp_path / "x", "text")


# links


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "checkpoint.pt.part", "genotype.json.part", "genotype.json", ".lock"]
)
def test_no_link_in_a_run_folder_leads_to_a_write_elsewhere(tmp_path: Path, name: str) -> None:
    target = tmp_path / "precious"
    target.write_text("mine\n")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / name).symlink_to(target)
    try:
        with open_run(folder) as run:
            write_atomically(run / "genotype.json", "{}")
            run.save_checkpoint({"n": 1})
            run.append_metrics({"epoch": 1})
    except InputError as error:
        assert name in str(error)
    assert target.read_text() == "mine\n"


class Precious:
    """A folder outside of a run, and what must stay as it is."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "precious"
        (self.folder / "logs").mkdir(parents=True)
        for name in ("file", "checkpoint.pt", "config.json", "result.json", "logs/nasp-0.log"):
            (self.folder / name).write_text('{"proxnas": "mine"}\n')
        self.before = self.found()

    def found(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    @property
    def unharmed(self) -> bool:
        return self.found() == self.before


@pytest.fixture
def precious(tmp_path: Path) -> Precious:
    return Precious(tmp_path)


@pytest.mark.parametrize("name", ["report.html", "report.html.part"])
def test_a_report_is_written_through_no_link(tmp_path: Path, precious: Precious, name: str) -> None:
    run = make_run(tmp_path / "run")
    (run / name).symlink_to(precious.folder / "file")
    assert main(["report", str(run)]) == 0
    assert precious.unharmed and b"proxnas" in (run / "report.html").read_bytes()
    assert not (run / "report.html").is_symlink()


def test_figures_are_written_through_no_link(tmp_path: Path, precious: Precious) -> None:
    run, place = make_run(tmp_path / "run"), tmp_path / "figures"
    place.mkdir()
    for name in (
        "curves.svg",
        "curves.png",
        "curves.png.part",
        "cell.svg",
        "cell.pdf",
        "stability-normal-cell.svg",
    ):
        (place / name).symlink_to(precious.folder / "file")
    assert main(["report", str(run), f"--figures={place}"]) == 0
    assert (
        main(["show", str(run), f"--svg={place / 'cell.svg'}", f"--png={place / 'curves.png'}"])
        == 0
    )
    assert precious.unharmed and not any(path.is_symlink() for path in place.glob("*g"))


@pytest.mark.parametrize(
    "part", ["search", "search/nasp-0", "evaluations", "evaluations/00000", "neighbours"]
)
def test_no_part_of_a_run_is_a_link(tmp_path: Path, precious: Precious, part: str) -> None:
    run = make_run(tmp_path / "run")
    (run / part).parent.mkdir(exist_ok=True)
    (run / part).symlink_to(precious.folder)
    inside = (
        run / (part if "/" in part else f"{part}/00000") if part != "neighbours" else run / part
    )
    refused = pytest.raises(
        InputError, match="is a symbolic link inside a run, through which nothing is written"
    )
    with refused, open_run(inside, force=True):
        pass
    with pytest.raises(InputError, match="is a symbolic link inside a run"):
        make_folder(inside)
    with open_run(run, force=True):  # takes away what is its own, and nothing elsewhere
        pass
    assert precious.unharmed


def test_a_run_folder_may_itself_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    with open_run(tmp_path / "runs" / "run") as run:
        run.write_json("config.json", {"proxnas": "0"})
        make_folder(run / "search" / "logs")
    assert (tmp_path / "disk" / "run" / "search" / "logs").is_dir()


@pytest.mark.parametrize("link", ["logs", "logs/x.log"])
def test_what_workers_print_goes_through_no_link(
    tmp_path: Path, precious: Precious, link: str
) -> None:
    run = make_run(tmp_path / "run")
    (run / "search" / link).parent.mkdir(parents=True)
    (run / "search" / link).symlink_to(precious.folder / ("logs" if link == "logs" else "file"))
    with pytest.raises(InputError, match=link):
        start_process([sys.executable, "-c", "print(1)"], run / "search" / "logs" / "x.log")
    assert precious.unharmed


# pipes


@pytest.mark.parametrize(
    "name", [".lock", "metrics.jsonl", "config.json", "result.json", "genotype.json", "space.json"]
)
def test_nobody_waits_for_a_pipe_in_a_run_folder(tmp_path: Path, name: str, capsys: Any) -> None:
    run = make_run(tmp_path / "runs" / "run", finished=name == "result.json")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)

    def too_late(signum: int, frame: Any) -> None:
        pytest.fail(f"waits for {name}")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(20)
    try:
        assert main(["runs", str(tmp_path / "runs")]) == 0
        assert main(["report", str(run)]) == (2 if name == "config.json" else 0)
        assert main(["show", str(run)]) == (2 if name == "genotype.json" else 0)
        Snapshot(tmp_path / "runs").read()
        assert progress_of(run)[0] in (0, 4)
        assert is_locked(run) is False
        with pytest.raises(InputError), open_run(run) as opened:
            opened.append_metrics({"epoch": 1})
        if name == "metrics.jsonl":
            with pytest.raises(InputError, match="cannot be written"):
                Run(run).append_metrics({"epoch": 1})
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# two processes


def _hold(folder: str, ready: Any) -> None:
    with open_run(Path(folder)):
        ready.set()
        signal.pause()


def test_the_second_process_names_the_first_and_takes_over_when_it_is_dead(tmp_path: Path) -> None:
    ready = FORKED.Event()
    holder = FORKED.Process(target=_hold, args=(str(tmp_path), ready))
    holder.start()
    assert ready.wait(60)
    with (
        pytest.raises(InputError, match=f"in use by process {holder.pid}: wait for it"),
        open_run(tmp_path),
    ):
        pass
    holder.kill()
    holder.join()
    assert (tmp_path / ".owner").exists()  # stale: nobody could remove it
    with open_run(tmp_path):
        pass
    assert not (tmp_path / ".owner").exists()


# signals


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return [*crash.command("search", crash.stripes(tmp_path), EPOCHS), f"--run={tmp_path / 'run'}"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_an_epoch_is_judged_does_not_wait_for_it(
    argv: list[str], tmp_path: Path, signum: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from proxnas.domains.images.task import ImageTask

    real, calls = ImageTask.evaluate, iter(range(100))

    def evaluate(self: ImageTask) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signum)
            pytest.fail("the evaluation went on")
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(ImageTask, "evaluate", evaluate)
        assert main([word for word in argv if "checkpoint-minutes" not in word]) == 128 + signum
    assert (
        "checkpoint is written: the same command with --resume goes on" in capsys.readouterr().err
    )
    state = sound_state(tmp_path / "run" / "checkpoint.pt")
    assert state is not None and (state["epochs_done"], state["totals"]["steps"]) == (
        1,
        5,
    )  # no step is lost
    minutes = [word for word in argv if "checkpoint-minutes" not in word]
    assert main([*minutes, "--resume"]) == 0
    assert main([*minutes[:-1], f"--run={tmp_path / 'alone'}"]) == 0
    assert crash.outcome(tmp_path / "run") == crash.outcome(tmp_path / "alone")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_before_the_first_step_is_told_and_harms_nothing(
    argv: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    name: str,
    code: int,
) -> None:
    signum = signal.Signals[name]
    before = signal.getsignal(signum)
    with monkeypatch.context() as patch:
        patch.setattr(
            "proxnas.searching.running.load_for_search", lambda *_: signal.raise_signal(signum)
        )
        assert main(argv) == code
    assert capsys.readouterr().err == f"proxnas: stopped by {name}\n"
    assert signal.getsignal(signum) == before
    with open_run(tmp_path / "run", resume=True):  # not locked any more
        pass


@pytest.mark.parametrize(
    "place",
    ["torch.load", "proxnas.runs.divergence.Guard.go_back", "proxnas.runs.checkpoint.digest"],
)
def test_a_signal_while_a_checkpoint_is_read_is_no_damage(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, place: str
) -> None:
    """Wherever every error means a damaged or foreign checkpoint, a request to stop is none."""
    with monkeypatch.context() as patch:
        patch.setattr(
            "proxnas.runs.loop.check_alike", lambda state: signal.raise_signal(signal.SIGTERM)
        )
        assert main(argv) == 143
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("checkpoint*")}
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(place, lambda *_, **__: signal.raise_signal(signal.SIGTERM))
        assert main([*argv, "--resume"]) == 143
    assert capsys.readouterr().err == "proxnas: stopped by SIGTERM\n"
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "run").glob("checkpoint*")
    } == before


def test_a_signal_while_an_image_is_read_breaks_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for label in ("a", "b"):
        (tmp_path / "set" / label).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8)).save(tmp_path / "set" / label / f"{number}.png")
    for place in (
        "proxnas.domains.images.data.picture._eight_bits",
        "proxnas.domains.images.data.picture._orientation",
        "PIL.Image.open",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *_, **__: signal.raise_signal(signal.SIGTERM))
            patch.setattr(
                "proxnas.domains.images.data.gather.run_in_threads", map
            )  # where signals strike: in the main thread
            code = main(
                [
                    "search",
                    str(tmp_path / "set"),
                    "--skip-broken",
                    f"--run={tmp_path / 'run'}",
                    "--threads=1",
                ]
            )
        assert (place, code, capsys.readouterr().err) == (
            place,
            143,
            "proxnas: stopped by SIGTERM\n",
        )


CLOSED = """
import os, pty, signal, sys, time

pid, terminal = pty.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-m", "proxnas", *sys.argv[2:]])
checkpoint, limit = sys.argv[1], time.monotonic() + 120
while not os.path.exists(checkpoint):
    assert time.monotonic() < limit
    assert os.waitpid(pid, os.WNOHANG) == (0, 0), os.read(terminal, 10_000)
    time.sleep(0.05)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.slow
def test_a_closed_terminal_ends_a_run_with_its_checkpoint(tmp_path: Path) -> None:
    """A real terminal with a live bar, closed between two checkpoints: the steps that were done are
    kept."""
    words = crash.command("search", crash.stripes(tmp_path), 1000)
    argv = [word for word in words if "checkpoint-minutes" not in word and word != "--quiet"]
    words = [sys.executable, "-c", CLOSED, str(tmp_path / "run" / "checkpoint.previous.pt"), *argv]
    done = subprocess.run([*words, f"--run={tmp_path / 'run'}"], capture_output=True, text=True)
    assert done.stdout == "129\n", done.stderr
    state = sound_state(tmp_path / "run" / "checkpoint.pt")
    assert state is not None and state["totals"]["steps"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", methods.names())
def test_a_search_that_was_killed_twice_ends_as_if_it_had_not_been(
    method: str, tmp_path: Path
) -> None:
    assert killed_methods.trial(method, crash.stripes(tmp_path), tmp_path) == (True, True)


def test_nohup_keeps_a_run_going(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(
            "proxnas.runs.loop.check_alike", lambda state: signal.raise_signal(signal.SIGHUP)
        )
        assert main(argv) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_while_a_checkpoint_is_written_harms_nothing(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, iter(range(1000))

    def fsync(descriptor: int) -> None:
        if next(calls) == 12:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        real(descriptor)

    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background starts with none
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        assert main(argv) == 130
    signal.signal(signal.SIGINT, before)
    assert not list((tmp_path / "run").glob("*.part"))
    assert Run(tmp_path / "run").load_checkpoint() is not None
    assert not (tmp_path / "run" / "checkpoint.damaged.pt").exists()


# the world outside


NO_NETWORK = """
import importlib, pkgutil, sys

def refuse(event, arguments):
    calls = ("connect", "getaddrinfo", "bind", "sendto")
    if event in ("urllib.Request", *(f"socket.{call}" for call in calls)):
        raise SystemExit(f"{event} {arguments}")

sys.addaudithook(refuse)
import proxnas
for module in pkgutil.walk_packages(proxnas.__path__, "proxnas."):
    if module.name != "proxnas.__main__":
        importlib.import_module(module.name)
from proxnas.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_neither_an_import_nor_a_search_asks_the_network(argv: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", NO_NETWORK, *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "result.json").exists()
