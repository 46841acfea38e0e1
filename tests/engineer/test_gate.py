"""The gate stops a proposal with nothing to learn, and only that."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engineer import Evidence, RuleEngineer
from engineer.context import PastRound
from engineer.gate import Gated, mixture, without_signal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

KINDS = THREE, FOUR = Kind.of(3), Kind.of(4)
PREVIOUS = LakeConfig(KINDS, (0.5, 0.5), (0.2, 0.3), (0.1, 0.4))
PROPOSED = LakeConfig(KINDS, (0.25, 0.75), (0.1, 0.5), (0.0, 0.6))
EVIDENCE = Evidence((), None, None, 0, 20.0, 0.0)
HISTORY = [PastRound(0, PREVIOUS, EVIDENCE)]
KEY = jax.random.key(5)
DEAD, ALIVE = np.array([0.0, 1.0, 0.0, 0.0]), np.array([0.5, 0.25, 0.0, 0.875])


class Pilot:
    """Finds these shares of valid answers; remembers what it was asked."""

    def __init__(self, shares: dict[Kind, np.ndarray]):
        self.shares, self.asked = shares, []

    def __call__(self, config: LakeConfig, key: jax.Array) -> dict[Kind, np.ndarray]:
        self.asked.append((config, key))
        return self.shares


class Remembering:
    """Proposes one configuration; remembers the key."""

    def __init__(self, config: LakeConfig):
        self.engineer, self.keys = RuleEngineer("some", lambda evidence, history, key: config), []

    def propose(self, evidence, history, key):
        self.keys.append(key)
        return self.engineer.propose(evidence, history, key)


def gated(pilot: Pilot, proposed: LakeConfig = PROPOSED, bound: float = 0.6, mix: bool = False):
    return Gated(Remembering(proposed), pilot, mix, bound).propose(EVIDENCE, HISTORY, KEY)


def test_a_proposal_with_something_to_learn_is_kept():
    pilot = Pilot({THREE: DEAD, FOUR: ALIVE})  # .25 of the data all dead, .75 a quarter dead
    proposal = gated(pilot)
    assert proposal.projected == PROPOSED
    assert pilot.asked[0][0] == PROPOSED
    assert proposal.gate == {
        "verdict": "accepted",
        "action": "kept",
        "without_signal": pytest.approx(0.25 + 0.75 / 4),
        "bound": 0.6,
        "by_kind": {
            "3": {"boards": 4, "valid": 0.25, "all_valid": 0.25, "all_invalid": 0.75},
            "4": {"boards": 4, "valid": 0.40625, "all_valid": 0.0, "all_invalid": 0.25},
        },
    }


def test_a_proposal_with_nothing_to_learn_is_replaced_by_the_previous_configuration_or_mixed_with_it():
    proposal = gated(Pilot({THREE: ALIVE, FOUR: DEAD}))  # .25 a quarter dead, .75 all dead: .81
    assert proposal.projected == PREVIOUS
    assert (proposal.gate["verdict"], proposal.gate["action"]) == ("refused", "replaced")
    assert proposal.gate["without_signal"] == pytest.approx(0.8125)
    json.dumps(proposal.to_json(), allow_nan=False)
    proposal = gated(pilot := Pilot({THREE: ALIVE, FOUR: DEAD}), mix=True)
    assert proposal.projected == mixture(PROPOSED, PREVIOUS)
    assert (proposal.gate["action"], len(pilot.asked)) == ("mixed", 1)  # what is mixed is not piloted again


def test_the_previous_configuration_is_not_piloted():
    pilot = Pilot({})
    proposal = gated(pilot, proposed=PREVIOUS)
    assert proposal.projected == PREVIOUS and pilot.asked == []
    assert proposal.gate == {"verdict": "not piloted", "action": "kept"}


def test_the_engineer_gets_the_key_that_it_gets_without_a_gate_and_the_pilot_another():
    pilot, engineer = Pilot({THREE: ALIVE, FOUR: ALIVE}), Remembering(PROPOSED)
    Gated(engineer, pilot, mix=False).propose(EVIDENCE, HISTORY, KEY)
    assert engineer.keys == [KEY]
    assert pilot.asked[0][1] != KEY


def test_sizes_without_data_are_not_missed_in_a_pilot():
    config = LakeConfig(KINDS, (0.0, 1.0), (0.1, 0.1), (0.1, 0.1))
    assert without_signal(config, {FOUR: ALIVE}) == 0.25


def test_kinds_stand_in_their_order_and_count_by_their_data():
    lake = LakeConfig((4, "4x4", "rooms5"), (0.5, 0.25, 0.25), (0.1,) * 3, (0.2,) * 3)
    four, crowd, rooms = lake.kinds
    history = [PastRound(0, LakeConfig.uniform(lake.kinds, 0.3, 0.1), EVIDENCE)]
    pilot = Pilot({rooms: DEAD, crowd: ALIVE, four: ALIVE})
    proposal = Gated(Remembering(lake), pilot, bound=0.4, mix=True).propose(EVIDENCE, history, KEY)
    assert list(proposal.gate["by_kind"]) == ["4", "4x4", "rooms5"]
    assert proposal.gate["by_kind"]["rooms5"]["all_invalid"] == 0.75
    assert proposal.gate["without_signal"] == pytest.approx(0.75 * 0.25 + 0.25)
    assert proposal.gate["verdict"] == "refused" and proposal.projected.kinds == lake.kinds


def test_a_mixture_has_half_the_boards_of_each_and_the_mean_ratios_of_its_boards():
    mixed = mixture(PROPOSED, PREVIOUS)
    assert mixed.data == pytest.approx((0.375, 0.625))
    assert mixed.hole == pytest.approx(((0.25 * 0.1 + 0.5 * 0.2) / 0.75, (0.75 * 0.5 + 0.5 * 0.3) / 1.25))
    assert mixed.wait == pytest.approx((0.5 * 0.1 / 0.75, (0.75 * 0.6 + 0.5 * 0.4) / 1.25))


def test_a_size_without_data_on_either_side_has_the_mean_of_both():
    a, b = (LakeConfig(KINDS, (0.0, 1.0), (hole, 0.2), (0.5, 0.5)) for hole in (0.1, 0.4))
    assert mixture(a, b).hole == pytest.approx((0.25, 0.2))


ratios = st.lists(st.floats(0, 1), min_size=2, max_size=2)
configs = st.tuples(st.floats(0, 1), ratios, ratios).map(
    lambda c: LakeConfig(KINDS, (c[0], 1 - c[0]), (c[1][0] / 2, c[1][1] / 2), tuple(c[2]))
)


@given(configs, configs)
def test_every_mixture_is_legal_and_of_one_thing_with_itself_that_thing(a, b):
    assert mixture(a, b).kinds == KINDS
    for field in ("data", "hole", "wait"):
        assert getattr(mixture(a, a), field) == pytest.approx(getattr(a, field))
