"""The paper's figures on its benchmark, as they are printed, read from one file."""

import dataclasses
import functools
import json
from collections.abc import Mapping

from jaxlake.fixed_sets import FOLDER


@dataclasses.dataclass(frozen=True)
class PublishedRow:
    """A model's line in the table of a number of agents; percent, (valid, optimal) each.

    Attributes:
      by_size: rates by board side, over 150 instances each.
      mean: "Sum" as it is printed, the mean over the sizes but for the misprints.
    """

    num_agents: int
    model: str
    by_size: Mapping[int, tuple[float, float]]
    mean: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Published:
    """The paper's figures.

    Attributes:
      rows: all tables, ascending in the number of agents, the models in the paper's order.
      misprints: figures that contradict others, each in a sentence.
    """

    source: str
    rows: tuple[PublishedRow, ...]
    misprints: tuple[str, ...]


@functools.cache
def published() -> Published:
    """Return the paper's figures, arXiv 2606.17682."""
    content = json.loads((FOLDER / "published.json").read_text(encoding="utf-8"))
    rows = []
    for agents, models in content["tables"].items():
        for model, cells in models.items():
            shares = {size: (valid, optimal) for size, (valid, optimal) in cells.items()}
            mean = shares.pop("Sum")
            rows.append(PublishedRow(int(agents), model, {int(size): pair for size, pair in shares.items()}, mean))
    return Published(content["source"], tuple(rows), tuple(content["misprints"]))
