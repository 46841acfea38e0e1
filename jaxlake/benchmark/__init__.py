"""The fixed sets of instances, and what answers to them are worth; ``load`` and ``score`` are the ways in."""

from jaxlake.benchmark.data import SETS, Benchmark, load
from jaxlake.benchmark.scoring import FAILURES, Cell, Row, Scores, score

__all__ = ["FAILURES", "SETS", "Benchmark", "Cell", "Row", "Scores", "load", "score"]
