"""Each rule of the example does what its source says on a hand-worked case, and is legal whatever it reads."""

import math
from pathlib import Path

import jax
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from rows import (
    HISTORY,
    RANDOM,
    REDESIGNED,
    SIZES,
    check_any_history,
    check_rule,
    design,
    given_data,
    histories,
    known,
    measured,
    trained,
)

from engineer import KindEvidence, PastRound
from examples import engineers_from_the_literature as literature
from jaxlake.config import LakeConfig
from jaxlake.kinds import read_kinds
from rl.config import extensions

ROOT = Path(__file__).parents[1]
OWN = {name: x for name, x in vars(literature).items() if getattr(x, "__module__", "") == literature.__name__}
RULES = {name: rule for name, rule in OWN.items() if name[0] != "_"}


@settings(max_examples=40)
@given(histories())
def test_every_rule_is_legal_whatever_it_reads(history):
    for rule in RULES.values():
        check_any_history(rule, history)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_designs_the_kinds_of_the_run(name):
    check_rule(RULES[name])


def test_the_comparisons_name_functions_that_are_here():
    kinds = [
        engineer["kind"]
        for path in (ROOT / "configs" / "compare").glob("*.yaml")
        for engineer in yaml.safe_load(path.read_text())["engineers"].values()
    ]
    names = {kind for kind in kinds if extensions.is_own(kind)}
    assert {extensions.find("engineer.kind", name) for name in names} == {*RULES.values()}


def test_the_replay_gives_the_published_ratios_in_the_rounds_that_they_are_of():
    sizes = tuple(range(3, 11))
    past = [PastRound(k, LakeConfig.uniform(sizes, 0.2, 0.1), known(())) for k in range(4)]
    first, second, third = (design(literature.paper_v6_replay, past[:k]) for k in (1, 2, 3))
    assert first.data == pytest.approx((0.05, 0.10, 0.15, 0.15, 0.15, 0.175, 0.175, 0.05))
    published = np.array((0.05, 0.10, 0.15, 0.15, 0.175, 0.175, 0.175, 0.03))
    assert second.data == pytest.approx(published / published.sum(), abs=0.005)
    assert third == second
    assert (first.hole, first.wait) == (past[0].config.hole, past[0].config.wait)


def test_the_threshold_rule_makes_good_sizes_harder_and_rarer_and_bad_ones_easier():
    config = design(literature.threshold_rule, HISTORY[:1])  # .9 is above .7, .5 and .2 between, 0 below .2
    assert config.hole == pytest.approx((0.15, 0.2, 0.3, 0.35))
    assert config.wait == pytest.approx((0.4, 0.4, 0.5, 0.5))
    assert config.data == pytest.approx((0.2 / 0.8, 0.3 / 0.8, 0.2 / 0.8, 0.1 / 0.8))


def test_the_bandit_moves_half_way_to_each_reward_and_draws_by_the_exponential():
    def rewarded(**advantages: float) -> list[KindEvidence]:
        return [measured(int(size[1:]), 0.5, n=40, advantage=a) for size, a in advantages.items()]

    history = trained((RANDOM, rewarded(s3=0.4, s4=0.8)), (RANDOM, rewarded(s3=0.2, s5=0.4)))
    values = np.array([0.5 * 0.2 + 0.5 * 0.2, 0.4, 0.2, 0.0])  # size 3: .2 after round 0, then half of .2 and of .2
    expected = np.exp(values / 0.2) / np.exp(values / 0.2).sum()
    assert design(literature.bandit, history).data == pytest.approx(expected, abs=0.005)


def test_mutate_best_makes_a_few_edits_to_the_round_with_most_to_learn():
    dull, rich = ({"groups": 20, "learnable": count} for count in (2, 10))
    history = trained(
        (REDESIGNED, [measured(size, 0.5, **dull) for size in SIZES]),
        (RANDOM, [measured(3, 0.5, **rich), *(measured(size, 0.5, **dull) for size in SIZES[1:])]),  # .26 of it
        (REDESIGNED, [*(measured(size, 0.5, **dull) for size in SIZES[:3]), measured(6, 0.5, **rich)]),  # .2
    )
    counts = set()
    for seed in range(20):
        config = design(literature.mutate_best, history, jax.random.key(seed))
        pairs = zip(config.hole + config.wait, RANDOM.hole + RANDOM.wait, strict=True)
        counts.add(sum(a != b for a, b in pairs))
        assert config.data == RANDOM.data or np.abs(np.subtract(config.data, RANDOM.data)).max() <= 0.15
    assert max(counts) == 3


def finished(*rounds, kinds=("4", "8", "4x3")) -> list[PastRound]:
    """Finished rounds by the rows of their validation and of their training."""
    lake = LakeConfig.uniform(read_kinds(kinds), 0.1, 0.2)
    return [PastRound(k, lake, known(*rows)) for k, rows in enumerate(rounds)]


def procurl(*rounds, **kinds) -> LakeConfig:
    return design(literature.procurl_target, finished(*rounds, **kinds))


def test_procurl_weighs_what_is_learnt_by_its_likeness_to_the_target():
    """4x3 is a side of 4 and an agent away from 8, which weigh the same; 4 is the side alone."""
    config = procurl(((measured(8, 0.2),), (measured(4, 0.5), measured("4x3", 0.5))))
    weights = {"4": 0.25 * math.exp(-1), "4x3": 0.25 * math.exp(-math.sqrt(2)), "8": 0.16}
    expected = {kind: (w / sum(weights.values()) + 0.005) / 1.015 for kind, w in weights.items()}
    assert given_data(config) == pytest.approx(expected, abs=0.005)
    assert (config.hole, config.wait) == ((0.1,) * 3, (0.2,) * 3)


def test_procurl_keeps_the_last_share_of_a_kind_and_gives_one_that_was_never_solved_or_known_a_step():
    first = ((measured(6, 0.0),), (measured(4, 0.5), measured(8, 0.5), measured(10, 0.9)))
    later = ((measured(6, 0.0),), (measured(10, 0.5),))  # nothing of 4 and 8
    shares = given_data(procurl(first, later, kinds=("4", "6", "8", "10")))
    assert shares["4"] == shares["8"] > shares["10"] > shares["6"] == 0.005
    shares = given_data(procurl(((measured(8, 0.2),), (measured("4x3", 0.5),))))
    assert shares["4"] == 0.005 and min(shares["8"], shares["4x3"]) > 0.2
    for share, n in ((0.0, 100), (1.0, 100), (0.5, 0)):
        rows = [measured(kind, share, n) for kind in (4, 8, "4x3")]
        assert procurl(((), rows)).data == pytest.approx((1 / 3,) * 3, abs=0.005)


SIDED = LakeConfig.uniform(read_kinds(["3", "4", "4x3", "6"]), 0.1, 0.2)


def right(kind: int | str, prompts: int, share: float = 1.0) -> KindEvidence:
    """A row of five answers to each of so many prompts."""
    return measured(kind, share, 5 * prompts)


def cactus(*rounds) -> LakeConfig:
    return design(literature.cactus, trained(*((SIDED, rows) for rows in rounds)))


@pytest.mark.parametrize(
    ("prompts", "share", "opened"), [(12, 1.0, True), (11, 1.0, False), (100, 0.84, True), (100, 0.82, False)]
)
def test_cactus_opens_the_next_side_once_the_bound_is_at_three_quarters(prompts, share, opened):
    """Twelve prompts without a fault have a bound of 12 / (12 + 2 x 2) = .75; 84 of 100 have .75, 82 have .73."""
    config = cactus((right(3, prompts, share), right(6, 100)))  # what is wider does not count
    assert config.data == pytest.approx((1 / 3, 1 / 3, 1 / 3, 0) if opened else (1, 0, 0, 0), abs=0.01)
    assert (config.hole, config.wait) == (SIDED.hole, SIDED.wait)


def test_cactus_counts_all_kinds_within_and_never_narrows():
    opened, failing = (right(3, 50),), [right(kind, 50, 0.0) for kind in (3, 4, "4x3", 6)]
    mixed = (right(3, 50), right(4, 50), right("4x3", 50, 0.2))  # .73 of all
    passed = (right(3, 50), right(4, 50), right("4x3", 50, 0.8))  # .93
    assert given_data(cactus(opened, mixed)).keys() == {"3", "4", "4x3"}
    assert given_data(cactus(opened, failing)).keys() == {"3", "4", "4x3"}
    assert cactus(opened, passed).data == cactus(opened, passed, passed, failing).data == (0.25,) * 4
    assert cactus(()).data == (1, 0, 0, 0)


LAB = LakeConfig.uniform(read_kinds(["3", "5", "7", "4x3", "6x3", "5x4", "6x5", "7x5"]), 0.1, 0.2)
"""Kinds with two to five agents."""


@pytest.mark.parametrize(("finished", "agents"), [(1, {2}), (2, {2, 3}), (4, {4, 5}), (9, {4, 5})])
def test_the_ladder_by_hand_has_one_agent_more_each_round_and_the_rung_below(finished, agents):
    past = [PastRound(k, LAB, known((measured("6x5", 0.0),))) for k in range(finished)]
    shares = given_data(design(literature.agents_ladder, past))
    assert set(shares) == {str(kind) for kind in LAB.kinds if kind.num_agents in agents}
    assert len(set(shares.values())) == 1


def test_the_targets_family_is_all_of_its_kinds_whatever_their_sides_and_agents():
    kinds = read_kinds(["3", "rooms5", "corridor5", "corridor5x3", "corridor7x3"])
    past = [PastRound(0, LakeConfig.uniform(kinds, 0.1, 0.2), known((measured("corridor7x3", 0.1),)))]
    config = design(literature.target_family, past)
    assert given_data(config) == dict.fromkeys(["corridor5", "corridor5x3", "corridor7x3"], pytest.approx(1 / 3))
    assert set(config.hole) == {0.25} and set(config.wait) == {0.5}


def test_the_hardest_is_the_last_kind_with_all_holes_and_waits():
    config = design(literature.hardest, HISTORY)
    assert given_data(config) == {"6": 1.0} and set(config.hole) == {0.5} and set(config.wait) == {1.0}
