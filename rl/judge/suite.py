"""The fixed suites: questions to their boards, and the scores of the answers with the paper's figures beside them."""

import dataclasses
import textwrap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlake.benchmark import Benchmark, Scores, published, score
from jaxlake.table import WIDTH, Table
from rl.config import TextSection
from rl.judge.asking import Question
from rl.judge.record import Answer
from rl.model.policy import writer
from rl.model.sampler import SamplingParams


def questions(text: TextSection, seed: int, suite: Benchmark, samples: int) -> list[Question]:
    """Return the questions to a suite's boards, the samples of one board side by side, each with a seed of its own."""
    return [
        Question(name, sample, message, zlib.crc32(f"{seed} {name} {sample}".encode()))
        for name, message in zip(suite.ids, map(writer(text), suite.instances), strict=True)
        for sample in range(samples)
    ]


def suite_identity(text: TextSection, seed: int, sampling: SamplingParams, samples: int) -> dict[str, Any]:
    """Return the settings that affect the answers to a suite, whoever answers."""
    room = {"max_new_tokens": text.max_new_tokens, "thinking": text.thinking}
    return {"samples": samples, **dataclasses.asdict(sampling), "seed": seed, **room}


def score_answers(asked: Benchmark, answers: Mapping[tuple[str, int], Answer], samples: int) -> Scores:
    """Judge the first answers by id and sample to some boards; those that are missing are invalid.

    A server's chat template may begin a thought in the prompt. Then the opening tag is in none of the answers, and one
    that was cut off while it thought has no tag at all: the others show it.
    """
    closed = [answer.answer.partition("</think>")[0] for answer in answers.values() if "</think>" in answer.answer]
    opening = "<think>" if any("<think>" not in thought for thought in closed) else ""
    numbers = range(samples)
    return score(
        {name: [opening + answers[name, i].answer for i in numbers if (name, i) in answers] for name in asked.ids},
        asked,
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The figures of an evaluation.

    Attributes:
      about: the model that answered, and how it was asked (`suite_identity`); plain values.
      chances: the verdicts by k on k answers to a board; empty for a single answer.
      lengths: mean and 90th percentile of the answers' tokens, and the percent that the limit cut off; None if unknown.
    """

    about: Mapping[str, Any]
    scores: Scores
    chances: Mapping[int, Scores]
    lengths: Mapping[str, float | None]

    @classmethod
    def of(
        cls,
        asked: Benchmark,
        answers: Mapping[tuple[str, int], Answer],
        about: Mapping[str, Any],
    ) -> "Evaluation":
        """Judge the answers to some boards of a suite; answers to other boards do not count."""
        samples = about["samples"]
        counted = [a for (name, sample), a in answers.items() if name in set(asked.ids) and sample < samples]
        tokens = [answer.tokens for answer in counted if answer.tokens is not None]
        lengths = {
            "mean": float(np.mean(tokens)) if tokens else None,
            "p90": float(np.percentile(tokens, 90)) if tokens else None,
            "truncated": 100 * float(np.mean([answer.truncated for answer in counted])) if counted else None,
        }
        scores = score_answers(asked, answers, samples)
        powers = {2**i for i in range(samples.bit_length())}
        chances = {k: scores.at(k) for k in sorted({*powers, samples})} if samples > 1 else {}
        return cls(about, scores, chances, lengths)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: those of the scores, and the rows of the chances by k under ``at``."""
        at = {k: scores.to_json()["rows"] for k, scores in self.chances.items()}
        return {**self.about, **self.scores.to_json(), "lengths": self.lengths, "at": at}

    def to_text(self) -> str:
        """Write the report: how the answers came about, the tables of the scores, pass@k and the published figures."""
        about, scores, lengths = self.about, self.scores, self.lengths
        plays = "episode_steps" in about
        how = "greedy"
        if about["temperature"]:
            how = f"sampled at temperature {about['temperature']:g}"
            how += f", top-k {about['top_k']}" * (about["top_k"] > 0)
            how += f", top-p {about['top_p']:g}" * (about["top_p"] < 1)
        answers = "one answer" if about["samples"] == 1 else f"{about['samples']} answers"
        of = f"{len(scores.benchmark):,} of {scores.benchmark.account['instances']:,} boards"
        parts = [f"{about['suite']} suite, {of}, {answers} each, {how}; {about['model']}"]
        if missing := about["samples"] * len(scores.benchmark) - int(scores.answers.sum()):
            parts.append(f"{missing:,} answers are missing and count as invalid.")
        if (mean := lengths["mean"]) is not None:
            unit = "steps" if plays else "tokens"
            parts.append(f"Answers have {mean:.1f} {unit} on average, nine in ten at most {lengths['p90']:.0f}.")
        if lengths["truncated"]:
            section, limit = ("student", "episode_steps") if plays else ("student.text", "max_new_tokens")
            parts.append(
                f"{lengths['truncated']:.1f} % of the answers were cut off at {section}.{limit} = {about[limit]:,}; "
                "with more room some of them may be valid."
            )
        parts = [textwrap.fill(part, WIDTH) for part in parts] + [scores.to_text()]
        parts += [_pass_at(self.chances).to_text()] if self.chances else []
        if {row.num_agents for row in scores.rows} - {None} == {row.num_agents for row in published().rows}:
            ours = "this model, turn by turn" if plays else "this model"  # the published models write whole plans
            parts.append(_beside_published(ours, scores).to_text())  # which have no figures for two agents
        return "\n\n".join(parts)


def _pass_at(chances: Mapping[int, Scores]) -> Table:
    means = {k: {row.num_agents: row.mean for row in scores.rows} for k, scores in chances.items()}
    return Table.grid(
        "pass@k: chance in % that of k answers one is valid (optimal), mean over sizes",
        "agents",
        {agents: "all" if agents is None else str(agents) for agents in means[1]},
        {k: f"pass@{k}" for k in means},
        lambda agents, k: f"{means[k][agents].valid:.1f} ({means[k][agents].optimal:.1f})",
        "Unbiased, by Chen et al. 2021.",
    )


def _beside_published(ours: str, scores: Scores) -> Table:
    # The last row of a number of agents is over all its boards.
    means = {(ours, r.num_agents): (r.mean.valid, r.mean.optimal) for r in scores.rows if r.num_agents}
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
