"""Arrays that numpy.savez wrote: never unpickled, and judged by their headers before any of them is
read."""

from __future__ import annotations

import math
import re
import zipfile
from pathlib import Path

import numpy as np

from proxnas.common.errors import InputError, in_one_line
from proxnas.common.say import tell
from proxnas.common.seeds import Array
from proxnas.domains.images.data.arrays import Images, from_arrays, short_name
from proxnas.domains.images.data.forms import PARTS, Form, check_forms
from proxnas.domains.images.data.options import DEFAULTS, LoadOptions

LARGEST_ARRAY = 16 * 2**30  # bytes
BLANK, RATIO = 64 * 2**20, 50
"""Bytes that any file may unpack to, and so many times its size besides: pictures do not compress
that well, but a small file of nothing could fill the memory."""
SAID = 2 * 2**30  # bytes that are read into the memory without a word
MOST_ENTRIES = 10_000


def read_npz(path: Path, options: LoadOptions = DEFAULTS) -> Images:
    """The images of an npz file."""
    try:
        arrays = _stored_arrays(path)
    except InputError:
        raise
    except Exception as error:  # damaged zips and headers raise nearly every kind
        why = in_one_line(error) if path.stat().st_size else "it is empty"
        raise InputError(
            f"{path}: not a readable npz file ({why}): write it again with numpy.savez"
        ) from error
    # no flip: a mirrored image of unknown kind may be of another class
    return from_arrays(arrays, short_name(path), str(path), for_model=bool(options.for_model))


def _stored_arrays(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) > MOST_ENTRIES:
            raise InputError(
                f"{path}: {len(names)} entries are too many for arrays of images: write x_train ..."
                " only"
            )
        # headers only: shape and dtype are known before anything is unpacked
        forms = {name[:-4]: _header(archive, name) for name in names if name.endswith(".npy")}
    check_forms(forms, str(path))
    known = [name for name in forms if re.fullmatch(f"[xy]_({'|'.join(PARTS)})|classes", name)]
    claimed = sum(math.prod(forms[name][0]) * forms[name][1].itemsize for name in known)
    if claimed > min(LARGEST_ARRAY, BLANK + RATIO * path.stat().st_size):
        raise InputError(
            f"{path}: its arrays claim {claimed} bytes, above 16 GB or {RATIO} times what the file"
            " holds: fix it, or write it with numpy.savez, which does not compress"
        )
    if claimed > SAID:
        tell(f"{path}: {claimed / 2**30:.1f} GiB of arrays are read into the memory")
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in known}


def _header(archive: zipfile.ZipFile, name: str) -> Form:
    with archive.open(name) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            read = np.lib.format.read_array_header_1_0
        else:
            read = np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return shape, dtype
