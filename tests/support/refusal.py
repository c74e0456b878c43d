"""What tests of readers share."""

from __future__ import annotations

import pytest

from proxnas.common.errors import InputError
from proxnas.domains.images.data.images import LoadOptions, load


def refused(spec: object, *words: str, options: LoadOptions | None = None) -> None:
    """DATA is refused in one line that has these words."""
    with pytest.raises(InputError) as caught:
        load(str(spec), options or LoadOptions())
    message = str(caught.value)
    assert "\n" not in message
    assert not [word for word in words if word not in message], message
