"""Scores of answers to a fixed set, in the paper's tables; reads and writes no file."""

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxlake import rules
from jaxlake.fixed_sets import Benchmark, load
from jaxlake.flood import shortest_paths
from jaxlake.table import Table
from jaxlake.text import parse_batch
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_ANSWER_STEPS, Check, Objective
from jaxlake.verify import first_failure, verify

MISSING = "missing"
FAILURES = (*(check.name.lower() for check in Check), MISSING)
"""Why an answer is invalid: the first check that it fails, or that there is none."""

MEASURES = ("success", "individual_success", "sum_of_costs", "makespan")
"""The measures of plans in the field."""

_CHUNK, _CHUNK_OF_MANY = 1024, 64  # Answers that are judged together, and those of many agents.


@dataclasses.dataclass(frozen=True)
class Cell:
    """Shares over some instances in percent, each instance counting the same however many answers it has.

    Attributes:
      instances: number of instances; for a mean over sizes, in all of them.
      valid, optimal: percent of the answers; an instance without an answer counts 0.
      valid_se, optimal_se: standard errors over instances.
    """

    instances: int
    valid: float
    valid_se: float
    optimal: float
    optimal_se: float


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
      num_agents: number of agents on every board; None for all numbers together, and then ``by_size`` is empty.
      family: word of the boards' ``Family``, None for all families together.
      wait_subset: share of instances that need a wait, None for all subsets together.
      by_size: the cells by board side, ascending.
      mean: the unweighted mean over the sizes, which the paper calls "Sum"; for all agents together over every number
        of agents and size.
    """

    num_agents: int | None
    family: str | None
    wait_subset: float | None
    by_size: dict[int, Cell]
    mean: Cell


@dataclasses.dataclass(frozen=True)
class Scores:
    """The verdicts on answers to a fixed set; numpy arrays.

    Attributes:
      answers: int ``[n]``, how many each instance has.
      valid, optimal: float ``[n]``, share of the instance's answers; 0 without any.
      arrived: float ``[n]``, mean share of agents whose paths end on their goals; 0 of an answer that fails another
        check than ``GOAL_REACHED``.
      sum_of_costs, makespan: float ``[n]``, means over the instance's valid answers; NaN without any.
      failures: int ``[n, 9]``, its invalid answers by ``FAILURES``; one that is missing for an instance without any.
    """

    benchmark: Benchmark
    objective: Objective
    answers: np.ndarray
    valid: np.ndarray
    optimal: np.ndarray
    arrived: np.ndarray
    sum_of_costs: np.ndarray
    makespan: np.ndarray
    failures: np.ndarray

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return for each number of agents, and all of them, a row for each family and wait subset and for all of them.

        What would be the same row again is left out: where there is one number of agents, one family, or one subset.
        """
        instances, family, subset = self.benchmark.instances, self.benchmark.family, self.benchmark.wait_subset
        agents, size = np.asarray(instances.num_agents), np.asarray(instances.size)
        rows = []
        for number in _and_together(agents):
            own = _where(agents, number)
            for word, share in itertools.product(_and_together(family[own]), _and_together(subset[own])):
                here = own & _where(family, word) & _where(subset, share)
                cells = {
                    key: self._cell(here & (agents == key[0]) & (size == key[1]))
                    for key in sorted(set(zip(agents[here].tolist(), size[here].tolist(), strict=True)))
                }
                by_size = {} if number is None else {side: cell for (_, side), cell in cells.items()}
                rows.append(Row(number, word, share, by_size, _mean(cells.values())))
        return tuple(rows)

    def at(self, k: int) -> "Scores":
        """Return the scores as chances: that of k answers at least one is valid, and that one is optimal.

        Estimated by ``pass_at`` from all answers to an instance; answers that lack for k count as invalid.
        """
        total = np.maximum(self.answers, k)
        valid, optimal = (
            pass_at(k, np.rint(share * self.answers).astype(int), total) for share in (self.valid, self.optimal)
        )
        return dataclasses.replace(self, valid=valid, optimal=optimal)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; the size of a row is None for the mean over sizes. Sets of one family do not name it."""
        families, rows = len(np.unique(self.benchmark.family)) > 1, []
        for row in self.rows:
            for size, cell in (*row.by_size.items(), (None, row.mean)):
                family = {"family": row.family} if families else {}
                head = {"agents": row.num_agents, **family, "wait_subset": row.wait_subset, "size": size}
                rows.append(head | dataclasses.asdict(cell))
        plain: dict[str, Any] = {
            "set": self.benchmark.name,
            "sha256": self.benchmark.account["sha256"],
            "rules": rules.VERSION,
            "objective": self.objective.value,
            "instances": len(self.benchmark),
            "answers": int(self.answers.sum()),
            "missing": int(np.sum(self.answers == 0)),
            "rows": rows,
            "failures": [{"agents": n} | counts for n, counts in self._failures_by(self._agents).items()],
        }
        if not self._has_optima:
            del plain["objective"]
            plain["rows"] = [{key: row[key] for key in row if not key.startswith("optimal")} for row in rows]
        if families:
            by_family = self._failures_by(self.benchmark.family)
            plain["failures_by_family"] = [{"family": word} | counts for word, counts in by_family.items()]
        return plain

    def measures(self) -> list[dict[str, Any]]:
        """Return `MEASURES` for each number of agents, and all together, with standard errors over boards (`_se`).

        `success` is the share of valid answers, `individual_success` that of `arrived` agents. `sum_of_costs` and
        `makespan` are means over boards with valid answers, None without any: the sum of costs over the sum of the
        agents' shortest paths, the makespan over the longest of them. Boards where these are 0 are left out.
        """
        lengths = np.maximum(shortest_paths(self.benchmark.instances), 0)
        total, longest = (np.where(bound, bound, np.nan) for bound in (lengths.sum(axis=1), lengths.max(axis=1)))
        columns = (self.valid, self.arrived, self.sum_of_costs / total, self.makespan / longest)
        rows = []
        for number in _and_together(self._agents):
            here = _where(self._agents, number)
            row: dict[str, Any] = {"agents": number, "boards": int(here.sum())}
            for name, column in zip(MEASURES, columns, strict=True):
                known = column[here & ~np.isnan(column)]
                row[name], row[f"{name}_se"] = mean_and_error(known) if len(known) else (None, None)
            rows.append(row)
        return rows

    def to_text(self) -> str:
        """Write the tables for people, at most 100 columns wide."""
        missing = int(np.sum(self.answers == 0))
        optimal = f"optimal by {self.objective.value}" if self._has_optima else "without optima"
        facts = (
            f"{self.benchmark.name} set, {optimal}: {self.answers.sum():,} answers to "
            f"{len(self.benchmark) - missing:,} of {len(self.benchmark):,} instances"
        )
        if missing:
            facts += f"\n{missing:,} instances have no answer and count as invalid"
        return "\n\n".join([facts, *(table.to_text(width=100) for table in self.tables())])

    def tables(self) -> Iterator[Table]:
        """Yield the paper's tables: valid and optimal by size for each number of agents, and the failing checks."""
        families = len(np.unique(self.benchmark.family)) > 1
        for agents in _and_together(self._agents):
            rows = [row for row in self.rows if row.num_agents == agents]
            keys = [row.family if families else row.wait_subset for row in rows]
            labels = {i: "all" if key is None else key if families else f"{key:.2f}" for i, key in enumerate(keys)}
            cells = [row.by_size | {None: row.mean} for row in rows]
            sizes = {size: "Sum" if size is None else f"{size}x{size}" for size in cells[-1]}  # the last: all boards
            part = _where(self._agents, agents)
            share = self.optimal[part].sum() / self.valid[part].sum() if self.valid[part].any() else 0.0
            notes = {"optimal": f"of the valid, optimal: {100 * share:.1f} %"} if self._has_optima else {}
            for name, note in ({"valid": ""} | notes).items():

                def cell(i: int, size: int | None, cells: Sequence[Any] = cells, name: str = name) -> str:
                    shown = cells[i].get(size)
                    return f"{getattr(shown, name):.1f}±{getattr(shown, f'{name}_se'):.1f}" if shown else ""

                title = "all agents, mean over agents and sizes" if agents is None else f"{agents} agents"
                yield Table.grid(f"{title}, {name} %", "family" if families else "wait", labels, sizes, cell, note)
        failures = {f"{agents} agents": counts for agents, counts in self._failures_by(self._agents).items()}
        failures |= self._failures_by(self.benchmark.family) if families else {}
        checks = {name: name.replace("_", " ") for name in FAILURES}
        title = "invalid answers by the first check that fails"
        yield Table.grid(title, "", checks, list(failures), lambda name, column: f"{failures[column][name]:,}")

    @property
    def _has_optima(self) -> bool:
        return bool(np.all(self.benchmark.optimum != ABSENT))

    @property
    def _agents(self) -> np.ndarray:
        return np.asarray(self.benchmark.instances.num_agents)

    def _failures_by(self, column: np.ndarray) -> dict[Any, dict[str, int]]:
        """Return the number of answers that each check fails first, for each value of a column ``[n]``."""
        return {
            value: dict(zip(FAILURES, self.failures[column == value].sum(axis=0).tolist(), strict=True))
            for value in np.unique(column).tolist()
        }

    def _cell(self, here: np.ndarray) -> Cell:
        return Cell(int(here.sum()), *mean_and_error(100 * self.valid[here]), *mean_and_error(100 * self.optimal[here]))


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of values ``[n]`` and its standard error, 0 for a single one."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def pass_at(k: int, correct: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the chance that of k answers at least one is correct, float ``[n]``: ``1 - C(t - c, k) / C(t, k)``.

    Unbiased; by Chen et al. 2021, "Evaluating Large Language Models Trained on Code".

    Args:
      k: number of answers that are drawn, at least 1.
      correct: int ``[n]``, the number of correct answers among ``total``.
      total: int ``[n]``, at least k.
    """
    wrong = total - correct
    # C(w, k) / C(t, k), factor by factor: the chance that the first is wrong, then the second, and so on.
    none = [np.maximum(wrong - drawn, 0) / (total - drawn) for drawn in range(k)]
    shares: np.ndarray = 1 - np.prod(none, axis=0)
    return shares


def _mean(cells: Collection[Cell]) -> Cell:
    """Return the unweighted mean of cells that have no instance in common."""
    count = len(cells)
    return Cell(
        instances=sum(cell.instances for cell in cells),
        valid=sum(cell.valid for cell in cells) / count,
        valid_se=math.hypot(*(cell.valid_se for cell in cells)) / count,
        optimal=sum(cell.optimal for cell in cells) / count,
        optimal_se=math.hypot(*(cell.optimal_se for cell in cells)) / count,
    )


def score(
    answers: Mapping[str, str | Sequence[str]],
    benchmark: Benchmark | None = None,
    *,
    objective: Objective | str = Objective.SUM_OF_COSTS,
    max_steps: int = MAX_ANSWER_STEPS,
) -> Scores:
    """Read and judge answers in plain text, from any model.

    Args:
      answers: answers by id, one text or several samples; an instance without any counts as invalid.
      benchmark: the set, by default ``load("test")``.
      max_steps: the steps that an answer may have, from 1 on; one with more is not parsable.
    """
    objective = Objective(objective)
    benchmark = load() if benchmark is None else benchmark
    place = {identifier: index for index, identifier in enumerate(benchmark.ids)}
    unknown = [identifier for identifier in answers if identifier not in place]
    if unknown:
        raise ValueError(f"id {unknown[0]!r} is not in the {benchmark.name} set: ids are like {benchmark.ids[0]!r}")
    indices: list[int] = []
    texts: list[str] = []
    for identifier, given in answers.items():
        samples = [given] if isinstance(given, str) else list(given)
        indices += [place[identifier]] * len(samples)
        texts += samples
    of = np.array(indices, int)
    first, optimal, arrived, cost, makespan = _verdicts(of, texts, benchmark, objective, max_steps)

    count = len(benchmark)
    answered, solved = np.bincount(of, minlength=count), np.bincount(of[first < 0], minlength=count)
    failures = np.zeros((count, len(FAILURES)), int)
    np.add.at(failures, (of[first >= 0], first[first >= 0].astype(int)), 1)
    failures[answered == 0, FAILURES.index(MISSING)] = 1
    valid, optimal, arrived = (
        np.bincount(of, weights=each, minlength=count) / np.maximum(answered, 1)
        for each in (first < 0, optimal, arrived)
    )
    cost, makespan = (
        np.bincount(of, weights=np.maximum(each, 0), minlength=count) / np.where(solved, solved, np.nan)
        for each in (cost, makespan)
    )
    return Scores(benchmark, objective, answered, valid, optimal, arrived, cost, makespan, failures)


def _verdicts(
    of: np.ndarray, texts: Sequence[str], benchmark: Benchmark, objective: Objective, max_steps: int
) -> np.ndarray:
    """Return answers' first failing checks or -1, optimality, `arrived` and costs or -1; float ``[5, answers]``."""
    optimum = benchmark.optimum if objective is Objective.SUM_OF_COSTS else benchmark.makespan
    instances = benchmark.instances
    size = _CHUNK if instances.max_agents <= MAX_AGENTS else _CHUNK_OF_MANY
    judged = np.zeros((5, len(texts)))
    for begin in range(0, len(texts), size):
        # The last chunk is filled up, so that one program serves every number of answers.
        chunk = of[np.minimum(np.arange(begin, begin + size), len(texts) - 1)]
        part = texts[begin : begin + size]
        asked = instances[chunk]
        plans = parse_batch(
            [*part, *[""] * (size - len(part))],
            max_size=instances.max_size,
            max_agents=instances.max_agents,
            max_steps=max_steps,
            starts=asked.starts,
        )
        verdict = verify(asked, plans, optimum[chunk], objective)
        ends = np.take_along_axis(plans.paths, np.maximum(plans.lengths - 1, 0)[..., None], axis=2)[..., 0]
        arrived = np.sum((ends == asked.goals) & (plans.lengths > 0), axis=1) / asked.num_agents
        arrived *= np.delete(verdict.checks, Check.GOAL_REACHED, axis=1).all(axis=1)
        failure, costs = first_failure(verdict.checks), verdict.costs
        columns = np.stack([failure, verdict.optimal, arrived, costs.sum_of_costs, costs.makespan])
        judged[:, begin : begin + size] = columns[:, : len(part)]
    return judged


def _and_together(values: np.ndarray) -> list[Any]:
    """Return the different values ascending, and None for all of them if there are several."""
    different = np.unique(values).tolist()
    return [*different, None] if len(different) > 1 else different


def _where(column: np.ndarray, value: Any) -> np.ndarray:
    """Return where a column has a value, bool ``[n]``; everywhere for None."""
    return np.ones(len(column), bool) if value is None else column == value
