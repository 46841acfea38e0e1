"""The stock of training boards: what is in it, and how a configuration's quotas are drawn from it."""

import jax
import numpy as np
import pytest

from jaxlake import levels
from jaxlake.benchmark import load
from jaxlake.config import LakeConfig, counts
from jaxlake.fixed_sets import POOLS, SETS
from jaxlake.generate import pool
from jaxlake.generate.candidates import fingerprints
from jaxlake.kinds import Kind, read_kinds
from jaxlake.solve import solve, without_waiting
from jaxlake.types import Status

KINDS = read_kinds(["3-5", "6x3", "10x5"])


@pytest.mark.parametrize("name", POOLS)
def test_no_board_of_the_stock_is_in_a_fixed_set_or_twice_in_it(name):
    stock = fingerprints(load(name).instances)
    fixed = {board for other in SETS for board in fingerprints(load(other).instances)}
    assert len(set(stock)) == len(stock) and not fixed & set(stock)
    levels.validate(load(name).instances)


@pytest.mark.heavy
@pytest.mark.parametrize("name", POOLS)
def test_costs_and_waits_of_the_stock_are_the_solvers(name):
    stock = load(name)
    some = np.random.default_rng(0).choice(np.flatnonzero(stock.instances.num_agents < 3), 24, replace=False)
    boards = stock.instances[some]
    solutions = solve(boards)
    np.testing.assert_array_equal(solutions.cost, stock.optimum[some])
    np.testing.assert_array_equal(solutions.lower_bound, stock.lower_bound[some])
    np.testing.assert_array_equal(without_waiting(boards, solutions) == Status.UNSOLVABLE, stock.needs_wait[some])


def test_quotas_are_met_and_told():
    config = LakeConfig(KINDS, (0.1, 0.2, 0.3, 0.2, 0.2), (0.0, 0.26, 0.5, 0.12, 0.3), (0.0, 0.5, 0.25, 1.0, 0.1))
    boards = pool.draw(config, jax.random.key(1), 60)
    levels.validate(boards.instances)
    for i, (kind, wanted) in enumerate(zip(KINDS, counts(config, 60), strict=True)):
        mine = boards.kinds == kind
        assert mine.sum() == wanted
        assert (boards.instances.size[mine] == kind.size).all()
        assert (boards.instances.num_agents[mine] == kind.num_agents).all()
        assert boards.needs_wait[mine].sum() == int(config.wait[i] * wanted + 0.5)
        holes = boards.instances.holes[mine].sum(axis=1)
        nearest = (0.0, 0.3, 0.5, 0.1, 0.3)[i]
        assert set(holes) == {int(nearest * (kind.size**2 - 2 * kind.num_agents) + 1e-6)}
        report = boards.report[i]
        assert (report.kind, report.realised, report.realised_waits) == (kind, wanted, boards.needs_wait[mine].sum())
        assert report.holes == holes[0] and not report.shortfalls()
    assert len(set(fingerprints(boards.instances))) == 60


def test_what_the_stock_lacks_is_made_up_for_and_told():
    config = LakeConfig((Kind.of("4x3"),), (1.0,), (0.2,), (0.9,))
    boards = pool.draw(config, jax.random.key(0), 120)
    lines = boards.shortfalls()
    assert len(lines) == 2 and "24 of 120 instances are repetitions" in lines[1]
    assert "instances need a wait, 108 were asked for" in lines[0]
    assert len(set(fingerprints(boards.instances))) == 96


def test_the_quarter_for_validation_is_never_trained_on():
    config = LakeConfig.uniform(("5", "6x3"), 0.2, 0.2)
    trained = pool.draw(config, jax.random.key(0), 400).instances
    held_out = pool.draw(config, jax.random.key(0), 64, validation=True).instances
    assert not set(fingerprints(trained)) & set(fingerprints(held_out))
    assert len(set(fingerprints(held_out))) == 64 and len(set(fingerprints(trained))) == 2 * 96


def test_draws_follow_from_the_key_alone_and_padding_changes_no_board():
    config = LakeConfig.uniform(("3", "6x3"), 0.2, 0.2)
    ours, again = (pool.draw(config, jax.random.key(3), 20) for _ in range(2))
    padded = pool.draw(config, jax.random.key(3), 20, max_size=10, max_agents=5)
    other = pool.draw(config, jax.random.key(4), 20)
    assert ours.instances.max_size == 6 and ours.instances.max_agents == 3
    assert fingerprints(ours.instances) == fingerprints(again.instances) == fingerprints(padded.instances)
    assert fingerprints(ours.instances) != fingerprints(other.instances)


def test_a_kind_that_the_stock_lacks_is_named():
    assert pool.covers(KINDS) and not pool.covers((*KINDS, Kind.of("3x4")))
    with pytest.raises(ValueError, match="kind 3x4: the stock has no such boards; jaxlake.generate makes them"):
        pool.draw(LakeConfig.uniform(("3x4",), 0.2, 0.0), jax.random.key(0), 4)
