"""A comparison says what its directory says; its statistics are held against hand-worked and brute-force ones."""

import itertools
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import yaml

from engineer.evidence import CHECKS, Evidence, evidence_from_verdicts
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report import comparison
from rl.report.comparison.arms import OUTCOMES
from rl.report.comparison.findings import ALPHAS, findings
from rl.report.comparison.pictures import PICTURES, draw_all
from rl.report.comparison.published import beside_published
from rl.report.comparison.statistics import cvar, largest_drop, transitions
from rl.slices import cell_weights
from rl.statistics import intervals, ratio_interval, t_interval

SIZES = (3, 4, 5, 6)
ENGINEERS = {
    "uniform": {"kind": "uniform"},
    "fixed_random": {"kind": "fixed_random"},
    "V6": {"kind": "checkpoint"},
    "V1": {"kind": "checkpoint", "context": "V1"},
}
SKILL = {"uniform": 0.5, "fixed_random": 0.0, "V6": 0.4, "V1": -0.1, "base": 0.1, "learnability": 0.45}
KINDS = (0.05, 0.05, 0.05, 0.1, 0.3, 0.05, 0.25, 0.15)


def as_file(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def fabricate(
    out: Path,
    engineers: dict = ENGINEERS,
    seeds: int = 3,
    boards: int = 4,
    samples: bool = False,
    kinds: Sequence[int | str] = SIZES,
    rounds: int = 2,
) -> Path:
    """A finished comparison of so many designed rounds; ``boards`` in each slice of agents, size and wait subset."""
    named = dict(zip(SIZES, kinds, strict=True))
    settings = {"baseline": "fixed_random", "seeds": list(range(seeds)), "engineers": engineers}
    settings["run"] = {"engineer": {"kind": "checkpoint", "context": "V6"}}
    out.mkdir()
    (out / "compare.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    waits = {2: (0.5,), 3: (0.25, 0.5, 0.75), 4: (0.25, 0.5, 0.75), 5: (0.25, 0.5, 0.75)}
    cells = [(a, n, w) for a in waits for n in SIZES if n >= a for w in waits[a] for _ in range(boards)]
    agents, size, wait = np.array(cells).T
    ids = [f"{a}ag_{n}_{w}_{i}" for i, (a, n, w) in enumerate(cells)]
    columns = {"id": ids, "agents": agents.astype(int).tolist(), "size": [named[int(n)] for n in size]}
    columns |= {"wait_subset": wait.tolist(), "needs_wait": [False] * len(ids), "hole_ratio": [0.1] * len(ids)}
    rng = np.random.default_rng(0)
    difficulty = 0.5 * (size - 4) + 0.9 * (agents - 3) + wait + rng.normal(0, 1.2, len(ids))

    def evaluation(skill: float) -> dict:
        chance = 1 / (1 + np.exp(difficulty - skill))
        valid = rng.random(len(ids)) < chance
        first = [None if ok else CHECKS[rng.choice(8, p=KINDS)] for ok in valid]
        answers = {
            "valid": valid.astype(int).tolist(),
            "optimal": (valid & (rng.random(len(ids)) < 0.8)).astype(int).tolist(),
            "first_failure": first,
            "tokens": rng.integers(10, 60, len(ids)).tolist(),
            "truncated": [False] * len(ids),
            "sampled_valid": (rng.binomial(8, chance) / 8).tolist() if samples else None,
        }
        return {"boards": columns, "answers": answers}

    for seed in range(seeds):
        level, first = rng.normal(0.3, 0.15), fabricated_config(rng, kinds)
        as_file(out / "start" / f"seed{seed}" / "evaluation.json", evaluation(level))
        early = [fabricated_evidence(rng, skill, kinds).to_json() for skill in (level - 0.6, level)]
        log = [fabricated_step(rng, level, 0, i) for i in range(20)]
        for name in engineers:
            arm = out / "arms" / name / f"seed{seed}"
            gain = SKILL.get(name, 0.2) + rng.normal(0, 0.15)
            as_file(arm / "evaluation.json", evaluation(level + 0.5 + gain))
            as_file(arm / "warm_start" / "evidence.json", early[0])
            as_file(arm / "rounds" / "0" / "evidence.json", early[1])
            fabricated_round(arm, 0, first, repairs=0)
            rows = list(log)
            for k in range(1, rounds + 1):
                reached = level + (0.5 + gain) * k / rounds
                fabricated_round(arm, k, fabricated_config(rng, kinds), repairs=k)
                as_file(arm / "rounds" / str(k) / "evidence.json", fabricated_evidence(rng, reached, kinds).to_json())
                rows += [fabricated_step(rng, reached, k, i) for i in range(20)]
            (arm / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


def fabricate_lab(out: Path, curves: dict[str, list[list[float | None]]]) -> Path:
    """A comparison of students that play: by engineer and seed the sampled valid share after each round.

    They have no warm start, and in the log of their training no share of valid answers. An engineer's kind is its name.
    """
    by_seed = curves["fixed_random"]
    engineers = {name: {"kind": name} for name in curves}
    fabricate(out, engineers, len(by_seed), boards=1, rounds=len(by_seed[0]) - 1)
    for name, own in curves.items():
        for seed, curve in enumerate(own):
            arm = out / "arms" / name / f"seed{seed}"
            (arm / "warm_start").rename(arm / "before")
            rows = [json.loads(line) for line in (arm / "metrics.jsonl").read_text().splitlines()]
            rows = [{"phase": "round", "round": row["round"], "step": row["step"], "reward": 0.5} for row in rows]
            (arm / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            for k, share in enumerate(curve):
                path = arm / "rounds" / str(k) / "evidence.json"
                sampled = {"sampled_valid": share, "sampled_se": None if share is None else 0.01}
                as_file(path, json.loads(path.read_text()) | sampled)
    return out


def fabricated_evidence(rng: np.random.Generator, skill: float, kinds: Sequence[int | str]) -> Evidence:
    sizes = np.repeat(SIZES, 32)
    valid = rng.random(128) < 1 / (1 + np.exp(0.6 * (sizes - 4) - skill))
    checks = np.ones((128, 8), bool)
    checks[~valid, 4] = False
    of = np.array([Kind.of(kind) for kind in kinds for _ in range(32)], object)
    sampled = {"sampled_valid": (1 + 2 * valid) / 4, "samples_per_prompt": 4}
    lengths = {"tokens": np.full(128, 20), "truncated": np.zeros(128, bool)}
    return evidence_from_verdicts(kinds=of, checks=checks, optimal=valid, **lengths, **sampled)


def fabricated_config(rng: np.random.Generator, kinds: Sequence[int | str]) -> LakeConfig:
    data = rng.dirichlet(3 * np.ones(len(SIZES)))
    hole, wait = rng.uniform(0, 0.5, len(SIZES)), rng.uniform(0, 1, len(SIZES))
    return LakeConfig(kinds, *(tuple(ratios.tolist()) for ratios in (data, hole, wait)))


def fabricated_round(arm: Path, k: int, config: LakeConfig, repairs: int) -> None:
    as_file(arm / "rounds" / str(k) / "config.json", config.to_dict())
    as_file(arm / "rounds" / str(k) / "proposal.json", {"repairs": ["clipped"] * repairs, "fallback": k == 2})


def fabricated_step(rng: np.random.Generator, skill: float, k: int, i: int) -> dict:
    valid = float(np.clip(0.45 + 0.15 * skill + rng.normal(0, 0.05), 0, 1))
    groups = {"all_valid_groups": 0.25, "all_invalid_groups": 0.125}
    return {"phase": "round", "round": k, "step": i + 1, "valid": valid, **groups}


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return fabricate(tmp_path_factory.mktemp("comparison") / "study")


@pytest.fixture(scope="module")
def read(out) -> comparison.Comparison:
    return comparison.read(out)


def answers_of(folder: Path) -> dict[str, np.ndarray]:
    """The columns of an evaluation, read without the code under test."""
    found = json.loads((folder / "evaluation.json").read_text())
    return {name: np.array(column) for part in found.values() for name, column in part.items()}


def test_bootstrap_is_that_of_a_plain_loop():
    rng = np.random.default_rng(1)
    strata = np.repeat([7, 8, 9], (5, 8, 3))
    values = rng.normal(size=(4, 16)) + rng.normal(size=(4, 1))
    weights = np.stack([cell_weights(strata, strata < 9), cell_weights(strata, strata > 0)])
    found = intervals({"a": values}, weights, strata)["a"]
    drawn = []
    for _ in range(4000):
        seeds = rng.integers(4, size=4)
        boards = [rng.choice(np.flatnonzero(strata == s), (strata == s).sum()) for s in (7, 8, 9)]
        means = [values[np.ix_(seeds, here)].mean() for here in boards]
        drawn.append((np.mean(means[:2]), np.mean(means)))
    for interval, sample in zip(found, np.array(drawn).T, strict=True):
        assert (interval.low, interval.high) == pytest.approx(np.percentile(sample, (2.5, 97.5)), abs=0.06)
    assert found[0].mean == pytest.approx((values[:, :5].mean() + values[:, 5:13].mean()) / 2)


def test_what_is_the_same_for_all_seeds_and_boards_has_no_width():
    [interval] = intervals({"a": np.full((3, 6), 0.25)}, np.full((1, 6), 1 / 6), np.zeros(6, int))["a"]
    assert (interval.low, interval.high, interval.t_low, interval.t_high) == pytest.approx((0.25,) * 4)
    assert interval.is_clear


def test_one_seed_has_no_t_interval_and_is_never_clear():
    [interval] = intervals({"a": np.ones((1, 4))}, np.full((1, 4), 0.25), np.zeros(4, int))["a"]
    assert (interval.t_low, interval.t_high, interval.by_seed) == (None, None, (1.0,))
    assert not interval.is_clear


def test_equal_values_get_equal_intervals_and_numbers_of_seeds_may_differ():
    values = np.random.default_rng(0).random((3, 9))
    weights, strata = np.full((1, 9), 1 / 9), np.zeros(9, int)
    found = intervals({"a": values, "short": values[:2], "b": values}, weights, strata, resamples=500)
    assert found["a"] == found["b"]
    assert len(found["short"][0].by_seed) == 2


def test_t_interval_of_one_two_three():
    # Mean 2, standard deviation 1, t of 2 degrees of freedom 4.3027.
    assert t_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)


def test_cells_weigh_the_same_whatever_their_boards():
    cells, here = np.array([1, 1, 1, 2, 9]), np.array([True, True, True, True, False])
    assert cell_weights(cells, here) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2, 0])


def test_cvar_is_the_mean_of_the_worst_with_the_last_in_part():
    values = np.array([3.0, 0.0, 2.0, 1.0])
    assert cvar(values, 0.25) == 0
    assert cvar(values, 0.375) == pytest.approx((0 + 0.5 * 1) / 1.5)
    assert cvar(values, 0.5) == pytest.approx(0.5)
    assert cvar(values, 1.0) == pytest.approx(values.mean())


def test_drop_is_from_the_best_before_and_not_after():
    rates = np.array([[0.5, 0.1], [0.9, 0.2], [0.6, 0.3], [0.7, 0.4]])
    assert largest_drop(rates) == pytest.approx([0.3, 0.0])


def test_transitions_count_pairs():
    assert transitions(np.array([0, 0, 1, 2]), np.array([0, 2, 2, 2]), 3).tolist() == [[1, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_differences_are_of_pairs_and_means_over_sizes(out, read):
    found = {(d.engineer, d.metric, d.agents): d.interval for d in findings(read).differences}
    by_seed = []
    for seed in range(3):
        ours, theirs = (answers_of(out / "arms" / name / f"seed{seed}") for name in ("uniform", "fixed_random"))
        here = ours["agents"] == 4
        gains = [
            (ours["valid"] - theirs["valid"])[here & (ours["size"] == size)].mean()
            for size in np.unique(ours["size"][here])
        ]
        by_seed.append(np.mean(gains))
    interval = found["uniform", "valid", 4]
    assert interval.by_seed == pytest.approx(by_seed)
    assert interval.mean == pytest.approx(np.mean(by_seed))
    assert interval.low < interval.mean < interval.high
    assert {agents for _, _, agents in found} == {2, 3, 4, 5, None}
    cells = [found["V6", "optimal", agents].mean * count for agents, count in ((2, 4), (3, 4), (4, 3), (5, 2))]
    assert found["V6", "optimal", None].mean == pytest.approx(sum(cells) / 13)


def test_rates_count_the_answers(out, read):
    rates = {(r.engineer, r.metric, r.agents, r.size, r.wait): r for r in findings(read).rates}
    columns = [answers_of(out / "arms" / "V1" / f"seed{seed}") for seed in range(3)]
    here = (columns[0]["agents"] == 3) & (columns[0]["size"] == 5)
    rate = rates["V1", "valid", 3, 5, None]
    assert rate.n == 3 * here.sum()
    assert rate.share == pytest.approx(np.mean([one["valid"][here] for one in columns]))
    assert rate.low < rate.share < rate.high
    given = rates["V1", "optimal given valid", 3, 5, None]
    assert given.share == pytest.approx(rates["V1", "optimal", 3, 5, None].share / rate.share)
    assert ("V1", "valid", 2, None, 0.5) not in rates, "one wait subset is no slice"
    assert ("round 0", "valid", 3, None, 0.75) in rates


def test_moves_add_up(read):
    for moves in findings(read).moves:
        matrix = np.array(moves.matrix)
        assert matrix.sum() == 3 * len(read.boards.id)
        assert matrix.sum(axis=1) / matrix.sum() == pytest.approx([moves.before[o] for o in OUTCOMES])
        assert matrix.sum(axis=0) / matrix.sum() == pytest.approx([moves.after[o] for o in OUTCOMES])
        changes = [moves.changes[outcome].mean for outcome in OUTCOMES]
        assert changes == pytest.approx([moves.after[o] - moves.before[o] for o in OUTCOMES])
        assert sum(changes) == pytest.approx(0)


def test_designs_tell_steps_troubles_and_lost_groups(out, read):
    designs = {(d.engineer, d.round): d for d in findings(read).designs}
    first, second = designs["V6", 0], designs["V6", 2]
    assert first.data_step is None
    assert (second.repairs, second.fallbacks, second.without_signal) == (2.0, 3, 0.375)
    steps = []
    for seed in range(3):
        folder = out / "arms" / "V6" / f"seed{seed}" / "rounds"
        before, after = (json.loads((folder / k / "config.json").read_text()) for k in "12")
        steps.append(sum(abs(after[size]["data"] - before[size]["data"]) for size in after))
    assert second.data_step == pytest.approx(np.mean(steps))
    assert 0 < second.entropy <= np.log(4) + 1e-9


def test_designs_are_compared_with_those_of_others_and_of_other_seeds(out, read):
    def asked(engineer, seed):
        return json.loads((out / "arms" / engineer / f"seed{seed}" / "rounds" / "1" / "config.json").read_text())

    def far(a, b):
        parts = [[abs(a[size][name] - b[size][name]) for size in a] for name in ("data", "hole", "wait")]
        return sum(parts[0]) + np.mean(parts[1]) + np.mean(parts[2])

    found = {(apart.one, apart.other): apart for apart in findings(read).apart if apart.round == 1}
    names = list(read.engineers)
    assert len(found) == len(names) * (len(names) + 1) / 2
    one, other = names[0], names[1]
    expected = np.mean([far(asked(one, seed), asked(other, seed)) for seed in range(3)])
    assert found[one, other].distance == pytest.approx(expected)
    pairs = [far(asked(one, a), asked(one, b)) for a, b in itertools.combinations(range(3), 2)]
    assert found[one, one].distance == pytest.approx(np.mean(pairs))
    assert found[one, one].cases == 3 and found[one, one].equal == sum(pair == 0 for pair in pairs)


def test_differences_turn_around_with_the_baseline(read):
    one, other = read.engineers[:2]
    turned = read.against(other)
    assert turned.engineers[0] == other and set(turned.engineers) == set(read.engineers)

    def mean(comparison, engineer):
        found = findings(comparison).differences
        return [d.interval.mean for d in found if (d.engineer, d.metric, d.agents) == (engineer, "valid", None)]

    assert mean(turned, one) == pytest.approx([-x for x in mean(read, other)])
    with pytest.raises(ValueError, match="has no engineer 'nobody'; it has"):
        read.against("nobody")


def test_validations_in_the_end_are_compared_by_seed(out, read):
    def share(engineer, seed):
        path = out / "arms" / engineer / f"seed{seed}" / "rounds/2/evidence.json"
        return json.loads(path.read_text())["sampled_valid"]

    (found,) = [one for one in findings(read).validated if one.engineer == "V6"]
    less, interval = [share("V6", seed) - share("fixed_random", seed) for seed in range(3)], found.less_baseline["end"]
    assert interval.by_seed == pytest.approx(less)
    assert found.mean("end") == pytest.approx(np.mean([share("V6", seed) for seed in range(3)]))
    half = 4.302653 * np.std(less, ddof=1) / 3**0.5  # t of 2 degrees of freedom, from a table
    assert (interval.t_low, interval.t_high) == pytest.approx((np.mean(less) - half, np.mean(less) + half))
    # Of three seeds drawn, all are the same one in 1 of 27 cases each, which is more than 2.5 %.
    assert (interval.low, interval.high) == pytest.approx((min(less), max(less)))


LAB = {
    "fixed_random": [[0, 0, 0, 0.1], [0, 0.1, 0.2, 0.3], [0, 0, 0.1, 0.2], [0, 0, 0, 0]],
    "ladder": [[0, 0.1, 0.2, 0.3], [0.2, 0.5, 0.5, 0.5], [0, 0, 0, 0.1], [0, 0.2, 0.1, 0.19]],
    "hindsight": [[0, 0.3, 0.6, 0.6], [0, 0.4, 0.5, 0.6], [0, 0.2, 0.4, 0.9], [0, 0.3, 0.6, 0.6]],
}
"""Shares valid after round 0 and three designed rounds, of four seeds."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> comparison.Comparison:
    return comparison.read(fabricate_lab(tmp_path_factory.mktemp("lab") / "lab", LAB))


def test_measures_of_a_validation_curve_worked_by_hand(lab):
    found = {one.engineer: one for one in findings(lab).validated}
    assert set(found) == set(LAB)
    ladder = found["ladder"]
    assert ladder.curves == tuple(map(tuple, LAB["ladder"]))
    assert ladder.measures["end"] == (0.3, 0.5, 0.1, 0.19)
    assert ladder.measures["area"] == pytest.approx((0.6 / 3, 1.5 / 3, 0.1 / 3, 0.49 / 3)), "round 0 is not in it"
    assert ladder.rounds_to == {0.2: (2, 0, None, 1), 0.5: (None, 1, None, None)}
    assert ladder.escaped == 0.5
    assert ladder.less_baseline["area"].by_seed == pytest.approx((0.5 / 3, 0.9 / 3, -0.2 / 3, 0.49 / 3))
    assert found["fixed_random"].less_baseline["end"].mean == 0


def test_headroom_captured_is_a_ratio_of_means_worked_by_hand(lab):
    found = {one.engineer: one.headroom for one in findings(lab).validated}
    ends = {"ladder": 1.09, "fixed_random": 0.6, "hindsight": 2.7}
    areas = {"ladder": 2.69, "fixed_random": 1.0, "hindsight": 6.0}
    for measure, sums in (("end", ends), ("area", areas)):
        captured = (sums["ladder"] - sums["fixed_random"]) / (sums["hindsight"] - sums["fixed_random"])
        one = found["ladder"][measure]
        assert one.captured == pytest.approx(captured)
        assert one.low < one.captured < one.high
        assert one.seeds == 4
    for bound, share in (("fixed_random", 0), ("hindsight", 1)):
        one = found[bound]["area"]
        assert (one.captured, one.low, one.high) == (share, share, share)


def test_interval_of_a_ratio_goes_to_the_seeds_own_where_one_is_drawn_alone_often_enough():
    # Of three seeds, each is drawn three times in 1 of 27 cases, 3.7 %; a ratio of sums lies between its parts' ratios.
    numerator, denominator = np.array([1.0, 2.0, 9.0]), np.array([2.0, 10.0, 10.0])
    assert ratio_interval(numerator, denominator) == pytest.approx((12 / 22, 2 / 10, 9 / 10))


def test_interval_of_a_ratio_is_that_of_a_plain_loop():
    rng = np.random.default_rng(3)
    denominator = rng.uniform(0.1, 0.9, 12)
    numerator = 0.6 * denominator + rng.normal(0, 0.1, 12)
    picks = rng.integers(12, size=(20_000, 12))
    drawn = [numerator[seeds].mean() / denominator[seeds].mean() for seeds in picks]
    _, low, high = ratio_interval(numerator, denominator)
    assert (low, high) == pytest.approx(np.percentile(drawn, (2.5, 97.5)), abs=0.01)


def test_no_ratio_is_given_where_hindsight_is_not_clearly_better(tmp_path):
    curves = {"fixed_random": [[0.1, 0.2, 0.3]] * 3, "rule": [[0.1, 0.3, 0.4]] * 3}
    curves["hindsight"] = [[0.1, 0.9, 0.9], [0.1, 0.1, 0.1], [0.1, 0.2, 0.4]]
    read = comparison.read(fabricate_lab(tmp_path / "lab", curves))
    for one in findings(read).validated:
        for headroom in one.headroom.values():
            assert headroom.whole.low < 0 < headroom.whole.mean
            assert (headroom.captured, headroom.low, headroom.high) == (None, None, None)
    text = comparison.to_text(read)
    assert [line.split()[3] for line in text.splitlines()[2:5]] == ["none"] * 3
    assert "none: the bootstrap does not put the headroom above 0" in " ".join(text.split())
    assert PICTURES["headroom.png"][0](read) is None


def test_headroom_is_of_the_seeds_that_all_three_have(tmp_path):
    out = fabricate_lab(tmp_path / "lab", LAB)
    (out / "arms/hindsight/seed3/evaluation.json").unlink()
    (out / "arms/ladder/seed0/evaluation.json").unlink()
    found = {one.engineer: one.headroom["end"] for one in findings(comparison.read(out)).validated}
    assert {name: one.seeds for name, one in found.items()} == {"fixed_random": 3, "ladder": 2, "hindsight": 3}
    assert found["ladder"].captured == pytest.approx((0.6 - 0.5) / (1.5 - 0.5))


def test_one_seed_captures_nothing(tmp_path):
    read = comparison.read(fabricate_lab(tmp_path / "lab", {name: own[:1] for name, own in LAB.items()}))
    assert {one.headroom["end"].captured for one in findings(read).validated} == {None}


def test_who_designs_best_comes_first_with_the_largest_area_on_top(lab):
    lines = comparison.to_text(lab).splitlines()
    assert lines[0].startswith("Who designs best")
    assert re.split("  +", lines[1]) == ["engineer", "end", "area", "headroom", "to 20 %", "to 50 %", "escape", "n"]
    rows = [line.split() for line in lines[2:5]]
    assert [row[0] for row in rows] == ["hindsight", "ladder", "fixed_random"]
    assert rows[0] == ["hindsight", "67.5", "50.0", "100", "1", "2", "100", "4"]
    assert rows[1][2:4] == ["22.4", "34"]
    assert rows[1][-6:] == ["1.5", "(75)", ">3", "(25)", "50", "4"]
    assert rows[2] == ["fixed_random", "15.0", "8.3", "0", ">3", "(50)", ">3", "(0)", "50", "4"]
    assert "fixed_random, in points: end +52.5 [" in " ".join(lines)


def test_without_hindsight_there_is_no_headroom(read):
    header = comparison.to_text(read).splitlines()[1]
    assert header.split() == ["engineer", "end", "area", "to", "20", "%", "to", "50", "%", "escape", "n"]
    assert not any(one.headroom for one in findings(read).validated)
    assert "headroom" not in comparison.to_text(read).lower()


def test_without_samples_nobody_designs_best(tmp_path):
    curves = {name: [[None] * 3] * 2 for name in ("fixed_random", "hindsight")}
    read = comparison.read(fabricate_lab(tmp_path / "lab", curves))
    assert findings(read).validated == ()
    assert "the runs' own validations must be sampled (validation.samples)" in " ".join(
        comparison.to_text(read).split()
    )
    assert [PICTURES[name][0](read) for name in ("validation.png", "headroom.png")] == [None, None]


def test_students_that_play_have_pictures_without_a_warm_start(lab):
    assert findings(lab).forgetting[0].checkpoints == ("round 0", "round 1", "round 2", "round 3")
    assert set(PICTURES) - set(draw_all(lab)) == {"learning.png"}


def test_many_seeds_are_summed_up_in_a_line(tmp_path):
    read = comparison.read(fabricate(tmp_path / "study", {"fixed_random": {}, "V6": {}}, 9, 1))
    text = comparison.to_text(read)
    assert max(map(len, text.splitlines())) <= 80
    (found,) = [one.less_baseline["end"].by_seed for one in findings(read).validated if one.engineer == "V6"]
    above = sum(value > 0 for value in found)
    assert f"{100 * min(found):+.1f} to {100 * max(found):+.1f}, {above} of 9 above 0" in text


def test_designs_are_told_apart_from_the_baselines_and_the_nearest(read):
    cells = {frozenset((a.one, a.other)): a.distance for a in findings(read).apart if a.round == 2}
    [table] = [table for table in comparison.tables(read) if table.title.startswith("Round 2: how far")]
    for name, _, baseline, nearest, distance in table.rows:
        others = {other: cells[frozenset((name, other))] for other in read.engineers if other != name}
        assert nearest == min(others, key=others.get)
        assert distance.startswith(f"{min(others.values()):.2f} (")
        assert baseline.startswith(f"{others['fixed_random']:.2f}" if name != "fixed_random" else "-")


def test_tails_rise_to_the_mean(out, read):
    for tail in findings(read).tails:
        assert len(tail.values) == len(ALPHAS)
        assert all(a <= b + 1e-12 for a, b in itertools.pairwise(tail.values))
        never = [value for alpha, value in zip(ALPHAS, tail.values, strict=True) if alpha <= tail.never]
        assert not any(never)
    [whole] = [tail for tail in findings(read).tails if (tail.engineer, tail.agents) == ("V6", None)]
    values = np.mean([answers_of(out / "arms" / "V6" / f"seed{seed}")["valid"] for seed in range(3)], axis=0)
    assert (whole.values[-1], whole.never) == pytest.approx((values.mean(), (values == 0).mean()))


def test_forgetting_is_over_the_checkpoints_of_the_rounds(read):
    for one in findings(read).forgetting:
        assert one.checkpoints == ("warm start", "round 0", "round 1", "round 2")
        assert one.sizes == SIZES


def test_families_stand_beside_sizes_in_their_order(tmp_path):
    kinds = (3, 4, "rooms5", "corridor6")
    out = fabricate(tmp_path / "study", {"fixed_random": {}, "V6": {}}, 2, 2, kinds=kinds)
    read = comparison.read(out)
    found, columns = findings(read), [answers_of(out / "arms" / "V6" / f"seed{seed}") for seed in range(2)]
    assert [one.sizes for one in found.forgetting] == [kinds] * 2
    rates = {rate.size: rate for rate in found.rates if (rate.engineer, rate.metric, rate.agents) == ("V6", "valid", 3)}
    for name in kinds:
        here = (columns[0]["size"] == str(name)) & (columns[0]["agents"] == 3)
        assert rates[name].n == 2 * here.sum() == 12
        assert rates[name].share == pytest.approx(np.mean([one["valid"][here] for one in columns]))
    text = comparison.to_text(read)
    assert "held-out boards of sizes 3, 4, rooms5, corridor6" in " ".join(text.split())
    headings = [line.split() for line in text.splitlines() if line.startswith("engineer") and "rooms5" in line]
    assert headings == [["engineer", "3", "4", "rooms5", "corridor6"]]
    assert set(draw_all(read)) == set(PICTURES) - {"headroom.png"}


def test_published_figures_stand_beside_engineers_of_their_kind(read):
    rows = {row.name: row for row in beside_published(read)}
    pooled = {name: round(100 * row.theirs, 1) for name, row in rows.items()}
    # As paper/FACTS.md has them, from the paper's tables.
    paper = {"fixed random": 28.6, "base engineer": 31.0, "V1": 19.5, "V2": 27.7, "V3": 31.2, "V4": 33.4}
    assert pooled == paper | {"V5": 25.6, "V6": 36.1, "V6-full": 27.1}
    ours = {name: row.engineer for name, row in rows.items() if row.engineer}
    assert ours == {"fixed random": "fixed_random", "V1": "V1", "V6": "V6"}
    assert rows["fixed random"].ours_less_baseline is None
    assert rows["V6"].ours_less_baseline.mean == pytest.approx(rows["V6"].ours - rows["fixed random"].ours)


@pytest.mark.heavy
def test_report_has_tables_numbers_and_pictures(out):
    page = comparison.write(out, comparison.read(out))
    words = page.read_text()
    assert words.index("Who designs best") < words.index("4 engineers, 3 seeds each")
    for name in set(PICTURES) - {"headroom.png"}:
        assert f"]({name})" in words
        assert matplotlib.image.imread(page.parent / name).shape[1] > 600
    numbers = json.loads((page.parent / "comparison.json").read_text())
    assert numbers["seeds"] == {name: [0, 1, 2] for name in ("fixed_random", "uniform", "V6", "V1")}
    assert {one["engineer"] for one in numbers["differences"]} == {"uniform", "V6", "V1"}


def test_terminal_text_fits_and_begins_with_what_was_compared(read):
    text = comparison.to_text(read)
    assert max(map(len, text.splitlines())) <= 80
    assert "\n4 engineers, 3 seeds each, 124 held-out boards of sizes 3, 4, 5, 6; measured\nagainst fixed_r" in text


def test_samples_make_a_metric_of_their_own(tmp_path):
    found = findings(comparison.read(fabricate(tmp_path / "study", {"fixed_random": {}, "V6": {}}, 2, 2, samples=True)))
    assert {one.metric for one in found.differences} == {"valid", "optimal", "sampled valid"}
    assert {tail.engineer for tail in found.tails} == {"round 0", "fixed_random", "V6"}


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    out = fabricate(tmp_path / "study", boards=1)
    (out / "arms" / "V6" / "seed1" / "evaluation.json").unlink()
    (out / "arms" / "fixed_random" / "seed2" / "evaluation.json").unlink()
    shutil.rmtree(out / "arms" / "V1")
    read = comparison.read(out)
    assert read.engineers == ("fixed_random", "uniform", "V6")
    assert read.paired_seeds("V6") == (0,)
    text = comparison.to_text(read)
    named = "Not finished and left out: fixed_random seed 2, V6 seed 1, V1 seed 0, V1 seed 1, V1 seed 2."
    assert named in " ".join(text.split())
    assert "Not all engineers have the same seeds yet" in text


@pytest.mark.parametrize(
    "spoil, fault",
    [
        (lambda out: (out / "compare.yaml").unlink(), "no comparison, it has no compare.yaml"),
        (
            lambda out: (out / "compare.yaml").write_text("seeds: [0]\n"),
            "compare.yaml: no comparison's settings: 'run'",
        ),
        (lambda out: shutil.rmtree(out / "arms" / "fixed_random"), "none of the runs of its baseline fixed_random is"),
        (lambda out: change(out, "boards", "id", "another"), "its boards are not those of"),
        (lambda out: change(out, "boards", "wait_subset", None), "wait_subset is no number for some boards"),
        (
            lambda out: change(out, "answers", "first_failure", "sleepy"),
            "first_failure 'sleepy' must be null or one of",
        ),
        (lambda out: change(out, "answers", "optimal", 1), "or optimal and not valid"),
        (
            lambda out: (out / "compare.yaml").write_text("run: {engineer: {}}\nengineers: [a]\n"),
            "no comparison's set",
        ),
        (lambda out: (out / "start/seed1/evaluation.json").write_text("{}"), "seed1/evaluation.json: no evaluation"),
    ],
)
def test_a_broken_directory_is_told_in_one_line(tmp_path, spoil, fault):
    out = fabricate(tmp_path / "study", {"fixed_random": {}, "V6": {}}, 2, 1)
    spoil(out)
    with pytest.raises(ValueError, match=fault) as error:
        comparison.read(out)
    assert "\n" not in str(error.value)


def change(out: Path, part: str, column: str, value: object) -> None:
    """Sets a column of one evaluation at a board whose answer is not valid."""
    path = out / "arms" / "V6" / "seed1" / "evaluation.json"
    found = json.loads(path.read_text())
    found[part][column][found["answers"]["valid"].index(0)] = value
    as_file(path, found)
