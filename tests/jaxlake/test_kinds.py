"""Kinds of boards: their names and order, what cannot be one, and configs that have rows for several families."""

import itertools
import json

import numpy as np
import pytest

from jaxlake.config import LakeConfig
from jaxlake.kinds import Family, Kind

# By hand: which sizes each family has, and the most agents of each size.
SIZES = {family: range(3 if family is Family.RANDOM else 5, 11) for family in Family}
ON_ROADS = {5: 4, 6: 5, 7: 5, 8: 5, 9: 5, 10: 5}
MOST = {family: {size: 4 if size == 3 else 5 for size in SIZES[family]} for family in Family}
MOST[Family.CORRIDOR] = MOST[Family.CROSSING] = ON_ROADS
KINDS = [
    Kind(family, size, agents)
    for family in Family
    for size in SIZES[family]
    for agents in range(1, MOST[family][size] + 1)
]


def test_every_kind_is_its_name_and_no_two_share_one():
    assert len({str(kind) for kind in KINDS}) == len(KINDS) == 8 * 5 - 1 + 6 * 6 * 5 - 2
    for kind in KINDS:
        assert Kind.of(str(kind)) == Kind.of(kind.label) == Kind.of(kind) == kind
        assert LakeConfig.from_dict(json.loads(json.dumps(LakeConfig.uniform((kind,), 0.1, 0.2).to_dict()))).kinds == (
            kind,
        )


@pytest.mark.parametrize(
    ("kind", "name", "label", "words"),
    [
        (Kind(Family.RANDOM, 6), "6", 6, "size 6"),
        (Kind("random", 6, 3), "6x3", "6x3", "kind 6x3"),
        (Kind("rooms", 10), "rooms10", "rooms10", "kind rooms10"),
        (Kind(Family.CORRIDOR, np.int64(8), np.int8(3)), "corridor8x3", "corridor8x3", "kind corridor8x3"),
        (Kind.of("random6x2"), "6", 6, "size 6"),
        (Kind.of("32x32"), "32x32", "32x32", "kind 32x32"),
        (Kind.of("random64x128"), "64x128", "64x128", "kind 64x128"),
    ],
)
def test_random_and_two_agents_go_without_saying(kind, name, label, words):
    assert (str(kind), kind.label, kind.words) == (name, label, words)
    assert type(kind.label) is type(label)


def test_kinds_are_in_order_of_family_size_and_agents():
    backwards = sorted(reversed(KINDS))
    assert backwards == KINDS  # which are made in that order
    mixed = sorted(map(Kind.of, ("corridor5", "rooms5x3", "10", "rooms6", "9x5", "rooms5")))
    assert list(map(str, mixed)) == ["9x5", "10", "rooms5", "rooms5x3", "rooms6", "corridor5"]


def test_a_range_of_sizes_is_a_kind_for_each():
    assert Kind.range("3-6") == tuple(map(Kind.of, (3, 4, 5, 6)))
    assert Kind.range("corridor6-8x3") == (Kind("corridor", 6, 3), Kind("corridor", 7, 3), Kind("corridor", 8, 3))
    assert Kind.range("rooms6") == (Kind("rooms", 6),)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("rooms4", "size of rooms boards = 4 must be a whole number from 5 to 64"),
        ("6x0", "num_agents on random boards of size 6 = 0 must be a whole number from 1 to 18"),
        ("3x5", "num_agents on random boards of size 3 = 5 must be a whole number from 1 to 4"),
        ("10x200", "num_agents on random boards of size 10 = 200 must be a whole number from 1 to 50"),
        ("maze12x25", "num_agents on maze boards of size 12 = 25 must be a whole number from 1 to 24"),
        ("64x129", "num_agents on random boards of size 64 = 129 must be a whole number from 1 to 128"),
        ("65", "size of random boards = 65 must be a whole number from 3 to 64"),
        ("6-8", "kind = '6-8' must be a single one"),
        *(
            (wrong, f"kind = {wrong!r} must be a size with")
            for wrong in ("", "alley8", "rooms", " 6", "6x", "Rooms6", "6x2x", "٦")
        ),
    ],
)
def test_what_is_no_kind_is_one_clear_line(value, message):
    with pytest.raises(ValueError) as fault:
        Kind.of(value)
    assert str(fault.value).startswith(message) and "\n" not in str(fault.value)


def test_a_harder_family_and_one_agent_more_make_a_kind_harder():
    for kind, other in itertools.pairwise(KINDS):
        if (kind.family, kind.size) == (other.family, other.size):
            assert kind.difficulty < other.difficulty
    assert [Kind.of(size).difficulty for size in range(3, 11)] == list(range(3, 11))
