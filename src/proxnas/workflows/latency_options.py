"""What `latency build` is told. No torch here: `--help` must be quick."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from proxnas.common.cores import Asked
from proxnas.common.errors import OptionError, unknown_value
from proxnas.common.options import Options, Range
from proxnas.domains.images.options import ImageFlags
from proxnas.domains.spaces import SPACES
from proxnas.searching.owners import domain_options
from proxnas.training.options import DataArgument


@dataclass(frozen=True)
class LatencyConfig(ImageFlags, Options):
    """Measure the operations of a space at their places in the final network, for one image of
    DATA, and keep them as a table. Searches on this machine with --max-latency or --cost latency
    go by it."""

    data: DataArgument = ""
    """As in `proxnas search`: images have a size, and a network a number of classes."""
    space: str = "darts7"
    """Whose operations."""
    final_cells: Annotated[int, Range(0, 200)] = 0
    """Of the final network; 0: as in `proxnas search`."""
    final_channels: Annotated[int, Range(0, 4096)] = 0
    """Of its first cell; 0: likewise."""
    latency_by: Literal["auto", "onnx", "torch"] = "auto"
    """ONNX Runtime, by which networks are deployed, or torch; auto: onnx, if it is installed."""
    networks: Annotated[int, Range(2, 1000)] = 12
    """Whole networks that the sums are fitted to, and as many others that they are checked on."""
    file: str = ""
    """Where to keep the table, for --latency-by FILE; without it where searches look by
    themselves."""
    threads: Asked = "auto"
    """CPU threads; auto: as many as there are cores, as in searches that count seconds."""
    device: str = "auto"
    """Where they are measured; auto: an accelerator if there is one."""

    def check(self) -> None:
        """A space of images."""
        super().check()
        if self.space not in SPACES:
            raise unknown_value("space", self.space, SPACES)
        if not domain_options(self.space).cells_of_images:
            advice = "has no table: it is for spaces of images"
            raise OptionError("space", self.space, advice)
        if self.file and not self.file.endswith(".json"):
            raise OptionError("file", self.file, "give a name that ends in .json")

    def search_values(self) -> dict[str, object]:
        """What a search is asked for whose final networks are these."""
        names = [field.name for field in fields(self) if field.name not in ("networks", "file")]
        given = {name: getattr(self, name) for name in names if getattr(self, name)}
        # no epochs are run, but seconds must count for their options to be allowed
        return given | {"max_latency": "1s"}
