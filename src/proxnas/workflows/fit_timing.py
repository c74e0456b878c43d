"""How long a step of a run by the clock takes, timed before its sizes are chosen; with the threads
and in the precision that its steps will have."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from proxnas.common.cores import Asked
from proxnas.domains.images.fitting import FitConfig
from proxnas.domains.search_options import Precision

if TYPE_CHECKING:
    import torch

    from proxnas.domains.images.data.images import Images


def step_timer(
    config: FitConfig, images: Images, batch_size: int, clock: Callable[[], float]
) -> tuple[Callable[[int, int], float], Precision]:
    """Seconds of a step of the plain network by its width and the side of images, with as many
    threads as steps will take: as asked for, else one or all, whichever is quicker; and the
    precision that is quicker."""
    from proxnas.common.environment import pick_device
    from proxnas.domains.images import recipe
    from proxnas.domains.images.networks.cnn import Size
    from proxnas.training.kept_memory import keep_freed_memory

    keep_freed_memory()  # as the steps of the run will have it
    device, side = pick_device(config.device), min(images.shape[1:])

    def timed(width: int, side: int, precision: Precision) -> float:
        size = Size(1, width, images.shape[0], images.num_classes)
        return recipe.step_seconds(size, side, batch_size, clock, device, precision)

    # first the threads: what is quicker in bf16 may depend on how many there are
    choose_threads(config.threads, device, partial(timed, recipe.WIDTHS[0], side, "fp32"))
    known = cache(timed)  # a plan asks for the same sizes several times, and so does the precision
    small = min(side, recipe.SIDES[-1])
    precision = recipe.quicker_precision(
        device, lambda asked: known(recipe.WIDTHS[1], small, asked)
    )
    return lambda width, side: known(width, side, precision), precision


def choose_threads(asked: Asked, device: torch.device, seconds: Callable[[], float]) -> None:
    """As many threads as are asked for; else one or all, by the `seconds` that each takes."""
    import torch

    from proxnas.common.cores import available
    from proxnas.common.environment import set_threads

    def timed_by(threads: int) -> float:
        torch.set_num_threads(threads)
        return seconds()

    set_threads(asked)
    if asked == "auto" and available() > 1 and device.type == "cpu":
        torch.set_num_threads(min((1, available()), key=timed_by))
