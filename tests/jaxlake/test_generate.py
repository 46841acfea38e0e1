"""The generator: quotas, reproducibility, exclusion, and what happens where a config cannot be met."""

import hashlib
from importlib import import_module

import jax
import numpy as np
import oracles
import pytest

from jaxlake.benchmark import load
from jaxlake.config import LakeConfig, counts
from jaxlake.generate import Dataset, generate, search
from jaxlake.generate.candidates import Shape, draw
from jaxlake.generate.search import Quotas
from jaxlake.kinds import Kind
from jaxlake.levels import pad
from jaxlake.solve import solve
from jaxlake.types import ABSENT, Instance, Objective
from jaxlake.verify import verify

# The shape of the solver's tests, so that nothing is compiled again.
SHAPE = {"max_size": 5, "max_agents": 3}
SIZES = (3, 4, 5)
CONFIG = LakeConfig(SIZES, (0.25, 0.3, 0.45), (0.2, 0.3, 0.1), (0.5, 0.25, 0.0))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return generate(CONFIG, jax.random.key(0), 201, **SHAPE)


def fingerprints(instances: Instance) -> list[tuple]:
    parts = (instances.size, instances.holes, instances.starts, instances.goals)
    return [tuple(np.concatenate([np.ravel(part[i]) for part in parts]).tolist()) for i in range(len(instances.size))]


@pytest.mark.heavy
def test_boards_have_their_share_of_holes_and_no_cell_twice(dataset):
    instances = dataset.instances
    hole_ratio = dict(zip(SIZES, CONFIG.hole, strict=True))
    for index, size in enumerate(instances.size.tolist()):
        board = instances.holes[index].reshape(5, 5)
        assert board.sum() == board[:size, :size].sum() == int(hole_ratio[size] * (size**2 - 4) + 1e-6)
        ends = np.concatenate([instances.starts[index, :2], instances.goals[index, :2]])
        assert len(set(ends.tolist())) == 4 and not instances.holes[index][ends].any()
        assert (ends // 5 < size).all() and (ends % 5 < size).all()
    assert (instances.starts[:, 2] == ABSENT).all() and (instances.num_agents == 2).all()


def test_sizes_have_their_shares_and_are_mixed_and_no_instance_comes_twice(dataset):
    sizes = dataset.instances.size.tolist()
    assert tuple(map(sizes.count, SIZES)) == counts(CONFIG, 201) and len(set(sizes[:20])) == 3
    assert len(set(fingerprints(dataset.instances))) == 201


@pytest.mark.heavy
def test_the_same_key_gives_the_same_instances_whatever_the_batches(dataset, monkeypatch):
    config = LakeConfig((3, 5), (0.5, 0.5), (0.4, 0.0), (1.0, 1.0))
    whole = generate(config, jax.random.key(0), 400, **SHAPE)
    monkeypatch.setattr(search, "_LARGEST_BATCH", 1)
    again = generate(config, jax.random.key(0), 400, **SHAPE)
    assert whole.report == again.report
    assert all(entry.candidates > 20 * 128 for entry in whole.report)
    for one, other in zip(jax.tree.leaves(again.instances), jax.tree.leaves(whole.instances), strict=True):
        np.testing.assert_array_equal(one, other)
    other = generate(CONFIG, jax.random.key(1), 201, **SHAPE)
    assert set(fingerprints(other.instances)) != set(fingerprints(dataset.instances))


def test_the_instances_are_those_of_a_process_with_one_device(dataset):
    # The digest was taken in a process with one device; this one has eight.
    assert len(jax.devices()) == 8
    parts = (dataset.instances.size, dataset.instances.holes, dataset.instances.starts, dataset.instances.goals)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    assert digest[:16] == "0f263f3f2ed1b506", "raise VERSION of jaxlake.generate: boards of a key are others"


def test_the_validation_set_is_never_emitted(monkeypatch):
    # 3,024 boards of side 3 have two agents and no hole; 20 of them are in the validation set.
    config = LakeConfig((3,), (1.0,), (0.0,), (0.0,))
    validation = load("validation").instances
    small = validation.size == 3
    held = {
        (tuple(starts), tuple(goals))
        for starts, goals, holes in zip(
            *(_on_side_5(cells[small]) for cells in (validation.starts, validation.goals)),
            validation.holes[small],
            strict=True,
        )
        if not holes.any()
    }
    assert len(held) == 20

    def emitted() -> set:
        data = generate(config, jax.random.key(0), 2500, **SHAPE)
        starts, goals = (cells[:, :2] for cells in (data.instances.starts, data.instances.goals))
        return {(tuple(s), tuple(g)) for s, g in zip(starts, goals, strict=True)}

    assert not emitted() & held
    monkeypatch.setattr(import_module("jaxlake.generate"), "fixed_fingerprints", frozenset)
    assert len(emitted() & held) > 5


def _on_side_5(cells: np.ndarray) -> np.ndarray:
    return cells // 10 * 5 + cells % 10


def test_exclusion_sees_through_padding(dataset):
    old = dataset.instances
    repadded = pad(old, 12, 6)
    again = generate(CONFIG, jax.random.key(0), 201, exclude=repadded, **SHAPE)
    assert not set(fingerprints(again.instances)) & set(fingerprints(old))


def test_a_wait_quota_out_of_reach_is_lowered_and_reported():
    config = LakeConfig((3, 4), (1.0, 0.0), (0.0, 0.0), (1.0, 1.0))
    entry, unused = generate(config, jax.random.key(0), 400, **SHAPE).report
    assert entry.requested_waits == 400
    assert 0 < entry.realised_waits < 400 == entry.realised
    assert entry.shortfalls() == (f"size 3: {entry.realised_waits} instances need a wait, 400 were asked for",)
    # All 3,024 boards but the 20 held out, or nearly, were tried; then the search ended.
    assert 2900 < entry.candidates - entry.known <= 3004
    assert entry.candidates < 60_000
    assert (unused.requested, unused.realised, unused.candidates, unused.shortfalls()) == (0, 0, 0, ())


def test_a_board_too_small_for_the_count_is_repeated():
    config = LakeConfig((3,), (1.0,), (0.0,), (0.0,))
    dataset = generate(config, jax.random.key(0), 4000, **SHAPE)
    assert dataset.instances.size.shape == (4000,)
    assert dataset.realised()["3"]["wait"] == 0
    # 9 * 8 * 7 * 6 ways to place the ends; nearly all of them are found, and the waits among them dropped.
    different = len(set(fingerprints(dataset.instances)))
    assert 2500 < different <= 3024
    (entry,) = dataset.report
    assert entry.repeated == 4000 - different
    assert dataset.shortfalls() == (f"size 3: {entry.repeated} of 4000 instances are repetitions of others",)


@pytest.mark.parametrize(("wait", "interacting", "expected"), [(0.25, 0.5, 20), (0.25, 0.0, 10), (0.25, 1.0, 40)])
def test_the_share_of_interacting_instances_can_be_asked_for(wait, interacting, expected):
    config = LakeConfig((4,), (1.0,), (0.2,), (wait,))
    data = generate(config, jax.random.key(3), 40, interacting=interacting, **SHAPE)
    gaps = data.solutions.cost - [sum(oracles.path_lengths(board)) for board in data.instances]
    (entry,) = data.report
    assert (gaps > 0).sum() == expected == entry.realised_interacting == entry.requested_interacting
    assert data.needs_wait.sum() == 10 and (gaps[data.needs_wait] > 0).all()
    assert data.shortfalls() == ()


def test_a_dropped_candidate_counts_as_undecided_and_is_not_chosen():
    shape, key = Shape(Kind.of(4), density=2 / 12, **SHAPE), jax.random.key(0)
    drawn = fingerprints(draw(key, 0, 2048, shape))
    found, account = search.first_boards(shape, key, Quotas(20, 5), frozenset(), 2048)
    numbers = [drawn.index(board) for board in fingerprints(found.instances)]
    dropped = [numbers[3], numbers[7]]
    again, again_account = search.first_boards(shape, key, Quotas(20, 5), frozenset(), 2048, dropped)
    assert account.undecided == () and again_account.undecided == tuple(dropped)
    assert set(numbers) - {drawn.index(board) for board in fingerprints(again.instances)} == set(dropped)
    assert len(again) == 20 and again.needs_wait.sum() == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count = 0 must be a whole number from 1 on"),
        ({"max_size": 11}, "max_size = 11 must be a whole number from 5 to 10"),
        ({"max_agents": 6}, "max_agents = 6 must be a whole number from 2 to 5"),
        ({"interacting": 1.5}, "interacting = 1.5 must be a share from 0 to 1"),
    ],
)
def test_what_cannot_be_generated_is_refused_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message):
        generate(CONFIG, jax.random.key(0), **{"count": 10, **SHAPE, **arguments})


@pytest.mark.heavy
def test_the_objective_is_the_callers_choice():
    config = LakeConfig.uniform((4,), hole=0.2, wait=0.25)
    data = generate(config, jax.random.key(1), 40, max_size=5, max_agents=3, objective=Objective.MAKESPAN)
    judged = verify(data.instances, data.solutions.plan, data.solutions.cost, objective=Objective.MAKESPAN)
    assert np.asarray(judged.optimal).all()
    np.testing.assert_array_equal(solve(data.instances, Objective.MAKESPAN).cost, data.solutions.cost)
    assert (solve(data.instances).cost > data.solutions.cost).all()  # a sum of two positive costs
