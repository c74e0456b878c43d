from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from proxnas.common.errors import InputError
from proxnas.domains.images.data.augment import Augment
from proxnas.domains.images.data.images import Images, from_arrays
from proxnas.domains.images.data.stream import ImageBatches, Stream

HOST_READS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique")


def make(
    n: int = 30, size: tuple[int, int] = (8, 12), channels: int = 3, dtype: str = "uint8"
) -> Images:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (n, *size, channels)).astype(dtype)
    y = np.arange(n) % 3
    return from_arrays({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, "made", "made")


def part(images: Images, **options: Any) -> ImageBatches:
    return ImageBatches(images, (images.x_train, images.y_train), Augment(**options))


def numbered(n: int) -> Images:
    """Image i is i everywhere, and so is its label."""
    x = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None, None, None], (n, 8, 8, 1))
    y = np.arange(n)
    return Images("numbered", x, y, x, y, tuple(map(str, y)), (0.0,), (1.0,), True, False)


def normalised(images: Images, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    unit = 255.0 if x.dtype == np.uint8 else 1.0
    return (x / unit - np.array(images.mean)) / np.array(images.std)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("cutout", [0, 3, 4])
def test_augmented_batch_is_that_of_a_slow_loop(
    dtype: str, shift: bool, flip: bool, cutout: int
) -> None:
    images = make(dtype=dtype)
    H, W = 8, 12
    resident = part(images, shift=shift, flip=flip, cutout=cutout)
    index = torch.tensor([4, 0, 29, 4, 7, 11, 3, 8])
    x, y = resident.augmented(index, torch.Generator().manual_seed(5))

    generator = torch.Generator().manual_seed(5)
    pad = (1, 1) if shift else (0, 0)
    limits = (2 * pad[0] + 1, 2 * pad[1] + 1, 1 + flip, H, W)
    draws = [torch.randint(limit, (len(index),), generator=generator).tolist() for limit in limits]
    for b, (i, top, left, mirrored, row, column) in enumerate(
        zip(index.tolist(), *draws, strict=True)
    ):
        image = np.pad(images.x_train[i], ((pad[0], pad[0]), (pad[1], pad[1]), (0, 0)))[
            top : top + H, left : left + W
        ]
        image = normalised(images, image[:, ::-1] if mirrored else image)
        first_row, first_column = row - cutout // 2, column - cutout // 2
        for r in range(max(first_row, 0), min(first_row + cutout, H)):
            for c in range(max(first_column, 0), min(first_column + cutout, W)):
                image[r, c] = 0.0
        np.testing.assert_allclose(x[b].permute(1, 2, 0).numpy(), image, atol=2e-6)
        assert y[b] == images.y_train[i]


def test_every_shift_and_mirror_occurs_and_padding_is_black() -> None:
    x = np.zeros((2, 8, 8, 1), np.uint8)
    x[:, 3, 2] = 255
    images = from_arrays(
        {"x_train": x, "y_train": np.arange(2), "x_test": x, "y_test": np.arange(2)}, "dot", "dot"
    )
    batch = part(images, flip=True).augmented(
        torch.zeros(500, dtype=torch.int64), torch.Generator().manual_seed(0)
    )
    brightest = batch.x.flatten(1).argmax(dim=1)
    expected = {(row, column) for row in (2, 3, 4) for column in (1, 2, 3, 4, 5, 6)}
    assert {divmod(position, 8) for position in brightest.tolist()} == expected
    assert batch.x.unique().numel() == 2


def mirrored_in_epochs(stream: Stream, epochs: int) -> list[set[int]]:
    """Whose brighter side is on the right, epoch by epoch; images are numbered by their labels."""
    found = []
    for _ in range(epochs):
        mirrored: set[int] = set()
        for _ in range(len(stream)):
            x, y = stream.next()
            right = x[..., 6:].sum((1, 2, 3)) > x[..., :6].sum((1, 2, 3))
            mirrored |= set(y[right].tolist())
        found.append(mirrored)
    return found


def test_images_are_mirrored_in_every_other_epoch_when_they_alternate() -> None:
    x = np.zeros((40, 8, 12, 1), np.float32)
    x[:, :, :6] = 1.0
    y = np.arange(40)
    images = Images("half", x, y, x, y, tuple(map(str, y)), (0.0,), (1.0,), True, True)
    asked = {"flip": True, "shift": False, "alternate": True}
    even, odd, again, _ = mirrored_in_epochs(Stream(part(images, **asked), 10, 0), 4)
    assert len(even) == 20 and even == again
    assert even | odd == set(range(40)) and not even & odd
    resumed = Stream(part(images, **asked), 10, 0)
    resumed.load_state_dict({"delivered": 4})
    assert mirrored_in_epochs(resumed, 1) == [odd]
    assert not any(mirrored_in_epochs(Stream(part(images, **asked | {"flip": False}), 10, 0), 2))


@pytest.mark.parametrize(("side", "pad"), [(4, 1), (8, 1), (15, 1), (16, 2), (32, 4)])
def test_padding_grows_with_the_image(side: int, pad: int) -> None:
    assert part(make(size=(side, side))).pad == (pad, pad)
    assert part(make(size=(side, side)), shift=False).pad == (0, 0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_batches_are_channels_last_float32(channels: int, dtype: str) -> None:
    resident = part(make(channels=channels, dtype=dtype), cutout=2)
    assert resident.source.x.dtype == getattr(torch, dtype)
    for x, y in (Stream(resident, 10, 0).next(), next(resident.evaluation_batches(10))):
        assert x.shape == (10, channels, 8, 12) and x.dtype == torch.float32
        assert x.stride() == (8 * 12 * channels, 1, 12 * channels, channels)
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert y.shape == (10,) and y.dtype == torch.int64


def test_defaults_follow_the_data() -> None:
    images = make()
    assert (part(images).augment.shift, part(images).augment.flip) == (True, False)
    assert (part(images, flip=True).augment.flip, part(images, shift=False).augment.shift) == (
        True,
        False,
    )
    assert part(images, resized_crop=True).augment.shift is False
    assert part(images, resized_crop=True, shift=True).augment.shift is True


def test_every_image_at_most_once_an_epoch_and_another_remainder_each_time() -> None:
    images = numbered(23)
    stream = Stream(part(images, shift=False), 5, seed=0)
    assert len(stream) == 4
    epochs = [torch.cat([stream.next().y for _ in range(4)]).tolist() for _ in range(6)]
    assert all(len(set(epoch)) == 20 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6
    assert len({frozenset(range(23)) - frozenset(epoch) for epoch in epochs}) > 1
    whole = Stream(part(images, shift=False), 23, seed=0)
    assert sorted(whole.next().y.tolist()) == list(range(23))


def test_images_keep_their_labels() -> None:
    x, y = Stream(part(numbered(23)), 10, seed=0).next()
    assert torch.equal(x[:, 0, 4, 4], y.float())


@pytest.mark.parametrize("delivered", [0, 1, 3, 4, 11])
def test_resume_is_exact(delivered: int) -> None:
    resident = part(make(23), flip=True, cutout=3)
    stream = Stream(resident, 5, seed=7, name="w")
    for _ in range(delivered):
        stream.next()
    resumed = Stream(resident, 5, seed=7, name="w")
    resumed.next()
    resumed.load_state_dict(stream.state_dict())
    assert stream.state_dict() == {"delivered": delivered}
    for _ in range(9):
        expected, found = stream.next(), resumed.next()
        assert torch.equal(expected.x, found.x) and torch.equal(expected.y, found.y)


def test_streams_differ_by_seed_and_name_only() -> None:
    resident = part(make(), flip=True)
    first = Stream(resident, 30, 0, "w").next()
    assert torch.equal(Stream(resident, 30, 0, "w").next().x, first.x)
    for other in (Stream(resident, 30, 0, "A"), Stream(resident, 30, 1, "w")):
        assert not torch.equal(other.next().x, first.x)


def test_streams_leave_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    resident = part(make())
    Stream(resident, 5, 0).next()
    next(resident.evaluation_batches(5))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("batch_size", [1, 7, 10, 23, 100])
def test_evaluation_covers_everything_once_in_equal_batches(batch_size: int) -> None:
    images = make(23)
    batches = list(part(images).evaluation_batches(batch_size))
    sizes = [len(batch.y) for batch in batches]
    assert (
        max(sizes) <= batch_size
        and max(sizes) - min(sizes) <= 1
        and len(sizes) == -(-23 // batch_size)
    )
    found = torch.cat([batch.x for batch in batches]).permute(0, 2, 3, 1).numpy()
    expected = normalised(images, images.x_train)

    def by_first_pixels(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return x[np.lexsort(x.reshape(23, -1)[:, :6].round(3).T)]

    np.testing.assert_allclose(by_first_pixels(found), by_first_pixels(expected), atol=2e-6)


def test_evaluation_mixes_classes_the_same_way_each_time() -> None:
    images = numbered(40)
    first, again = ([b.y.tolist() for b in part(images).evaluation_batches(20)] for _ in range(2))
    assert first == again and sorted(first[0] + first[1]) == list(range(40))
    assert min(first[0]) < 20 <= max(first[0])


class NoHostReads(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(name in str(func) for name in HOST_READS), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def test_a_batch_reads_nothing_back_from_the_device() -> None:
    resident = part(make(), flip=True, cutout=4, rotation=20, colour=0.4, resized_crop=True)
    stream = Stream(resident, 8, 0)
    with NoHostReads():
        for _ in range(2 * len(stream)):
            stream.next()
        list(resident.evaluation_batches(8))
        with pytest.raises(AssertionError, match="waits for the device"):
            resident.source.x[0, 0, 0, 0].item()


def test_bad_sizes_name_the_option() -> None:
    resident = part(make(30))
    for size, words in (
        (31, "batch_size 31.*at most 30"),
        (0, "batch_size 0"),
        (-2, "batch_size -2"),
    ):
        with pytest.raises(InputError, match=words):
            Stream(resident, size, 0)
    with pytest.raises(InputError, match="batch_size 0"):
        resident.evaluation_batches(0)
    for cutout in (-1, 9):
        with pytest.raises(InputError, match=f"cutout {cutout}"):
            part(make(), cutout=cutout)
    images = make()
    with pytest.raises(InputError, match="no images"):
        ImageBatches(images, (images.x_train[:0], images.y_train[:0]))
