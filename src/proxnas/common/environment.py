"""The machine a run uses: device, threads, and what is worth knowing of it later."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from proxnas import __version__
from proxnas.common.cores import Asked, available, check_threads
from proxnas.common.errors import OptionError
from proxnas.common.launch import here


def pick_device(name: str) -> torch.device:
    """The device of --device; `auto` takes an accelerator if there is one. Of several processes
    each has its own."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    device = (accelerator or torch.device("cpu")) if name == "auto" else torch.device(name)
    if device.type == "cpu":
        return device
    if accelerator is None or device.type != accelerator.type:
        advice = f"this torch ({torch.__version__}) finds none: use {{device}} cpu"
        raise OptionError("device", name, advice)
    if not here().alone:
        device = _of_this_process(device, name)
    if (device.index or 0) >= torch.accelerator.device_count():
        advice = f"there are {torch.accelerator.device_count()}: give a smaller number"
        raise OptionError("device", name, advice)
    return device


def _of_this_process(device: torch.device, name: str) -> torch.device:
    """The accelerator that one of several processes takes."""
    if device.type != "cuda":
        raise OptionError("device", name, "several processes work on cpu or cuda: give one of them")
    if name.startswith("cuda:"):
        advice = "each process takes a device of its own: give {device} cuda"
        raise OptionError("device", name, advice)
    if here().local_size > torch.accelerator.device_count():
        advice = (
            f"this machine has {torch.accelerator.device_count()} CUDA devices: give that number"
            " (of torchrun: --nproc-per-node)"
        )
        raise OptionError("processes", here().local_size, advice)
    # else messages between processes would all go through the first one
    torch.cuda.set_device(here().local_rank)
    return torch.device("cuda", here().local_rank)


def set_threads(threads: Asked) -> None:
    """Use so many CPU threads; auto: all that there are, until steps are timed (threads.py)."""
    check_threads(threads)
    torch.set_num_threads(available() if threads == "auto" else threads)


def set_deterministic(on: bool) -> None:
    """Only algorithms that give the same bits each time; an operation without one is an error that
    names it."""
    if on:
        # read when CUDA starts, which is later
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def processor_name() -> str:
    """The model of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def describe(device: torch.device) -> dict[str, Any]:
    """Versions, device, threads and command line, for environment.json."""
    return {
        "proxnas": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "processes": here().size,
        "command": sys.argv,
    }


def in_turn(device: str, workers: int) -> list[str]:
    """The accelerators that several workers take in turn, if there are any and none is named."""
    if device != "auto" or workers == 1 or not torch.accelerator.is_available():
        return []
    accelerator = torch.accelerator.current_accelerator()
    kind = accelerator.type if accelerator else "cpu"
    return [f"{kind}:{i}" for i in range(torch.accelerator.device_count())]
