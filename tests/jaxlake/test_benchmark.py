"""The fixed sets as shipped: what they hold, that it is true, and that they are made the same again."""

import collections
import itertools
import json
import re
import shutil

import jax
import numpy as np
import oracles
import pytest
from make_fixed_sets import HOLE_PERCENTS, RECIPES, build

from jaxlake import fixed_sets, levels
from jaxlake.benchmark import SETS, load, score
from jaxlake.benchmark.__main__ import main
from jaxlake.files import from_record
from jaxlake.generate.candidates import fingerprints, fixed_fingerprints
from jaxlake.kinds import Family
from jaxlake.solve import solve
from jaxlake.text import answer
from jaxlake.types import ABSENT, Objective, Status

SHARES = (0.25, 0.5, 0.75)


def cells_of(name: str) -> list[tuple[int, int]]:
    return [(kind.num_agents, kind.size) for kind in RECIPES[name].kinds]


@pytest.mark.parametrize("name", (*SETS, *fixed_sets.POOLS))
def test_what_every_caller_gets_is_read_only(name):
    held = load(name)
    arrays = [array for array in {**vars(held), **vars(held.instances)}.values() if isinstance(array, np.ndarray)]
    assert len(arrays) == 12 and not any(array.flags.writeable for array in arrays)


def test_the_test_set_has_the_cells_of_the_paper_and_each_subset_its_share_of_waits():
    test = load("test")
    assert len(test) == 3150 == len(set(test.ids))
    assert len(cells_of("test")) == 21
    for agents, size in cells_of("test"):
        cell = (test.instances.num_agents == agents) & (test.instances.size == size)
        for share, percent in itertools.product(SHARES, HOLE_PERCENTS):
            assert (cell & (test.wait_subset == share) & (test.hole_ratio == percent / 100)).sum() == 10
        for share in SHARES:
            assert test.needs_wait[cell & (test.wait_subset == share)].sum() in (int(50 * share), int(50 * share + 0.5))
    for share in SHARES:
        assert abs(test.needs_wait[test.wait_subset == share].sum() - 50 * share * 21) <= 0.5
    assert (test.instances.max_size, test.instances.max_agents) == (10, 5)


def test_the_validation_set_is_of_two_agents_and_half_of_it_waits():
    validation = load("validation")
    assert len(validation) == 800 == len(set(validation.ids))
    assert (validation.instances.num_agents == 2).all()
    for size, percent in itertools.product(range(3, 11), HOLE_PERCENTS):
        group = (validation.instances.size == size) & (validation.hole_ratio == percent / 100)
        assert (group.sum(), validation.needs_wait[group].sum()) == (20, 10)


def test_the_families_set_has_as_many_boards_of_each_family_agents_size_and_density():
    families = load("families")
    groups = collections.Counter(zip(families.kinds, families.hole_ratio.tolist(), strict=True))
    assert len(families) == 2250 and set(groups.values()) == {5}
    kinds = {kind for kind, _ in groups}
    assert {density for _, density in groups} == {0.1, 0.3, 0.5} and len(groups) == 3 * len(kinds) == 450
    laid_out = {kind.family for kind in kinds}
    assert len(laid_out) == 7
    for family in laid_out:
        of_family = {(kind.num_agents, kind.size) for kind in kinds if kind.family is family}
        most = 3 if family is Family.BAYS else 5
        agents_sizes = itertools.product(range(2, most + 1), range(5, 11))
        assert of_family == {(agents, size) for agents, size in agents_sizes if size > agents}


def test_no_board_and_no_id_is_in_two_sets_and_none_is_made_for_training():
    boards = {board for name in SETS for board in fingerprints(load(name).instances)}
    assert len(boards) == sum(map(len, map(load, SETS))) and boards <= fixed_fingerprints()
    assert len({identifier for name in SETS for identifier in load(name).ids}) == len(boards)


@pytest.mark.parametrize("name", SETS)
def test_an_id_says_what_the_instance_is(name):
    held = load(name)
    serials = {}
    for index, identifier in enumerate(held.ids):
        match = re.fullmatch(r"(?:([a-z]+)_)?(\d)ag_(\d+)x(\d+)_hr(0\.\d)_(\d{3})", identifier)
        family, agents, side, again, ratio, serial = match.groups()
        assert family == (held.family[index] if name == "families" else None)
        assert (int(agents), int(side)) == (held.instances.num_agents[index], held.instances.size[index])
        assert side == again and float(ratio) == held.hole_ratio[index]
        serials.setdefault((family, agents, side, ratio), []).append(int(serial))
    assert all(sorted(numbers) == list(range(len(numbers))) for numbers in serials.values())


@pytest.mark.parametrize("name", SETS)
def test_boards_are_legal_and_have_their_holes(name):
    held = load(name)
    levels.validate(held.instances)
    ratio, size = np.rint(100 * held.hole_ratio).astype(int), held.instances.size
    holes = ratio * (size**2 - 2 * held.instances.num_agents) // 100
    assert (held.instances.holes.sum(axis=1) == holes)[held.family == "random"].all()
    ends = np.sort(np.concatenate([held.instances.starts, held.instances.goals], axis=1), axis=1)
    shared = ((np.diff(ends, axis=1) == 0) & (ends[:, 1:] != ABSENT)).any(axis=1)
    assert set(held.family[shared]) <= {"corridor"}  # the two sides' ends may meet


@pytest.mark.parametrize(
    ("name", "agents", "side", "every"), [("validation", 2, 3, 1), ("test", 3, 3, 5), ("families", 2, 5, 3)]
)
def test_optima_on_the_smallest_boards_are_those_of_a_joint_search(name, agents, side, every):
    held = load(name)
    small = np.flatnonzero((held.instances.size == side) & (held.instances.num_agents == agents))[::every]
    assert len(small) >= 30
    for index in small.tolist():
        instance, optimum = held.instances[index], held.optimum[index]
        assert oracles.least_cost(instance, Objective.SUM_OF_COSTS) == optimum
        still = oracles.least_cost(instance, Objective.SUM_OF_COSTS, may_wait=False)
        assert (still != optimum) == held.needs_wait[index]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_the_solvers_plans_score_everything(name):
    held = load(name)
    solutions = solve(held.instances)
    assert (solutions.status == Status.SOLVED).all()
    np.testing.assert_array_equal(solutions.cost, held.optimum)
    plans = [jax.tree.map(lambda leaf, i=i: leaf[i], solutions.plan) for i in range(len(held))]
    scores = score({identifier: answer(plan, 10) for identifier, plan in zip(held.ids, plans, strict=True)}, held)
    assert (scores.optimal == 1).all() and scores.failures.sum() == 0
    assert all(cell.optimal == 100 for row in scores.rows for cell in (*row.by_size.values(), row.mean))


@pytest.mark.slow
def test_the_sets_are_made_the_same_again():
    """As ``python .ci/make_fixed_sets.py check`` does for the whole."""
    shipped = load("validation").account
    arrays, account = build(RECIPES["validation"], account=shipped)
    assert fixed_sets.content_hash(arrays) == load("validation").account["sha256"]
    assert account["groups"] == load("validation").account["groups"]


def test_a_set_with_a_changed_value_is_not_loaded(tmp_path, monkeypatch):
    for path in fixed_sets.FOLDER.glob("*.npz"):
        shutil.copy(path, tmp_path)
    with np.load(tmp_path / "validation.npz") as file:
        arrays = {field: file[field] for field in file.files}
    arrays["optimum"][17] += 1
    np.savez_compressed(tmp_path / "validation.npz", **arrays)
    monkeypatch.setattr(fixed_sets, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match="validation.npz does not have the content that manifest.json names"):
        fixed_sets.load.__wrapped__("validation")
    fixed_sets.load.__wrapped__("test")


def test_the_export_as_json_lines_reads_back(tmp_path, capsys):
    assert main(["export", str(tmp_path / "lake"), "--format", "jsonl"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "lake" / f"{name}.jsonl") for name in SETS]
    held = load("validation")
    lines = (tmp_path / "lake" / "validation.jsonl").read_text().splitlines()
    assert len(lines) == len(held)
    for index in range(0, len(held), 50):
        row = json.loads(lines[index])
        read = from_record(row, max_size=10, max_agents=2)
        for one, other in zip(jax.tree.leaves(read), jax.tree.leaves(held.instances), strict=True):
            np.testing.assert_array_equal(one, other[index])
        assert (row["id"], row["optimum"]) == (held.ids[index], held.optimum[index])
        assert row["prompt"].startswith(f"{row['size']}x{row['size']} holes")
        assert "Answer with one line per agent" in row["prompt_verbose"]


def test_the_export_as_parquet_reads_back(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(["export", str(tmp_path)]) == 0
    table = parquet.read_table(tmp_path / "test.parquet").to_pylist()
    held = load("test")
    assert [row["id"] for row in table] == list(held.ids)
    assert [row["wait_subset"] for row in table] == held.wait_subset.tolist()
    assert from_record(table[5]).size == held.instances.size[5]
