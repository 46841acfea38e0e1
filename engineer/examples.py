"""Synthetic engineer examples to warm-start a from-scratch model; the rule they teach is ours, not the paper's."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from engineer.context import FAILURES, Context, Module, PastRound, Template, Training, modules, percent
from engineer.engineers.base import in_steps
from engineer.engineers.rules import NEAREST, frontier_design, known_rows, nearest_to_half
from engineer.evidence import CHECKS, Evidence, KindEnvironment, KindEvidence, TrainingEvidence, Trajectory
from engineer.evidence.answers import count_groups
from engineer.proposal import to_answer
from jaxlake import text
from jaxlake.board_text import to_text
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Kind
from jaxlake.levels import build

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
    """Draw one example: a plausible run up to some round, and what a good engineer answers there.

    The answer follows from nothing that the context leaves out.

    Args:
      rng: of every draw.
      kinds: of boards to be designed, ascending.
      rounds: rounds of the run, round 0 included; at least 2.
      epochs_per_round: as the context tells it.
      contexts: what a context may show, by names as `engineer.context.modules` reads them; drawn alike.
      template: the context's words; None for the shipped ones.
      targets: kinds that are validated, ascending; those that are designed where it is empty.

    Returns:
      the context (user message), the thinking (at most 40 words), the answer (JSON), and the configuration it holds.
    """
    shown = modules(contexts[int(rng.integers(len(contexts)))] if len(contexts) > 1 else contexts[0])
    history = draw_history(rng, kinds, rounds, shown, targets)
    evidence = history[-1].evidence
    config, rationale = frontier_design(evidence, tuple(kinds)), think(evidence, kinds)
    if Module.X in shown:
        evidence = dataclasses.replace(evidence, trajectories=_failures(rng, evidence))
    training = Training(len(history), rounds, epochs_per_round, _details(rng) if Module.TF in shown else "")
    context = Context(shown, template or Template.shipped()).build(evidence, history, training)
    return context, rationale, to_answer(config), config


def draw_history(
    rng: np.random.Generator, kinds: Sequence[Kind], rounds: int, shown: Sequence[Module], targets: Sequence[Kind] = ()
) -> list[PastRound]:
    """Draw the rounds of an imagined run up to one that has another after it.

    The rule designs them; where a context shows what was trained on, anybody may have, so that its tables are as long
    and as short as those of other engineers' runs.

    Args:
      rng, kinds, rounds, targets: as of `example`.
      shown: modules of a context: the last evidence has what they show.
    """
    validated = tuple(targets or kinds)
    skills = _skills(rng, tuple(kinds), validated)
    n = int(rng.integers(12, 129))
    evidence = _evidence(rng, skills, validated, n)
    # Any configuration stands in for round 0's where nothing of it is shown.
    first = _random(rng, tuple(kinds)) if {Module.H0, Module.R} & {*shown} else _middle(tuple(kinds))
    history = [PastRound(0, first, evidence)]
    others = Module.R in shown
    for past in range(1, int(rng.integers(1, rounds))):
        config, rationale = frontier_design(evidence, tuple(kinds)), think(evidence, kinds)
        if others and rng.random() < 0.5:
            config = _random(rng, tuple(kinds), some=True)
        skills = {kind: skill + rng.normal(0.4, 0.4) for kind, skill in skills.items()}
        evidence = _evidence(rng, skills, validated, n)
        history.append(PastRound(past, config, evidence, rationale))
    if {Module.E, Module.R} & {*shown}:
        evidence = _extended(rng, evidence, history[-1].config, skills)
        history[-1] = dataclasses.replace(history[-1], evidence=evidence)
    return history


def think(evidence: Evidence, kinds: Sequence[Kind]) -> str:
    """Write what the examples think first: the weakest kinds, those nearest to half solved, what most answers fail.

    A kind and its valid share stand as in a terse table, so that they can be copied; and the kinds that are to have
    data in the order of how much, so that the answer can be read off. Of the weakest as many are named: each is a
    comparison to learn from, and one an example was too few.
    """
    rows = known_rows(evidence)
    ascending = sorted(evidence.by_kind, key=lambda row: percent(row.valid_share, 1))
    weakest = ";".join(map(_quote, ascending[:NEAREST]))
    failure = max(CHECKS, key=lambda check: evidence.first_failures[check])
    learnable = ";".join(_quote(rows[kind]) for kind in nearest_to_half(evidence, kinds)) or "none"
    return (
        f"Weakest:{weakest};most learnable:{learnable};"
        f"leading failure:{FAILURES[failure] if evidence.valid < evidence.n else 'none'}"
    )


def _quote(row: KindEvidence) -> str:
    return f"{row.kind} {percent(row.valid_share, 1)}"


def visible(evidence: Evidence, shown: Sequence[Module]) -> Evidence:
    """Return evidence without its training, unless a context of these modules shows it."""
    return evidence if {Module.E, Module.R} & {*shown} else dataclasses.replace(evidence, training=None)


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
    sampled = float(np.mean([row.sampled_valid for row in rows]))
    return Evidence(tuple(rows), sampled, sampled_se=0.02, samples_per_prompt=4, answer_tokens=20.0, truncated=0.0)


def _middle(kinds: tuple[Kind, ...]) -> LakeConfig:
    return LakeConfig.uniform(kinds, hole=0.25, wait=0.3)


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


def _extended(rng: np.random.Generator, evidence: Evidence, config: LakeConfig, skills: dict[Kind, float]) -> Evidence:
    """Add to a validation what E and R show besides: a round on this configuration before it."""
    tokens = rng.uniform(12, 30)
    measured, boards, trained, trained_on = [], [], [], []
    data = dict(zip(config.kinds, config.data, strict=True))
    validated = {row.kind for row in evidence.by_kind}
    others = [kind for kind in config.kinds if kind not in validated]
    rows = (*evidence.by_kind, *(_evidence(rng, skills, others, n=8).by_kind if others else ()))
    for row in sorted(rows, key=lambda row: row.kind):
        if row.kind in validated:
            shares = _group_shares(rng, row.valid_share, row.n, samples=evidence.samples_per_prompt)
            measured.append(_counted(rng, row, shares, tokens))
            realised = {"data": 1 / len(validated), "hole": 0.3, "wait": 0.25}
            boards.append(_boards(rng, row.kind, row.n, None, realised))
        count = round(1000 * data.get(row.kind, 0))
        if count:
            shares = _group_shares(rng, row.valid_share, count, samples=8)
            trained.append(_counted(rng, _rollouts(rng, row, shares, samples=8), shares, tokens))
            requested = config.to_dict()[str(row.kind)]
            trained_on.append(_boards(rng, row.kind, count, requested, requested))
    return dataclasses.replace(
        evidence,
        by_kind=tuple(measured),
        environment=tuple(boards),
        training=TrainingEvidence(tuple(trained), tuple(trained_on)),
    )


def _group_shares(rng: np.random.Generator, share: float, groups: int, samples: int) -> np.ndarray:
    """Draw valid shares ``[groups]`` of prompts some of which are always solved and some never."""
    return rng.binomial(samples, rng.beta(2 * share + 0.05, 2 * (1 - share) + 0.05, groups)) / samples


def _rollouts(rng: np.random.Generator, row: KindEvidence, shares: np.ndarray, samples: int) -> KindEvidence:
    """Draw sampled answers to as many prompts as there are shares; they fail as those of the validation's row do."""
    n, valid = samples * len(shares), round(samples * shares.sum())
    weights = np.array([row.first_failures[check] for check in CHECKS]) + 0.5
    first = dict(zip(CHECKS, rng.multinomial(n - valid, weights / weights.sum()).tolist(), strict=True))
    return KindEvidence(
        row.kind, n, valid, int(rng.binomial(valid, rng.uniform(0.7, 1))), first, first, float(shares.mean())
    )


def _counted(rng: np.random.Generator, row: KindEvidence, shares: np.ndarray, tokens: float) -> KindEvidence:
    invalid = row.n - row.valid
    return dataclasses.replace(
        row,
        any_failures={check: n + int(rng.binomial(invalid - n, 0.1)) for check, n in row.first_failures.items()},
        sampled_se=float(shares.std() / np.sqrt(len(shares))),
        **count_groups(shares),
        answer_tokens=float(tokens + 2 * row.kind.size),
        answer_tokens_se=float(rng.uniform(2, 8) / np.sqrt(row.n)),
        truncated=int(rng.binomial(row.n, 0.02)),
    )


def _boards(
    rng: np.random.Generator, kind: Kind, count: int, requested: dict[str, float] | None, realised: dict[str, float]
) -> KindEnvironment:
    gap = rng.uniform(0.2, 1) * realised["wait"] * 2
    solvable = np.clip(1.05 - realised["hole"] * rng.uniform(0.8, 1.6), 0, 1)
    return KindEnvironment(
        kind, count, requested, realised, float(4 / 3 * kind.size + gap), float(gap), float(solvable)
    )


def _failures(rng: np.random.Generator, evidence: Evidence, most: int = 3) -> tuple[Trajectory, ...]:
    """Draw failed answers of the kinds and checks that fail most, of the two checks that are easily drawn."""
    drawn = ("hole_free", "conflict_free")
    cases = sorted((row.first_failures[check], row.kind, check) for row in evidence.by_kind for check in drawn)
    return tuple(_failure(rng, kind, check) for count, kind, check in cases[: -most - 1 : -1] if count)


def _failure(rng: np.random.Generator, kind: Kind, check: str) -> Trajectory:
    """Draw an answer in which agent 0 walks along a row and agent 1 down a column: over a hole, or into each other."""
    size = kind.size
    row = int(rng.integers(1, size - 1))
    column = row if check == "conflict_free" else 0
    holes = rng.random((size, size)) < 0.25
    holes[row, :] = holes[:, column] = False
    if check == "hole_free":
        holes[row, rng.integers(1, size - 1)] = True
    starts, goals = [row * size, column], [row * size + size - 1, (size - 1) * size + column]
    board = build(size, holes, starts, goals)
    paths = [[(row, x) for x in range(size)], [(y, column) for y in range(size)]]
    answer = "\n".join(f"{i}:" + "".join(f"({y},{x})" for y, x in path) for i, path in enumerate(paths))
    plan = text.parse(answer, max_size=size, max_agents=2, max_steps=size)
    return Trajectory(kind, check, to_text(board, plan), answer)


def _logistic(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))
