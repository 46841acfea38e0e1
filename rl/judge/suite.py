"""The fixed suites: questions to their boards, and the scores of the answers with the paper's figures beside them."""

import dataclasses
import textwrap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlake.benchmark import Benchmark, Scores, published, score
from jaxlake.table import WIDTH, Table
from jaxlake.types import Objective
from rl.config import Config
from rl.judge.asking import Question
from rl.judge.record import Answer
from rl.model.policy import writer

OURS = "this model"


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
    texts = {
        name: [
            f"<think>{answers[name, sample].answer}" if opened else answers[name, sample].answer
            for sample in range(samples)
            if (name, sample) in answers
        ]
        for name in asked.ids
    }
    return score(texts, asked, objective=objective)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The figures of an evaluation.

    Attributes:
      about: the model that answered, and how it was asked; plain values.
      samples: number of answers asked for to each board.
      chances: the verdicts by k on k answers to a board; empty for a single answer.
      lengths: mean and 90th percentile of the answers' tokens, and the percent that the limit cut off; None if unknown.
    """

    about: Mapping[str, Any]
    samples: int
    scores: Scores
    chances: Mapping[int, Scores]
    lengths: Mapping[str, float | None]

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
        boards = set(asked.ids)
        own = [answer for (name, sample), answer in answers.items() if name in boards and sample < samples]
        tokens = [answer.tokens for answer in own if answer.tokens is not None]
        lengths = {
            "mean": float(np.mean(tokens)) if tokens else None,
            "p90": float(np.percentile(tokens, 90)) if tokens else None,
            "truncated": 100 * float(np.mean([answer.truncated for answer in own])) if own else None,
        }
        scores = score_answers(asked, answers, samples, objective)
        powers = {2**i for i in range(samples.bit_length())}
        chances = {k: scores.at(k) for k in sorted({*powers, samples})} if samples > 1 else {}
        return cls(about, samples, scores, chances, lengths)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: those of the scores, and the rows of the chances by k under ``at``."""
        at = {k: scores.to_json()["rows"] for k, scores in self.chances.items()}
        return {**self.about, **self.scores.to_json(), "lengths": self.lengths, "at": at}

    def to_text(self) -> str:
        """Write the report: how the answers came about, the tables of the scores, pass@k and the published figures."""
        facts = [textwrap.fill(fact, WIDTH) for fact in self._facts()]
        tables = [self._pass_at()] if self.chances else []
        agents = {row.num_agents for row in self.scores.rows} - {None}
        if agents == {row.num_agents for row in published().rows}:  # the paper has no figures for two agents
            tables.append(self._beside_published())
        return "\n\n".join([*facts, self.scores.to_text(), *(table.to_text() for table in tables)])

    def _facts(self) -> list[str]:
        """Say how the figures came about, and what is wrong with them, a paragraph each."""
        about, scores = self.about, self.scores
        how = "greedy" if about["temperature"] == 0 else f"sampled at temperature {about['temperature']:g}"
        if about["temperature"]:
            how += f", top-k {about['top_k']}" * (about["top_k"] > 0)
            how += f", top-p {about['top_p']:g}" * (about["top_p"] < 1)
        answers = "one answer" if self.samples == 1 else f"{self.samples} answers"
        of = f"{len(scores.benchmark):,} of {scores.benchmark.account['instances']:,} boards"
        facts = [f"{about['suite']} suite, {of}, {answers} each, {how}; {about['model']}"]
        if missing := self.samples * len(scores.benchmark) - int(scores.answers.sum()):
            facts.append(f"{missing:,} answers are missing and count as invalid.")
        unit = "steps" if self._plays else "tokens"
        if (mean := self.lengths["mean"]) is not None:
            facts.append(f"Answers have {mean:.1f} {unit} on average, nine in ten at most {self.lengths['p90']:.0f}.")
        if cut := self.lengths["truncated"]:
            section, limit = ("student", "episode_steps") if self._plays else ("text", "max_new_tokens")
            facts.append(
                f"{cut:.1f} % of the answers were cut off at {section}.{limit} = {about[limit]:,}; with more room some "
                "of them may be valid."
            )
        return facts

    @property
    def _plays(self) -> bool:
        """Whether the answers are plays, and no texts."""
        return "episode_steps" in self.about

    def _pass_at(self) -> Table:
        means = {k: {row.num_agents: row.mean for row in scores.rows} for k, scores in self.chances.items()}
        return Table.grid(
            "pass@k: chance in % that of k answers one is valid (optimal), mean over sizes",
            "agents",
            {agents: "all" if agents is None else str(agents) for agents in means[1]},
            {k: f"pass@{k}" for k in means},
            lambda agents, k: f"{means[k][agents].valid:.1f} ({means[k][agents].optimal:.1f})",
            "Unbiased, by Chen et al. 2021.",
        )

    def _beside_published(self) -> Table:
        # The last row of a number of agents is over all its boards.
        ours = f"{OURS}, turn by turn" if self._plays else OURS  # the published models write whole plans
        means = {(ours, r.num_agents): (r.mean.valid, r.mean.optimal) for r in self.scores.rows if r.num_agents}
        agents = {number: f"{number} agents" for _, number in means}
        means |= {(row.model, row.num_agents): row.mean for row in published().rows}
        return Table.grid(
            "Mean over sizes beside the published",
            "valid / optimal %",
            list(dict.fromkeys(model for model, _ in means)),
            agents,
            lambda *key: "{:.2f} / {:.2f}".format(*means[key]),
            f"Published: {published().source}.",
        )
