"""The fixed suites: questions to their boards, and scores of the answers, as tables with the paper's figures beside."""

import dataclasses
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engineer.evidence import wilson
from jaxlake.benchmark import Benchmark, Cell, Row, Scores, published, score
from jaxlake.types import Objective
from rl.config import Config
from rl.evaluation.asking import Question
from rl.evaluation.record import REFUSED_LATER, Answer
from rl.policy import writer
from rl.statistics import Share
from rl.table import WIDTH, Table

NOTE = (
    'In brackets 95 % intervals by Wilson, over boards. A mean counts every size the same (the paper\'s "Sum"). '
    "Optimal | valid: of the valid answers, those that are optimal."
)
OURS, GREEDY = "this model", "this model, greedy"
_PAIR = "valid / optimal %"


def questions(config: Config, suite: Benchmark, samples: int) -> list[Question]:
    """Return the questions to a suite's boards, the samples of one board side by side, each with a seed of its own."""
    return [
        Question(name, sample, message, zlib.crc32(f"{config.seed} {name} {sample}".encode()))
        for name, message in zip(suite.ids, map(writer(config.text), suite.instances), strict=True)
        for sample in range(samples)
    ]


def score_answers(
    asked: Benchmark, answers: Mapping[tuple[str, int], Answer], samples: int, objective: Objective
) -> Scores:
    """Judge the first answers by id and sample to some boards; those that are missing are invalid.

    A server's chat template may begin a thought in the prompt. Then the opening tag is in none of the answers, and one
    that was cut off while it thought has no tag at all: the others tell.
    """
    opened = any(
        "<think>" not in before for before, tag, _ in (a.answer.partition("</think>") for a in answers.values()) if tag
    )
    by_board = {name: [answers.get((name, sample)) for sample in range(samples)] for name in asked.ids}
    texts = {
        name: [f"<think>{answer.answer}" if opened else answer.answer for answer in own if answer]
        for name, own in by_board.items()
    }
    return score(texts, asked, objective=objective)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The figures of an evaluation.

    Attributes:
      about: whose answers they are, and how they were asked for; plain values.
      samples: answers asked for to each board.
      scores: the verdicts.
      chances: by k, the verdicts on k answers to a board; empty for a single answer.
      tokens, truncated: float ``[boards, samples]``, lengths, and 1 for those that the limit ended; NaN if unknown.
      identical: every board with several answers has the same one each time.
      greedy: figures of greedy answers by the same model to the same boards; None without.
    """

    about: Mapping[str, Any]
    samples: int
    scores: Scores
    chances: Mapping[int, Scores]
    tokens: np.ndarray
    truncated: np.ndarray
    identical: bool
    greedy: "Evaluation | None" = None

    @classmethod
    def of(
        cls,
        asked: Benchmark,
        answers: Mapping[tuple[str, int], Answer],
        samples: int,
        objective: Objective,
        about: Mapping[str, Any],
    ) -> "Evaluation":
        """Judge the answers to some boards of a suite; answers to other boards do not count."""
        own = [[answers.get((name, sample)) for sample in range(samples)] for name in asked.ids]
        tokens = np.array([[np.nan if a is None or a.tokens is None else a.tokens for a in row] for row in own])
        truncated = np.array([[np.nan if a is None else a.truncated for a in row] for row in own], float)
        several = [texts for row in own if len(texts := [a.answer for a in row if a]) > 1]
        identical = bool(several) and all(len(set(texts)) == 1 for texts in several)
        scores = score_answers(asked, answers, samples, objective)
        powers = {2**i for i in range(samples.bit_length())}
        chances = {k: scores.at(k) for k in sorted({*powers, samples})} if samples > 1 else {}
        return cls(about, samples, scores, chances, tokens, truncated, identical)

    @property
    def means(self) -> dict[int | None, Row]:
        """The row over all boards of each number of agents and, where there are several, of all of them under None."""
        return {row.num_agents: row for row in self.scores.rows}  # the last row of a number is over all its boards

    @property
    def total(self) -> tuple[float, float]:
        """Valid and optimal percent, mean over agents and sizes."""
        return _pair(self.scores.rows[-1].mean)

    def lengths(self, agents: int | None = None, size: int | None = None) -> dict[str, float | None]:
        """Return mean and 90th percentile of the tokens and the percent that were cut off; None where nobody knows."""
        instances = self.scores.benchmark.instances
        here = ((instances.num_agents == agents) | (agents is None)) & ((instances.size == size) | (size is None))
        tokens, truncated = (part[here][~np.isnan(part[here])] for part in (self.tokens, self.truncated))
        return {
            "mean": float(tokens.mean()) if tokens.size else None,
            "p90": float(np.percentile(tokens, 90)) if tokens.size else None,
            "truncated": 100 * float(truncated.mean()) if truncated.size else None,
        }

    def to_json(self) -> dict[str, Any]:
        """Return plain values: those of the scores, and the rows of the chances by k under ``at``."""
        return {
            **self.about,
            **self.scores.to_json(),
            "lengths": self.lengths(),
            "identical": self.identical,
            "at": {k: scores.to_json()["rows"] for k, scores in self.chances.items()},
            **({"greedy": self.greedy.to_json()} if self.greedy else {}),
        }

    def to_text(self) -> str:
        """Write what the user sees at the end."""
        facts = [textwrap.fill(fact, WIDTH) for fact in self._facts()]
        families = [self.scores.to_text()] if len(set(self.scores.benchmark.family.tolist())) > 1 else []
        return "\n\n".join([*facts, *families, *(table.to_text() for table in self._tables())])

    def to_markdown(self) -> str:
        """Write the whole report."""
        about = "\n".join(f"- {name}: {value}" for name, value in self.about.items())
        title = f"# {self.about['model']} on the {self.about['suite']} suite"
        tables = [table.to_markdown() for table in (*self._tables(), *self._published())]
        parts = "## By wait subset or family\n\n```\n" + self.scores.to_text() + "\n```"
        return "\n\n".join([title, *self._facts(), NOTE, *tables, parts, "## Settings", about]) + "\n"

    def _facts(self) -> list[str]:
        """Say how the figures came about, and what is wrong with them, a paragraph each."""
        about, scores = self.about, self.scores
        asked, missing = len(scores.benchmark), self.tokens.size - int(scores.answers.sum())
        how = "greedy" if about["temperature"] == 0 else f"sampled at temperature {about['temperature']:g}"
        if about["temperature"]:
            how += f", top-k {about['top_k']}" * (about["top_k"] > 0)
            how += f", top-p {about['top_p']:g}" * (about["top_p"] < 1)
        answers = "one answer" if self.samples == 1 else f"{self.samples} answers"
        objective = scores.objective.value.replace("_", " ")
        of = f"{asked:,} of {scores.benchmark.account['instances']:,} boards"
        facts = [f"{about['suite']} suite, {of}, {answers} each, {how}; optimal by {objective}"]
        if missing:
            facts.append(f"{missing:,} answers are missing and count as invalid.")
        if refused := about.get("refused"):
            facts.append(
                f"The server refused {', '.join(refused)}: there its own defaults hold, whatever is asked for."
            )
        if later := about.get(REFUSED_LATER):
            facts.append(f"After some answers the server refused {', '.join(later)} too, and used its own defaults.")
        if self.identical:
            facts.append(
                f"All answers to a board are the same, on every board, at temperature {about['temperature']:g}: pass@k "
                "is pass@1. Does the source sample?"
            )
        if cut := self.lengths()["truncated"]:
            facts.append(
                f"{cut:.1f} % of the answers were cut off at text.max_new_tokens = "
                f"{about['max_new_tokens']:,}; with more room some of them may be valid."
            )
        if self.greedy:
            sampled, greedy = (_printed(one.total) for one in (self, self.greedy))
            facts.append(f"Valid / optimal %, mean over agents and sizes: {sampled} sampled, {greedy} greedy.")
        return facts

    def _tables(self) -> list[Table]:
        tables = [self._by_size(row) for row in self.means.values()]
        if self.chances:
            tables.append(self._pass_at())
        return [*tables, self._beside_means()] if self._is_published else tables

    def _by_size(self, row: Row) -> Table:
        """Show the sizes of a number of agents and their mean."""
        parts = {side: (cell,) for side, cell in row.by_size.items()} | {None: row.cells}
        body = []
        for side, cells in parts.items():
            shares = (share_of(cells, "valid"), share_of(cells, "optimal"), optimal_of_valid(cells))
            lengths = self.lengths(row.num_agents, side).values()
            boards = sum(cell.instances for cell in cells)
            body.append((_side(side), f"{boards:,}", *map(_shown, shares), *map(_number, lengths)))
        title = "All agents, mean over agents and sizes" if row.num_agents is None else f"{row.num_agents} agents"
        header = ("", "boards", "valid %", "optimal %", "optimal | valid %", "tokens", "p90", "cut %")
        return Table(title, header, body)

    def _pass_at(self) -> Table:
        """Show pass@k of each row of the scores, means over sizes."""
        columns = zip(*(scores.rows for scores in self.chances.values()), strict=True)
        body = [
            (
                "all" if first.num_agents is None else str(first.num_agents),
                "all" if first.wait_subset is None else f"{first.wait_subset:.2f}",
                first.family or "all",
                *(f"{row.mean.valid:.1f} ({row.mean.optimal:.1f})" for row in (first, *others)),
            )
            for first, *others in columns
        ]
        note = "Chance in % that of k answers one is valid (optimal); unbiased, by Chen et al. 2021."
        return Table("pass@k", ("agents", "wait", "family", *(f"pass@{k}" for k in self.chances)), body, note)

    @property
    def _is_published(self) -> bool:
        """Whether the paper has figures for this suite: it has none for boards with two agents."""
        return [n for n in self.means if n] == sorted({row.num_agents for row in published().rows})

    @property
    def _ours(self) -> dict[str, "Evaluation"]:
        """The evaluations of this model by their names: sampled or greedy, or both."""
        return {OURS: self} | ({GREEDY: self.greedy} if self.greedy else {})

    def _beside_means(self) -> Table:
        """Set the means over sizes beside the paper's, for all numbers of agents at once."""
        means = {(name, n): _pair(row.mean) for name, one in self._ours.items() for n, row in one.means.items() if n}
        means |= {(row.model, row.num_agents): row.mean for row in published().rows}
        return Table.grid(
            "Mean over sizes beside the published",
            _PAIR,
            list(dict.fromkeys(model for model, _ in means)),
            {n: f"{n} agents" for n in self.means if n},
            lambda *key: _printed(means[key]),
            f"Published: {published().source}.",
        )

    def _published(self) -> list[Table]:
        """Set each size beside the paper's, and the wait subsets beside its six contexts of the engineer."""
        if not self._is_published:
            return []
        tables = [self._beside(agents) for agents in self.means if agents]
        waits = {row.wait_subset: row.mean.valid for row in self.scores.rows if row.num_agents is None}
        rows: dict[str, Mapping[Any, float]] = {OURS: waits, **published().contexts}
        subsets = {wait: f"wait {wait:.2f}" for wait in next(iter(published().contexts.values()))}
        title = "Mean over agents and sizes beside the paper's six contexts of the engineer"
        return [*tables, Table.grid(title, "valid %", list(rows), subsets, lambda name, w: _number(rows[name].get(w)))]

    def _beside(self, agents: int) -> Table:
        pairs = {name: one.means[agents] for name, one in self._ours.items()}
        printed = {
            name: {**{side: _pair(cell) for side, cell in row.by_size.items()}, None: _pair(row.mean)}
            for name, row in pairs.items()
        }
        rows = [row for row in published().rows if row.num_agents == agents]
        printed |= {row.model: {**row.by_size, None: row.mean} for row in rows}
        columns = {size: _side(size) for size in rows[0].by_size} | {None: "Sum"}
        misprints = [text for text in published().misprints if f"{agents} agents" in text]
        note = f"Published: {published().source}." + "".join(f" Misprint: {text}." for text in misprints)
        title = f"{agents} agents beside the published"
        return Table.grid(
            title, _PAIR, list(printed), columns, lambda model, size: _printed(printed[model].get(size)), note
        )


def share_of(cells: Sequence[Cell], name: str) -> Share:
    """Return the mean of a figure over cells with Wilson's interval.

    The interval is that of as many boards as would tell as much if they were drawn from all cells together: a mean of C
    shares of n_i boards each has the variance of C^2 / sum(1 / n_i) boards. A board counts once, however many answers
    it has, so that with several the interval is wider than need be, never narrower.
    """
    value, n = sum(getattr(cell, name) for cell in cells) / len(cells) / 100, _boards(cells)
    return Share(value, *wilson(value * n, n))


def optimal_of_valid(cells: Sequence[Cell]) -> Share | None:
    """Return the share of the valid answers that are optimal with Wilson's interval; None where none is valid."""
    valid, optimal = (share_of(cells, name).value for name in ("valid", "optimal"))
    if not valid:
        return None
    n = _boards(cells) * valid
    return Share(optimal / valid, *wilson(optimal / valid * n, n))


def _boards(cells: Sequence[Cell]) -> float:
    return len(cells) ** 2 / sum(1 / cell.instances for cell in cells)


def _side(size: int | None) -> str:
    return "mean" if size is None else f"{size}x{size}"


def _shown(share: Share | None) -> str:
    return "-" if share is None else share.text(digits=1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _pair(cell: Cell) -> tuple[float, float]:
    return cell.valid, cell.optimal


def _printed(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}"  # as the paper has it
