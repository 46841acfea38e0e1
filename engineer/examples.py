"""Synthetic engineer examples to warm-start a from-scratch model; the rule they teach is ours, not the paper's."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from engineer.context import FAILURES, Context, Module, PastRound, Template, Training, modules, percent
from engineer.engineers.base import in_steps
from engineer.engineers.rules import NEAREST, frontier_design, nearest_to_half
from engineer.evidence import CHECKS, Evidence, KindEvidence, TrainingEvidence
from engineer.proposal import to_answer
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Kind

FAILURE_WEIGHTS = (0.2, 0.1, 0.2, 0.2, 1.0, 0.4, 1.0, 0.5)
"""Dirichlet weights of the checks, in their order: holes and conflicts are what a warm-started policy fails at."""


def example(
    rng: np.random.Generator,
    kinds: Sequence[Kind],
    rounds: int,
    epochs_per_round: int,
    contexts: Sequence[str] = ("V6",),
    template: Template | None = None,
    targets: Sequence[Kind] = (),
) -> tuple[str, str, str, LakeConfig]:
    """Draw one example: a plausible run up to some round, and what a good engineer answers from what it is shown.

    Args:
      kinds: kinds of boards to be designed, ascending.
      rounds: rounds of the run, round 0 included; at least 2.
      contexts: names of contexts, as `engineer.context.modules` reads them; each is drawn as often as the others.
      template: the context's words; None for the shipped ones.
      targets: kinds that are validated, ascending; empty for the designed kinds.

    Returns:
      The context (user message), the thinking (at most 40 words), the answer (JSON), and the configuration in it.
    """
    shown = modules(contexts[int(rng.integers(len(contexts)))] if len(contexts) > 1 else contexts[0])
    history = draw_history(rng, kinds, rounds, shown, targets)
    evidence = history[-1].evidence
    config, rationale = frontier_design(visible(evidence, shown), tuple(kinds)), think(evidence, kinds)
    training = Training(len(history), rounds, epochs_per_round, _details(rng) if Module.TF in shown else "")
    context = Context(shown, template or Template.shipped()).build(evidence, history, training)
    return context, rationale, to_answer(config), config


def draw_history(
    rng: np.random.Generator, kinds: Sequence[Kind], rounds: int, shown: Sequence[Module], targets: Sequence[Kind] = ()
) -> list[PastRound]:
    """Draw the rounds of an imagined run up to one that is not the last; arguments as of `example`.

    The rule designs them. Where the context shows the kinds that were trained on, half of the rounds have a random
    design, so that these tables are as long and as short as those of other engineers' runs; the last one's evidence has
    its training then.
    """
    validated = tuple(targets or kinds)
    skills = _skills(rng, tuple(kinds), validated)
    n = int(rng.integers(12, 129))
    evidence = _evidence(rng, skills, validated, n)
    # A constant replaces round 0's random configuration where the text does not show it.
    middle = LakeConfig.uniform(kinds, hole=0.25, wait=0.3)
    first = _random(rng, tuple(kinds)) if {Module.H0, Module.R} & {*shown} else middle
    history = [PastRound(0, first, evidence)]
    for past in range(1, int(rng.integers(1, rounds))):
        config, rationale = frontier_design(evidence, tuple(kinds)), think(evidence, kinds)
        if Module.R in shown and rng.random() < 0.5:
            config = _random(rng, tuple(kinds), some=True)
        skills = {kind: skill + rng.normal(0.4, 0.4) for kind, skill in skills.items()}
        evidence = _evidence(rng, skills, validated, n)
        history.append(PastRound(past, config, evidence, rationale))
    if Module.R in shown:
        training = _training(rng, evidence, history[-1].config, skills)
        history[-1] = dataclasses.replace(history[-1], evidence=dataclasses.replace(evidence, training=training))
    return history


def think(evidence: Evidence, kinds: Sequence[Kind]) -> str:
    """Write what the examples think first: the weakest kinds, those nearest to half solved, what most answers fail.

    Kinds and valid shares are as in a terse table, to be copied, and those that get data in the order of how much, so
    that the answer can be read off. Each of the weakest is a comparison to learn from; one an example was too few.
    """
    rows = evidence.known_rows
    ascending = sorted(reversed(evidence.by_kind), key=lambda row: percent(row.valid_share, 1))  # as a table is read up
    weakest = ";".join(map(_quote, ascending[:NEAREST]))
    failure = max(CHECKS, key=lambda check: evidence.first_failures[check])
    learnable = ";".join(_quote(rows[kind]) for kind in nearest_to_half(evidence, kinds)) or "none"
    leading = FAILURES[failure] if evidence.valid < evidence.n else "none"
    return f"Weakest:{weakest};most learnable:{learnable};leading failure:{leading}"


def _quote(row: KindEvidence) -> str:
    return f"{row.kind} {percent(row.valid_share, 1)}"


def visible(evidence: Evidence, shown: Sequence[Module]) -> Evidence:
    """Return evidence as a context of these modules shows it: its training without the failures, or no training."""
    training = evidence.training if Module.R in shown else None
    if training is not None:
        none = dict.fromkeys(CHECKS, 0)
        rows = tuple(dataclasses.replace(row, first_failures=none) for row in training.by_kind)
        training = dataclasses.replace(training, by_kind=rows)
    return dataclasses.replace(evidence, training=training)


def _skills(rng: np.random.Generator, kinds: tuple[Kind, ...], validated: tuple[Kind, ...]) -> dict[Kind, float]:
    """Draw an imagined policy: a kind is solved with a probability that is logistic in its own skill.

    Where it trains on other kinds than it is validated on, it may stand anywhere on the way from before the easiest
    kind, where hardly anything is ever solved, to the hardest.
    """
    slope, skill = rng.uniform(0.0, 1.6), rng.uniform(-3.0, 2.5)
    met = sorted({*kinds, *validated})
    difficulties = [kind.difficulty for kind in met]
    ends = min(difficulties), max(difficulties)
    middle = sum(ends) / 2 if kinds == validated else rng.uniform(ends[0] - 3, ends[1])
    skills = np.array([skill - slope * (kind.difficulty - middle) + rng.normal(0, 0.6) for kind in met])
    if rng.random() < 0.5:
        rng.shuffle(skills)
    return dict(zip(met, skills.tolist(), strict=True))


def _evidence(rng: np.random.Generator, skills: dict[Kind, float], kinds: Sequence[Kind], n: int) -> Evidence:
    """Draw a validation of n boards per kind, four samples a board."""
    rows = _rows(rng, skills, kinds, n)
    sampled = float(np.mean([row.sampled_valid for row in rows]))
    return Evidence(rows, sampled, sampled_se=0.02, samples_per_prompt=4, answer_tokens=20.0, truncated=0.0)


def _rows(
    rng: np.random.Generator, skills: dict[Kind, float], kinds: Sequence[Kind], n: int
) -> tuple[KindEvidence, ...]:
    split = rng.dirichlet(FAILURE_WEIGHTS)
    temperature_cost = rng.uniform(0.2, 1.2)
    rows = []
    for kind in kinds:
        valid = int(rng.binomial(n, _logistic(skills[kind])))
        first = rng.multinomial(n - valid, rng.dirichlet(20 * split + 0.1)).tolist()
        failures = dict(zip(CHECKS, first, strict=True))
        sampled = float(rng.binomial(4 * n, _logistic(skills[kind] - temperature_cost)) / (4 * n))
        optimal = int(rng.binomial(valid, rng.uniform(0.7, 1)))
        rows.append(KindEvidence(kind, n, valid, optimal, failures, failures, sampled))
    return tuple(rows)


def _random(rng: np.random.Generator, kinds: tuple[Kind, ...], some: bool = False) -> LakeConfig:
    """Draw a configuration as ``LakeConfig.random`` draws round 0's; with `some` of any number of the kinds."""
    count = len(kinds)
    data = rng.dirichlet(np.ones(count))
    if some:
        data[rng.permutation(count)[int(rng.integers(1, count + 1)) :]] = 0
    return in_steps(kinds, data / data.sum(), rng.uniform(0, MAX_HOLE, count), rng.uniform(0, 1, count))


def _details(rng: np.random.Generator) -> str:
    prompts, samples, boards = rng.choice((8, 16, 24, 32)), rng.choice((4, 8, 16)), rng.choice((960, 1920, 4000))
    rate, kl = rng.choice((1e-6, 1e-5, 1e-4)), rng.choice((0, 0.001, 0.01))
    free, limit = 8 * rng.integers(1, 9, 2).cumsum()
    return (
        f"GRPO, {prompts} boards a step with {samples} answers each, temperature 1, learning rate {rate:g} (constant), "
        f"credit outcome, advantage group_std, loss token_mean, clip 0.2 and 0.28, KL coefficient {kl:g}. "
        f"Reward paper: free length {free}, limit {limit} tokens. {boards} boards a round."
    )


def _training(
    rng: np.random.Generator, evidence: Evidence, config: LakeConfig, skills: dict[Kind, float]
) -> TrainingEvidence:
    """Draw a round's training on this configuration, eight answers to each of 1,000 boards."""
    rows = {row.kind: row for row in evidence.by_kind}
    rows |= {row.kind: row for row in _rows(rng, skills, [kind for kind in config.kinds if kind not in rows], n=8)}
    trained = zip(config.kinds, (round(1000 * share) for share in config.data), strict=True)
    return TrainingEvidence(tuple(_trained(rng, rows[kind], boards) for kind, boards in trained if boards), ())


def _trained(rng: np.random.Generator, row: KindEvidence, boards: int, samples: int = 8) -> KindEvidence:
    """Draw sampled answers to boards some of which are always solved and some never; they fail as those of `row` do."""
    share = row.valid_share
    shares = rng.binomial(samples, rng.beta(2 * share + 0.05, 2 * (1 - share) + 0.05, boards)) / samples
    n, valid = samples * boards, round(samples * shares.sum())
    weights = np.array([row.first_failures[check] for check in CHECKS]) + 0.5
    failures = dict(zip(CHECKS, rng.multinomial(n - valid, weights / weights.sum()).tolist(), strict=True))
    return KindEvidence(row.kind, n, valid, valid, failures, failures, float(shares.mean()))


def _logistic(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))
