from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from proxnas.common.errors import InputError
from proxnas.domains.images.data.arrays import Images, from_arrays
from proxnas.domains.images.data.augment import (
    Augment,
    colours,
    cut_and_paste,
    geometry,
    recoloured,
    warped,
)
from proxnas.domains.images.data.stream import ImageBatches, Stream

Array = np.ndarray[Any, Any]
share = st.floats(0, 1, width=32)


def images(channels: int = 3, dtype: str = "uint8", size: tuple[int, int] = (8, 12)) -> Images:
    x = np.random.default_rng(0).integers(0, 256, (40, *size, channels)).astype(dtype)
    y = np.arange(40) % 2
    return from_arrays({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, "made", "made")


def part(made: Images, augment: Augment) -> ImageBatches:
    return ImageBatches(made, (made.x_train, made.y_train), augment)


def column(*numbers: float) -> list[torch.Tensor]:
    return [torch.tensor([number], dtype=torch.float32) for number in numbers]


def sampled(image: Array, row: float, column: float) -> Array:
    """The bilinear value between pixel centres; black outside."""
    r, c = math.floor(row), math.floor(column)
    total = np.zeros(image.shape[2])
    for i, j in ((r, c), (r, c + 1), (r + 1, c), (r + 1, c + 1)):
        if 0 <= i < image.shape[0] and 0 <= j < image.shape[1]:
            total += image[i, j] * (1 - abs(row - i)) * (1 - abs(column - j))
    return total


def slowly_warped(image: Array, angle: float, crop: tuple[float, float, float, float]) -> Array:
    """Pixel by pixel, in pixels: the place in the crop, then turned about the middle of the
    image."""
    H, W, _ = image.shape
    top, left, height, width = crop
    result = np.zeros_like(image, dtype=float)
    for i in range(H):
        for j in range(W):
            down = top + (i + 0.5) / H * height - H / 2
            right = left + (j + 0.5) / W * width - W / 2
            row = math.cos(angle) * down + math.sin(angle) * right + H / 2
            column = math.cos(angle) * right - math.sin(angle) * down + W / 2
            result[i, j] = sampled(image, row - 0.5, column - 0.5)
    return result


@settings(max_examples=25, deadline=None)
@given(share, share, share, share, share, st.sampled_from([(8, 8), (6, 10)]))
def test_rotation_and_crop_are_those_of_a_slow_loop(
    turn: float, area: float, ratio: float, x: float, y: float, size: tuple[int, int]
) -> None:
    H, W = size
    image = np.random.default_rng(0).random((H, W, 2))
    augment = Augment(rotation=50, resized_crop=True)
    theta = geometry(augment, column(turn, area, ratio, x, y), H, W)
    assert theta is not None
    found = warped(torch.tensor(image[None], dtype=torch.float32), theta)[0].numpy()
    share, stretch = 0.08 + 0.92 * area, (4 / 3) ** (ratio - 0.5)
    height, width = H * min(1, math.sqrt(share) / stretch), W * min(1, math.sqrt(share) * stretch)
    crop = (y * (H - height), x * (W - width), height, width)
    expected = slowly_warped(image, math.radians(50 * (2 * turn - 1)), crop)
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_quarter_turn_and_a_half_turn() -> None:
    image = torch.rand(1, 8, 8, 3)
    quarter = geometry(Augment(rotation=90), column(1.0), 8, 8)
    half = geometry(Augment(rotation=180), column(1.0), 8, 12)
    assert quarter is not None and half is not None
    torch.testing.assert_close(warped(image, quarter), image.rot90(1, (1, 2)))
    wide = torch.rand(1, 8, 12, 3)
    torch.testing.assert_close(warped(wide, half), wide.flip(1, 2))


def test_rotation_is_within_its_limits_and_black_comes_in_at_the_corners() -> None:
    x = np.full((40, 32, 32, 3), 255, np.uint8)
    made = from_arrays({"x_train": x, "y_train": np.arange(40) % 2}, "white", "white")
    resident = part(made, Augment(rotation=20, shift=False, flip=False))
    batch = resident.augmented(torch.arange(30), torch.Generator().manual_seed(0)).x
    bright = batch * torch.tensor(made.std).view(3, 1, 1) + torch.tensor(made.mean).view(3, 1, 1)
    torch.testing.assert_close(bright[:, :, 8:24, 8:24], torch.ones(30, 3, 16, 16))
    assert (bright[:, :, 0, 0] < 0.9).float().mean() > 0.5


# colours


def slowly_recoloured(
    image: Array, brightness: float, contrast: float, saturation: float, turn: float
) -> Array:
    grey = np.array([0.299, 0.587, 0.114])
    x = np.clip(image * brightness, 0, 255)
    mean = (x @ grey).mean()
    x = np.clip(mean + (x - mean) * contrast, 0, 255)
    to_yiq = np.array([grey, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
    y, i, q = to_yiq @ x.reshape(-1, 3).T
    chroma = (i + 1j * q) * saturation * np.exp(1j * turn)
    rgb = np.linalg.inv(to_yiq) @ np.stack([y, chroma.real, chroma.imag])
    return np.clip(rgb.T.reshape(image.shape), 0, 255)


@settings(max_examples=30, deadline=None)
@given(share, share, share, share, share)
def test_colours_are_those_of_a_slow_loop(
    b: float, c: float, s: float, h: float, hue: float
) -> None:
    image = np.random.default_rng(1).integers(0, 256, (5, 6, 3)).astype(float)
    changes = colours(Augment(colour=0.4, hue=hue), column(b, c, s, h))
    assert changes is not None
    found = recoloured(torch.tensor(image[None], dtype=torch.float32), *changes, 0.0, 255.0)[
        0
    ].numpy()
    scale = [1 + 0.4 * (2 * number - 1) for number in (b, c, s)]
    expected = slowly_recoloured(image, *scale, 0.4 * hue * 2 * math.pi * (2 * h - 1))
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_the_middle_of_all_ranges_changes_nothing() -> None:
    image = torch.rand(1, 6, 6, 3) * 255
    changes = colours(Augment(colour=1.0), column(0.5, 0.5, 0.5, 0.5))
    assert changes is not None
    torch.testing.assert_close(recoloured(image, *changes, 0.0, 255.0), image, atol=1e-3, rtol=1e-4)


def test_without_saturation_all_is_grey_and_hue_keeps_the_luma() -> None:
    image = 64 + torch.rand(1, 6, 6, 3) * 64
    luma = torch.tensor([0.299, 0.587, 0.114])
    grey = colours(Augment(colour=1.0), column(0.5, 0.5, 0.0, 0.3))
    assert grey is not None
    x = recoloured(image, *grey, 0.0, 255.0)
    torch.testing.assert_close(x, (image @ luma)[..., None].expand_as(x), atol=0.05, rtol=0)
    turned = colours(Augment(colour=0.4), column(0.5, 0.5, 0.5, 1.0))
    assert turned is not None
    x = recoloured(image, *turned, 0.0, 255.0)
    torch.testing.assert_close(x @ luma, image @ luma, atol=0.05, rtol=0)
    assert (x - image).abs().max() > 5


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_images_without_colours_vary_in_brightness_and_contrast(channels: int) -> None:
    made = images(channels)
    x = (
        part(made, Augment(colour=0.4))
        .augmented(torch.arange(10), torch.Generator().manual_seed(0))
        .x
    )
    assert x.shape == (10, channels, 8, 12) and bool(x.isfinite().all())


# in batches

ALL = Augment(shift=True, flip=True, cutout=3, rotation=15, colour=0.4, resized_crop=True)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 3])
def test_all_changes_together(dtype: str, channels: int) -> None:
    made = images(channels, dtype)
    first, again = (Stream(part(made, ALL), 8, 3, "w") for _ in range(2))
    for _ in range(3):
        a, b = first.next(), again.next()
        assert (
            torch.equal(a.x, b.x)
            and a.x.shape == (8, channels, 8, 12)
            and a.x.dtype == torch.float32
        )
        assert a.x.is_contiguous(memory_format=torch.channels_last) and bool(a.x.isfinite().all())
        assert bool((a.x == 0).flatten(1).any(1).all())  # what is hidden
    resumed = Stream(part(made, ALL), 8, 3, "w")
    resumed.load_state_dict(first.state_dict())
    assert torch.equal(resumed.next().x, first.next().x)


def test_evaluation_is_without_changes() -> None:
    made = images()
    plain, changed = part(made, Augment(shift=False, flip=False)), part(made, ALL)
    for a, b in zip(plain.evaluation_batches(7), changed.evaluation_batches(7), strict=True):
        torch.testing.assert_close(a.x, b.x)


def test_a_change_draws_nothing_for_the_others() -> None:
    """Shift, flip and cutout of a seed stay what they are whatever is added, and so do published
    searches."""
    made, generator = images(), torch.Generator()
    index = torch.arange(8)
    plain = part(made, Augment(flip=True)).augmented(index, generator.manual_seed(1))
    faint = part(made, Augment(flip=True, colour=1e-7)).augmented(index, generator.manual_seed(1))
    torch.testing.assert_close(plain.x, faint.x, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cutout": -1}, "cutout -1"),
        ({"rotation": 181.0}, "rotation 181"),
        ({"rotation": math.nan}, "rotation nan"),
        ({"colour": -0.1}, "colour -0.1"),
        ({"colour": 1.5}, "colour 1.5"),
    ],
)
def test_bad_values_name_the_field(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Augment(**options)


@pytest.mark.parametrize("channels", [1, 3])
def test_floats_keep_their_negative_values_when_colours_vary(channels: int) -> None:
    """A tiny change of colour is a tiny change of the image, whatever the range of its floats."""
    x = np.random.default_rng(0).normal(size=(40, 8, 8, channels)).astype(np.float32)
    made = from_arrays({"x_train": x, "y_train": np.arange(40) % 2}, "floats", "floats")
    plain, faint = (part(made, Augment(shift=False, colour=colour)) for colour in (0.0, 1e-6))
    index = torch.arange(10)
    a, b = (
        images.augmented(index, torch.Generator().manual_seed(0)).x for images in (plain, faint)
    )
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_a_rectangle_is_that_of_another_image_and_its_share_is_known() -> None:
    x = torch.rand(6, 3, 10, 14).contiguous(memory_format=torch.channels_last)
    kept = []
    for seed in range(40):
        found = cut_and_paste(x, torch.Generator().manual_seed(seed))
        own = found.x == x
        assert torch.equal(found.x, torch.where(own, x, x[found.others]))
        assert sorted(found.others.tolist()) == list(range(6))
        moved = found.others != torch.arange(6)
        if moved.any():
            assert own[moved].float().mean() == pytest.approx(found.kept)
        assert found.x.is_contiguous(memory_format=torch.channels_last)
        kept.append(found.kept)
    assert min(kept) < 0.15 and max(kept) > 0.85 and 0.4 < sum(kept) / 40 < 0.6
    assert torch.equal(
        cut_and_paste(x, torch.Generator().manual_seed(1)).x,
        cut_and_paste(x, torch.Generator().manual_seed(1)).x,
    )
