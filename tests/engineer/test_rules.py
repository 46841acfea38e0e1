"""Each rule does what its source says on a hand-worked case, and is legal whatever it reads."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from rows import (
    HISTORY,
    KEY,
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

from engineer import RULES, Hindsight
from engineer.context import PastRound
from engineer.engineers.rules import features, posterior
from engineer.evidence import KindEvidence
from jaxlake.config import LakeConfig
from jaxlake.kinds import read_kinds


def test_rules_that_read_nothing():
    assert design("fixed_random", HISTORY) == RANDOM
    assert design("uniform", HISTORY) == LakeConfig(SIZES, (0.25,) * 4, (0.25,) * 4, (0.5,) * 4)


def test_a_size_that_gets_data_again_has_the_waits_of_when_it_last_had_some():
    paused = LakeConfig(SIZES, (0.5, 0.5, 0.0, 0.0), (0.2, 0.2, 0.3, 0.4), (0.3, 0.3, 0.0, 0.0))  # no boards, no waits
    config = design("learnability", [HISTORY[0], PastRound(1, paused, HISTORY[1].evidence)])
    assert (config.hole, config.wait) == ((0.2, 0.2, 0.3, 0.4), (0.3, 0.3, 0.5, 0.6))


def test_learnability_gives_data_by_p_times_one_minus_p_and_a_floor():
    config = design("learnability", HISTORY)
    weights = np.array([0.05, 0.75 * 0.25 + 0.05, 0.25 + 0.05, 0.09 + 0.05])
    assert config.data == pytest.approx(weights / weights.sum(), abs=0.005)
    assert (config.hole, config.wait) == (REDESIGNED.hole, REDESIGNED.wait)


def test_a_kind_that_is_not_validated_has_the_share_of_its_training_answers():
    evidence = known((measured("rooms5", 0.5), measured("maze6", 1.0)), (measured(3, 0.9), measured(4, 0, 0)))
    history = [PastRound(0, LakeConfig.uniform((3, 4, "rooms5"), 0.2, 0.1), evidence)]
    weights = np.array([0.09 + 0.05, 0.25 + 0.05, 0.25 + 0.05])  # nothing known of 4: half solved
    assert design("learnability", history).data == pytest.approx(weights / weights.sum(), abs=0.005)


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
    assert design("ladder", trained((lake, mastered))).data == pytest.approx((1 / 3, 1 / 3, 1 / 3), abs=0.005)


def test_the_ladder_starts_at_the_bottom_and_opens_a_level_when_the_top_is_mastered():
    failing, passing = (measured(3, 0.89),), (measured(3, 0.9), measured(4, 0.5))
    assert design("ladder", trained((RANDOM, failing))).data == (1, 0, 0, 0)
    assert design("ladder", trained((RANDOM, failing), (RANDOM, passing))).data == (0.5, 0.5, 0, 0)
    again = trained((RANDOM, failing), (RANDOM, passing), (RANDOM, failing))
    assert design("ladder", again).data == (0.5, 0.5, 0, 0)  # never down


LAB = LakeConfig.uniform(read_kinds(["3", "5", "7", "4x3", "6x3", "5x4", "6x5", "7x5"]), 0.1, 0.2)
VALIDATED = [PastRound(k, LAB, known((measured("6x5", 0.0), measured("7x5", 0.0)))) for k in range(2)]


def test_hard_only_is_what_is_validated_and_easy_only_the_easiest_quarter():
    assert given_data(design("targets_only", VALIDATED)) == {"6x5": 0.5, "7x5": 0.5}
    easiest = sorted(LAB.kinds, key=lambda kind: kind.difficulty)[:2]
    assert given_data(design("easy_only", VALIDATED)) == dict.fromkeys(map(str, sorted(easiest)), 0.5)
    for name in ("targets_only", "easy_only"):
        config = design(name, VALIDATED)
        assert set(config.hole) == {0.25} and set(config.wait) == {0.5}


def test_hindsight_takes_the_design_that_scores_best_and_tries_as_many_as_asked():
    """Scores are the share of data on 3x3 boards, so a random design of few kinds that has most of it must win."""
    tried = []

    def scores(designs, key):
        tried.append((list(designs), jax.random.key_data(key).tolist()))
        return np.array([config.data[0] for config in designs])

    rules = [RULES["uniform"], RULES["targets_only"]]
    proposal = Hindsight(scores, rules, branches=20).propose(VALIDATED[0].evidence, VALIDATED[:1], KEY)
    (designs, key), *_ = tried
    assert len(designs) == 20 and designs[:2] == [design(rule, VALIDATED[:1]) for rule in rules]
    assert proposal.projected == max(designs, key=lambda config: config.data[0]) and proposal.projected.data[0] > 0.3
    assert proposal.candidates == tuple(designs) and designs[proposal.chosen] == proposal.projected
    assert key != jax.random.key_data(KEY).tolist()  # the branches' luck is not the round's
    fewer = Hindsight(scores, rules, branches=1).propose(VALIDATED[0].evidence, VALIDATED[:1], KEY)
    assert fewer.projected == design("uniform", VALIDATED[:1])


def test_plr_replays_by_rank_and_staleness():
    one = LakeConfig(SIZES, (0.5, 0.5, 0, 0), (0.1, 0.2, 0.3, 0.4), (0.3, 0.4, 0.5, 0.6))
    history = trained((one, (measured(3, 0.5), measured(4, 0.9))), (one, (measured(3, 0.2),)))
    # Scores: size 3 .16 (of its last round), size 4 .09; ranks 1 and 2; 1 and 2 rounds ago.
    replay = np.array([0.5 * (2 / 3) + 0.5 * (1 / 3), 0.5 * (1 / 3) + 0.5 * (2 / 3), 0, 0])
    assert design("plr", history).data == pytest.approx(0.25 / 4 + 0.75 * replay, abs=0.005)


def test_plr_keeps_cells_and_draws_some_anew():
    history = trained((RANDOM, [measured(size, 0.5) for size in SIZES]))
    drawn = [design("plr", history, jax.random.key(seed)) for seed in range(60)]
    same = np.array([[h == k for h, k in zip(config.hole, RANDOM.hole, strict=True)] for config in drawn])
    assert 0.65 < same.mean() < 0.85
    assert len({config.wait[0] for config in drawn}) > 5


def test_features_are_side_agents_and_family():
    assert features(read_kinds(["6", "4x3", "rooms8"])).tolist() == [
        [1.0, 3, 1, 0, 0, 0, 0, 0, 0],
        [1.5, 2, 1, 0, 0, 0, 0, 0, 0],
        [2.0, 2, 0, 1, 0, 0, 0, 0, 0],
    ]


def test_the_regression_is_numpys_with_a_row_of_the_prior_for_each_weight():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 4)), rng.normal(size=9)
    mean, root = posterior(x, y)
    wanted = np.linalg.lstsq(np.vstack([x, np.eye(4)]), np.concatenate([y, np.zeros(4)]), rcond=None)[0]
    assert mean == pytest.approx(wanted, abs=1e-12)
    noise = (1 + ((y - x @ wanted) ** 2).sum()) / 10
    assert root @ root.T == pytest.approx(noise * np.linalg.inv(x.T @ x + np.eye(4)), abs=1e-12)
    none, prior = posterior(np.zeros((0, 4)), np.zeros(0))
    assert none.tolist() == [0] * 4 and prior == pytest.approx(np.eye(4))


SIDES = tuple(range(3, 11))
KEYS = [jax.random.key(seed) for seed in range(20)]


def logistic(sides, half: float) -> list[KindEvidence]:
    """Rows with a logit of the valid share that falls by 1 a side and is 0 at ``half``."""
    return [measured(side, 1 / (1 + math.exp(side - half)), 1000) for side in sides]


def rounds(*rows, validated=(), kinds=("3-10",)) -> list[PastRound]:
    """Finished rounds by the rows of their training."""
    lake = LakeConfig.uniform(read_kinds(kinds), 0.1, 0.2)
    return [PastRound(k, lake, known(validated, row)) for k, row in enumerate(rows)]


def mean_data(history: list[PastRound]) -> dict[str, float]:
    """Mean data over many draws of `ridge`."""
    data = np.mean([design("ridge", history, key).data for key in KEYS], axis=0)
    return dict(zip(map(str, history[0].config.kinds), data, strict=True))


def test_ridge_trains_nearest_to_half_solved_by_rank():
    history = rounds(*[logistic(SIDES, 6.2)] * 4)
    assert sorted(design("ridge", history).data, reverse=True)[:5] == pytest.approx((0.48, 0.24, 0.16, 0.12, 0.0))
    data = mean_data(history)
    assert max(data, key=data.get) == "6" and data["6"] > 0.4 and data["3"] == data["10"] == 0


def test_ridge_sees_the_change_from_round_to_round_and_kinds_without_a_row_by_what_they_share_with_others():
    """A side more each round: 9.2 is half solved in the last, so 10 comes nearest in the next."""
    data = mean_data(rounds(*[logistic(SIDES, 6.2 + k) for k in range(4)]))
    assert max(data, key=data.get) == "10" and data["10"] > 0.4
    data = mean_data(rounds(*[logistic((3, 4, 5, 8, 9, 10), 6.2)] * 4))
    assert max(data, key=data.get) == "6"


def test_ridge_takes_a_kinds_training_before_its_validation():
    both = rounds(*[logistic(SIDES, 6.2)] * 4, validated=[measured(side, 0.0) for side in SIDES])
    assert design("ridge", both) == design("ridge", rounds(*[logistic(SIDES, 6.2)] * 4))
    assert design("ridge", both) == design("ridge", rounds(*[()] * 4, validated=logistic(SIDES, 6.2)))


def test_ridge_draws_and_without_evidence_by_the_prior():
    history = rounds((), kinds=("3-10", "rooms5-10"))
    designs = {design("ridge", history, key).data for key in KEYS}
    assert len(designs) > 10 and all(sum(x > 0 for x in data) == 4 for data in designs)
    solved = rounds([measured(side, 1.0) for side in SIDES], kinds=("3-10", "rooms5-10"))
    tried = [given_data(design("ridge", solved, key)) for key in KEYS]
    assert any(kind.startswith("rooms") for shares in tried for kind in shares), "what is uncertain is tried"


@settings(max_examples=60)
@given(histories())
def test_every_rule_is_legal_whatever_it_reads(history):
    for rule in RULES.values():
        check_any_history(rule, history)


@pytest.mark.parametrize("name", RULES)
def test_every_rule_designs_the_kinds_of_the_run(name):
    check_rule(RULES[name])
