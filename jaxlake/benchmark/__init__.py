"""The fixed sets of instances and the scores of answers to them; start with ``load``, ``load_maps`` and ``score``."""

from jaxlake.benchmark.external_maps import load_maps
from jaxlake.benchmark.published import Published, PublishedRow, published
from jaxlake.benchmark.scoring import FAILURES, Cell, Row, Scores, pass_at, score
from jaxlake.benchmark.subset import spread, take
from jaxlake.fixed_sets import SETS, Benchmark, load

__all__ = [
    "FAILURES",
    "SETS",
    "Benchmark",
    "Cell",
    "Published",
    "PublishedRow",
    "Row",
    "Scores",
    "load",
    "load_maps",
    "pass_at",
    "published",
    "score",
    "spread",
    "take",
]
