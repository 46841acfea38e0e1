"""Each rule does what its source says on a hand-worked case, and is legal whatever it reads."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import given_data, measured

from engineer import RULES, Hindsight, RuleEngineer
from engineer.context import PastRound
from engineer.engineers import rules
from engineer.evidence import Evidence, KindEvidence, TrainingEvidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind, read_kinds

SIZES = (3, 4, 5, 6)
KINDS = tuple(map(Kind.of, SIZES))
RANDOM = LakeConfig(SIZES, (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4), (0.3, 0.4, 0.5, 0.6))
REDESIGNED = LakeConfig(SIZES, (0.25, 0.25, 0.25, 0.25), (0.123, 0.2, 0.2, 0.2), (0.1, 0.1, 0.1, 0.1))
KEY = jax.random.key(3)


def validation(*shares: float, training: tuple[KindEvidence, ...] | None = None) -> Evidence:
    rows = tuple(measured(size, share) for size, share in zip(SIZES, shares, strict=False))
    return Evidence(rows, 0.5, 0.02, 4, 20.0, 0.0, training=training and TrainingEvidence(training, ()))


def trained(*rounds: tuple[LakeConfig, tuple[KindEvidence, ...]]) -> list[PastRound]:
    """Finished rounds, by configuration and rows of the training."""
    return [PastRound(k, config, validation(*[0.5] * 4, training=rows)) for k, (config, rows) in enumerate(rounds)]


def design(name: str, history: list[PastRound]) -> LakeConfig:
    return RULES[name](history[-1].evidence, history, KEY)


HISTORY = [
    PastRound(0, RANDOM, validation(0.9, 0.5, 0.2, 0.0)),
    PastRound(1, REDESIGNED, validation(1, 0.75, 0.5, 0.1)),
]


def test_rules_that_read_nothing():
    assert design("fixed_random", HISTORY) == RANDOM
    assert design("previous", HISTORY) == REDESIGNED
    assert design("uniform", HISTORY) == LakeConfig(SIZES, (0.25,) * 4, (0.25,) * 4, (0.5,) * 4)


def test_the_replay_gives_the_published_ratios_in_the_rounds_that_they_are_of():
    sizes = tuple(range(3, 11))
    past = [PastRound(k, LakeConfig.uniform(sizes, 0.2, 0.1), validation()) for k in range(4)]
    first, second, third = (design("paper_v6_replay", past[:k]) for k in (1, 2, 3))
    assert first.data == pytest.approx((0.05, 0.10, 0.15, 0.15, 0.15, 0.175, 0.175, 0.05))
    published = np.array((0.05, 0.10, 0.15, 0.15, 0.175, 0.175, 0.175, 0.03))
    assert second.data == pytest.approx(published / published.sum(), abs=0.005)
    assert third == second
    assert (first.hole, first.wait) == (past[0].config.hole, past[0].config.wait)


def test_a_size_that_gets_data_again_has_the_waits_of_when_it_last_had_some():
    paused = LakeConfig(SIZES, (0.5, 0.5, 0.0, 0.0), (0.2, 0.2, 0.3, 0.4), (0.3, 0.3, 0.0, 0.0))  # no boards, no waits
    config = design("learnability", [HISTORY[0], PastRound(1, paused, HISTORY[1].evidence)])
    assert (config.hole, config.wait) == ((0.2, 0.2, 0.3, 0.4), (0.3, 0.3, 0.5, 0.6))


def test_the_threshold_rule_makes_good_sizes_harder_and_rarer_and_bad_ones_easier():
    config = design("threshold_rule", HISTORY[:1])  # .9 is above .7, .5 and .2 between, 0 below .2
    assert config.hole == pytest.approx((0.15, 0.2, 0.3, 0.35))
    assert config.wait == pytest.approx((0.4, 0.4, 0.5, 0.5))
    assert config.data == pytest.approx((0.2 / 0.8, 0.3 / 0.8, 0.2 / 0.8, 0.1 / 0.8))


def test_learnability_gives_data_by_p_times_one_minus_p_and_a_floor():
    config = design("learnability", HISTORY)
    weights = np.array([0.05, 0.75 * 0.25 + 0.05, 0.25 + 0.05, 0.09 + 0.05])
    assert config.data == pytest.approx(weights / weights.sum(), abs=0.005)
    assert (config.hole, config.wait) == (REDESIGNED.hole, REDESIGNED.wait)


def validated(*rows: KindEvidence, training: tuple[KindEvidence, ...]) -> list[PastRound]:
    """A round of these kinds, some of them validated and others not."""
    evidence = Evidence(rows, 0.5, 0.02, 4, 20.0, 0.0, training=TrainingEvidence(training, ()))
    return [PastRound(0, LakeConfig.uniform((3, 4, "rooms5"), 0.2, 0.1), evidence)]


def test_a_kind_that_is_not_validated_has_the_share_of_its_training_answers():
    history = validated(measured("rooms5", 0.5), measured("maze6", 1.0), training=(measured(3, 0.9), measured(4, 0, 0)))
    weights = np.array([0.09 + 0.05, 0.25 + 0.05, 0.25 + 0.05])  # nothing known of 4: half solved
    assert design("learnability", history).data == pytest.approx(weights / weights.sum(), abs=0.005)
    assert design("threshold_rule", history).hole == pytest.approx((0.25, 0.2, 0.2))


def rewarded(**advantages: float) -> tuple[KindEvidence, ...]:
    return tuple(measured(int(size[1:]), 0.5, n=40, advantage=a) for size, a in advantages.items())


def test_the_bandit_moves_half_way_to_each_reward_and_draws_by_the_exponential():
    history = trained((RANDOM, rewarded(s3=0.4, s4=0.8)), (RANDOM, rewarded(s3=0.2, s5=0.4)))
    values = np.array([0.5 * 0.2 + 0.5 * 0.2, 0.4, 0.2, 0.0])  # size 3: .2 after round 0, then half of .2 and of .2
    expected = np.exp(values / 0.2) / np.exp(values / 0.2).sum()
    assert design("bandit", history).data == pytest.approx(expected, abs=0.005)


def test_adarft_moves_its_target_by_the_source_s_step():
    history = trained((RANDOM, (measured(3, 1.0), measured(4, 0.8))))  # reward .9
    target = 50 * math.tanh(2 * 0.4)  # 33.2, at size 4, which is at 33.3
    distance = np.abs(np.array([0, 100 / 3, 200 / 3, 100]) - target)
    expected = np.maximum(0, 1 - distance / (200 / 3))
    assert design("adarft", history).data == pytest.approx(expected / expected.sum(), abs=0.005)


UNLIKE = (3, "4x4", 6)
"""Kinds whose order by difficulty, 3, 6 and 4x4, is not that of their rows."""


def test_the_ladder_climbs_by_difficulty():
    lake, mastered = LakeConfig.uniform(UNLIKE, 0.2, 0.1), [measured(kind, 1.0) for kind in UNLIKE]
    assert design("ladder", trained((lake, ()))).data == (1, 0, 0)
    assert design("ladder", trained((lake, (mastered[0],)))).data == (0.5, 0, 0.5)
    assert design("ladder", trained((lake, (mastered[0], mastered[1])))).data == (0.5, 0, 0.5)  # 6 comes before 4x4
    assert design("ladder", trained((lake, tuple(mastered)))).data == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=0.005)


def test_the_ladder_starts_at_the_bottom_and_opens_a_level_when_the_top_is_mastered():
    failing, passing = (measured(3, 0.89),), (measured(3, 0.9), measured(4, 0.5))
    assert design("ladder", trained((RANDOM, failing))).data == (1, 0, 0, 0)
    assert design("ladder", trained((RANDOM, failing), (RANDOM, passing))).data == (0.5, 0.5, 0, 0)
    again = trained((RANDOM, failing), (RANDOM, passing), (RANDOM, failing))
    assert design("ladder", again).data == (0.5, 0.5, 0, 0)  # never down


SIDED = LakeConfig.uniform(read_kinds(["3", "4", "4x3", "6"]), 0.1, 0.2)


def right(kind: int | str, prompts: int, share: float = 1.0) -> KindEvidence:
    """A row of five answers to each of so many prompts."""
    return measured(kind, share, 5 * prompts)


@pytest.mark.parametrize(
    ("prompts", "share", "opened"), [(12, 1.0, True), (11, 1.0, False), (100, 0.84, True), (100, 0.82, False)]
)
def test_cactus_opens_the_next_side_once_the_bound_is_at_three_quarters(prompts, share, opened):
    """Twelve prompts without a fault have a bound of 12 / (12 + 2 x 2) = .75; 84 of 100 have .75, 82 have .73."""
    history = trained((SIDED, (right(3, prompts, share), right(6, 100))))  # what is wider does not count
    expected = (1 / 3, 1 / 3, 1 / 3, 0) if opened else (1, 0, 0, 0)
    assert design("cactus", history).data == pytest.approx(expected, abs=0.01)
    assert (design("cactus", history).hole, design("cactus", history).wait) == (SIDED.hole, SIDED.wait)


def test_cactus_counts_all_kinds_within_and_never_narrows():
    opened, failing = (SIDED, (right(3, 50),)), (SIDED, tuple(right(kind, 50, 0.0) for kind in (3, 4, "4x3", 6)))
    mixed = (SIDED, (right(3, 50), right(4, 50), right("4x3", 50, 0.2)))  # .73 of all
    passed = (SIDED, (right(3, 50), right(4, 50), right("4x3", 50, 0.8)))  # .93
    assert given_data(design("cactus", trained(opened, mixed))).keys() == {"3", "4", "4x3"}
    assert given_data(design("cactus", trained(opened, failing))).keys() == {"3", "4", "4x3"}
    assert design("cactus", trained(opened, passed)).data == (0.25,) * 4
    assert design("cactus", trained(opened, passed, passed, failing)).data == (0.25,) * 4
    assert design("cactus", trained((SIDED, ()))).data == (1, 0, 0, 0)


LAB = LakeConfig.uniform(read_kinds(["3", "5", "7", "4x3", "6x3", "5x4", "6x5", "7x5"]), 0.1, 0.2)
"""Kinds with two to five agents."""


def lab(finished: int) -> list[PastRound]:
    """So many finished rounds, validated on five agents."""
    rows = (measured("6x5", 0.0), measured("7x5", 0.0))
    return [PastRound(k, LAB, Evidence(rows, 0.0, 0.0, 4, 20.0, 0.0)) for k in range(finished)]


def test_hard_only_is_what_is_validated_and_easy_only_the_easiest_quarter():
    assert given_data(design("targets_only", lab(2))) == {"6x5": 0.5, "7x5": 0.5}
    easiest = sorted(LAB.kinds, key=lambda kind: kind.difficulty)[:2]
    assert given_data(design("easy_only", lab(2))) == dict.fromkeys(map(str, sorted(easiest)), 0.5)
    for name in ("targets_only", "easy_only", "agents_ladder"):
        config = design(name, lab(1))
        assert set(config.hole) == {0.25} and set(config.wait) == {0.5}


def test_the_targets_family_is_all_of_its_kinds_whatever_their_sides_and_agents():
    kinds = read_kinds(["3", "rooms5", "corridor5", "corridor5x3", "corridor7x3"])
    rows = (measured("corridor7x3", 0.1),)
    past = [PastRound(0, LakeConfig.uniform(kinds, 0.1, 0.2), Evidence(rows, 0.1, 0.0, 4, 20.0, 0.0))]
    config = rules.target_family(past[-1].evidence, past, KEY)
    assert given_data(config) == dict.fromkeys(["corridor5", "corridor5x3", "corridor7x3"], pytest.approx(1 / 3))
    assert set(config.hole) == {0.25} and set(config.wait) == {0.5}


@pytest.mark.parametrize(
    ("finished", "agents"), [(1, {2}), (2, {2, 3}), (3, {3, 4}), (4, {4, 5}), (5, {4, 5}), (9, {4, 5})]
)
def test_the_ladder_by_hand_has_one_agent_more_each_round_and_the_rung_below(finished, agents):
    shares = given_data(design("agents_ladder", lab(finished)))
    assert set(shares) == {str(kind) for kind in LAB.kinds if kind.num_agents in agents}
    assert len(set(shares.values())) == 1


def test_hindsight_takes_the_design_that_scores_best_and_tries_as_many_as_asked():
    """Scores are the share of data on 3x3 boards, so a random design of few kinds that has most of it must win."""
    tried = []

    def scores(designs, key):
        tried.append((list(designs), jax.random.key_data(key).tolist()))
        return np.array([config.data[0] for config in designs])

    rules = [RULES["uniform"], RULES["targets_only"]]
    proposal = Hindsight(scores, rules, branches=20).propose(lab(1)[0].evidence, lab(1), KEY)
    (designs, key), *_ = tried
    assert len(designs) == 20 and designs[:2] == [design("uniform", lab(1)), design("targets_only", lab(1))]
    assert proposal.projected == max(designs, key=lambda config: config.data[0]) and proposal.projected.data[0] > 0.3
    assert proposal.candidates == tuple(designs) and designs[proposal.chosen] == proposal.projected
    assert key != jax.random.key_data(KEY).tolist()  # the branches' luck is not the round's
    fewer = Hindsight(scores, rules, branches=1).propose(lab(1)[0].evidence, lab(1), KEY)
    assert fewer.projected == design("uniform", lab(1))


def test_plr_replays_by_rank_and_staleness():
    one = LakeConfig(SIZES, (0.5, 0.5, 0, 0), (0.1, 0.2, 0.3, 0.4), (0.3, 0.4, 0.5, 0.6))
    history = trained((one, (measured(3, 0.5), measured(4, 0.9))), (one, (measured(3, 0.2),)))
    # Scores: size 3 .16 (of its last round), size 4 .09; ranks 1 and 2; 1 and 2 rounds ago.
    replay = np.array([0.5 * (2 / 3) + 0.5 * (1 / 3), 0.5 * (1 / 3) + 0.5 * (2 / 3), 0, 0])
    assert design("plr", history).data == pytest.approx(0.25 / 4 + 0.75 * replay, abs=0.005)


def test_plr_keeps_cells_and_draws_some_anew():
    history = trained((RANDOM, tuple(measured(size, 0.5) for size in SIZES)))
    drawn = [RULES["plr"](history[-1].evidence, history, jax.random.key(seed)) for seed in range(60)]
    kept = np.array([[h == k for h, k in zip(config.hole, RANDOM.hole, strict=True)] for config in drawn])
    assert 0.65 < kept.mean() < 0.85
    assert len({config.wait[0] for config in drawn}) > 5


def test_mutate_best_makes_a_few_edits_to_the_round_with_most_to_learn():
    dull, rich = ({"groups": 20, "learnable": count} for count in (2, 10))
    rounds = [
        (REDESIGNED, tuple(measured(size, 0.5, **dull) for size in SIZES)),
        (RANDOM, (measured(3, 0.5, **rich), *(measured(size, 0.5, **dull) for size in SIZES[1:]))),  # .26 of it
        (REDESIGNED, (*(measured(size, 0.5, **dull) for size in SIZES[:3]), measured(6, 0.5, **rich))),  # .2
    ]
    counts = set()
    for seed in range(20):
        history = trained(*rounds)
        config = RULES["mutate_best"](history[-1].evidence, history, jax.random.key(seed))
        edited = [
            a != b
            for field in ("hole", "wait")
            for a, b in zip(getattr(config, field), getattr(RANDOM, field), strict=True)
        ]
        counts.add(sum(edited))
        assert config.data == RANDOM.data or np.abs(np.subtract(config.data, RANDOM.data)).max() <= 0.15
    assert max(counts) == 3


shares = st.sampled_from((0.0, 1.0)) | st.floats(0, 1)
configs = st.tuples(
    st.lists(st.integers(0, 200), min_size=4, max_size=4).filter(any),
    st.lists(st.floats(0, 0.5), min_size=4, max_size=4),
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
).map(lambda c: LakeConfig(SIZES, tuple(x / sum(c[0]) for x in c[0]), tuple(c[1]), tuple(c[2])))


@st.composite
def drawn_rows(draw, sizes):
    found = []
    for size in sizes:
        n, groups = draw(st.sampled_from((0, 1, 7, 100))), draw(st.sampled_from((0, 1, 20)))
        more = {"groups": groups, "learnable": draw(st.integers(0, groups)), "advantage": draw(st.none() | shares)}
        found.append(measured(size, draw(shares), n, **more))
    return tuple(found)


@st.composite
def histories(draw):
    past = []
    for k in range(draw(st.integers(1, 4))):
        evidence = Evidence(draw(drawn_rows(SIZES)), None, None, 0, 0.0, 0.0)
        training = draw(st.none() | st.lists(st.sampled_from(SIZES), unique=True).map(sorted).flatmap(drawn_rows))
        training = training if training is None else TrainingEvidence(training, ())
        past.append(PastRound(k, draw(configs), dataclasses.replace(evidence, training=training)))
    return past


@settings(max_examples=60)
@given(histories())
def test_every_rule_is_legal_whatever_it_reads(history):
    for name, rule in RULES.items():
        config = rule(history[-1].evidence, history, KEY)  # an illegal configuration cannot be made
        assert config.kinds == KINDS, name
        assert config == rule(history[-1].evidence, history, KEY), name


@pytest.mark.parametrize("name", RULES)
def test_every_rule_designs_the_kinds_of_the_run_whatever_is_validated(name):
    lake = LakeConfig((3, 4, "4x4", "corridor5x3"), (0.4, 0.3, 0.3, 0.0), (0.1,) * 4, (0.2,) * 4)
    training = tuple(measured(kind, 0.6, learnable=9, advantage=0.4) for kind in (3, 4, "4x4"))
    rows = (measured("rooms5", 0.3), measured("corridor5x3", 0.0))
    evidence = Evidence(rows, 0.2, 0.02, 4, 20.0, 0.0, training=TrainingEvidence(training, ()))
    config = RULES[name](evidence, [PastRound(0, lake, evidence)], KEY)
    assert config.kinds == lake.kinds  # an illegal configuration cannot be made


@pytest.mark.parametrize("name", RULES)
def test_every_rule_can_do_with_one_size(name):
    one = LakeConfig((5,), (1.0,), (0.2,), (0.1,))
    history = [PastRound(0, one, validation(0.5, training=(measured(5, 0.95, learnable=5, advantage=0.4),)))]
    assert RULES[name](history[-1].evidence, history, KEY).data == (1.0,)


def test_a_rule_s_proposal_has_no_words_and_never_falls_back():
    proposal = RuleEngineer("uniform", RULES["uniform"]).propose(HISTORY[-1].evidence, HISTORY, KEY)
    assert proposal.engineer == "uniform" and proposal.projected == design("uniform", HISTORY)
    assert (proposal.raw, proposal.thinking, proposal.parsed, proposal.fallback) == ("", "", None, False)
