"""A comparison's report says what its directory says."""

import json
import re
import shutil
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from comparisons import TWO, fabricate, fabricate_lab

from rl.report import comparison
from rl.report.__main__ import main
from rl.report.comparison.findings import Key, findings
from rl.report.comparison.pictures import PICTURES


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    return fabricate(tmp_path_factory.mktemp("comparison") / "study")


@pytest.fixture(scope="module")
def read(out) -> comparison.ComparisonResult:
    return comparison.read(out)


def answers_of(folder: Path) -> dict[str, np.ndarray]:
    """The columns of an evaluation, read without the code under test."""
    parts = json.loads((folder / "evaluation.json").read_text())
    return {name: np.array(column) for part in parts.values() for name, column in part.items()}


def mean_over_sizes(columns: dict[str, np.ndarray], values: np.ndarray, agents: int) -> float:
    chosen = columns["agents"] == agents
    sizes = np.unique(columns["size"][chosen])
    return float(np.mean([values[chosen & (columns["size"] == size)].mean() for size in sizes]))


def test_differences_are_of_pairs_and_means_over_sizes(out, read):
    by_key = findings(read).differences
    by_seed = []
    for seed in range(3):
        ours, theirs = (answers_of(out / "arms" / name / f"seed{seed}") for name in ("uniform", "fixed_random"))
        by_seed.append(mean_over_sizes(ours, ours["valid"] - theirs["valid"], 4))
    interval = by_key["uniform", "valid", 4]
    assert interval.by_seed == pytest.approx(by_seed)
    assert interval.mean == pytest.approx(np.mean(by_seed)) and interval.low < interval.mean < interval.high
    assert {agents for _, _, agents in by_key} == {2, 3, 4, 5, None}
    cells = [by_key["V6", "optimal", agents].mean * count for agents, count in ((2, 4), (3, 4), (4, 3), (5, 2))]
    assert by_key["V6", "optimal", None].mean == pytest.approx(sum(cells) / 13)


def test_rates_are_means_of_all_seeds_and_of_the_start(out, read):
    for name, folder in (("V1", out / "arms/V1"), ("round 0", out / "start")):
        columns = [answers_of(folder / f"seed{seed}") for seed in range(3)]
        rate = findings(read).rates[name, "valid", 3]
        assert rate == pytest.approx(np.mean([mean_over_sizes(one, one["valid"], 3) for one in columns]))


LAB = {
    "fixed_random": [[0, 0, 0, 0.1], [0, 0.1, 0.2, 0.3], [0, 0, 0.1, 0.2], [0, 0, 0, 0]],
    "ladder": [[0, 0.1, 0.2, 0.3], [0.2, 0.5, 0.5, 0.5], [0, 0, 0, 0.1], [0, 0.2, 0.1, 0.19]],
    "hindsight": [[0, 0.3, 0.6, 0.6], [0, 0.4, 0.5, 0.6], [0, 0.2, 0.4, 0.9], [0, 0.3, 0.6, 0.6]],
}
"""Shares valid after round 0 and three designed rounds, of four seeds."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> comparison.ComparisonResult:
    return comparison.read(fabricate_lab(tmp_path_factory.mktemp("lab") / "lab", LAB))


def test_measures_of_a_validation_curve_worked_by_hand(lab):
    found = findings(lab)
    assert list(found.curves) == ["hindsight", "ladder", "fixed_random"], "the largest area first"
    assert [*found.curves["ladder"].values()] == [*map(tuple, LAB["ladder"])]
    assert found.rates[Key("ladder", "end")] == pytest.approx((0.3 + 0.5 + 0.1 + 0.19) / 4)
    assert found.rates[Key("ladder", "area")] == pytest.approx((0.6 + 1.5 + 0.1 + 0.49) / 12), "round 0 is not in it"
    area, end = (found.differences[Key("ladder", measure)] for measure in ("area", "end"))
    assert area.by_seed == pytest.approx((0.5 / 3, 0.9 / 3, -0.2 / 3, 0.49 / 3))
    half = 3.182446 * np.std([0.2, 0.2, -0.1, 0.19], ddof=1) / 2  # t of 3 degrees of freedom, from a table
    assert (end.t_low, end.t_high) == pytest.approx((0.1225 - half, 0.1225 + half))


def test_every_table_of_differences_has_what_was_detectable_and_marks_what_lies_below(read, lab):
    for one in (read, lab):
        tables = [table for table in comparison.tables(one) if "points above" in table.title]
        assert tables and all("detectable" in table.header for table in tables)
    (end,) = [table for table in comparison.tables(lab) if table.title.startswith("Own validation, end")]
    rows = {row[0]: row for row in end.rows}
    # From tables of the noncentral t: at 3 degrees of freedom 80 % power takes 4.2 to 4.3 standard errors.
    error = 100 * np.std([0.2, 0.2, -0.1, 0.19], ddof=1) / 2
    assert 3.9 * error < float(rows["ladder"][3]) < 4.5 * error
    assert rows["ladder"][1].endswith("]~ ") and rows["hindsight"][1].endswith("]* ")


def test_headroom_captured_is_a_ratio_of_means_worked_by_hand(lab):
    captured = findings(lab).captured
    ends = {"ladder": 1.09, "fixed_random": 0.6, "hindsight": 2.7}
    areas = {"ladder": 2.69, "fixed_random": 1.0, "hindsight": 6.0}
    for measure, sums in (("end", ends), ("area", areas)):
        share, low, high = captured[Key("ladder", measure)]
        by_hand = (sums["ladder"] - sums["fixed_random"]) / (sums["hindsight"] - sums["fixed_random"])
        assert share == pytest.approx(by_hand) and low < share < high
    assert captured[Key("fixed_random", "area")] == (0, 0, 0) and captured[Key("hindsight", "area")] == (1, 1, 1)


def test_the_area_and_the_headroom_begin_after_the_shared_rounds_and_at_the_baseline(tmp_path):
    read = comparison.read(fabricate_lab(tmp_path / "lab", LAB, shared_rounds=2, baseline="ladder"))
    found = findings(read)
    assert [*found.curves["ladder"].values()] == [*map(tuple, LAB["ladder"])], "the shared rounds are drawn"
    assert found.rates[Key("ladder", "area")] == pytest.approx((0.5 + 1.0 + 0.1 + 0.29) / 8)
    less = found.differences[Key("hindsight", "area")]
    assert less.by_seed == pytest.approx((0.7 / 2, 0.1 / 2, 1.2 / 2, 0.91 / 2))
    assert found.captured[Key("ladder", "area")] == (0, 0, 0)
    assert found.captured[Key("fixed_random", "end")][0] == pytest.approx((0.6 - 1.09) / (2.7 - 1.09))
    text = " ".join(comparison.to_text(read).split())
    assert "Rounds 0 to 1 of a seed are the same for all engineers" in text
    assert "Headroom is hindsight less ladder" in text
    assert {key.engineer for key in found.rates} == {"round 1", *LAB}


def test_headroom_is_of_the_seeds_that_all_three_have_and_of_more_than_one(tmp_path):
    out = fabricate_lab(tmp_path / "lab", LAB)
    (out / "arms/hindsight/seed3/evaluation.json").unlink()
    (out / "arms/ladder/seed0/evaluation.json").unlink()
    captured = findings(comparison.read(out)).captured
    assert captured[Key("ladder", "end")][0] == pytest.approx((0.6 - 0.5) / (1.5 - 0.5))
    (out / "arms/ladder/seed1/evaluation.json").unlink()
    captured = findings(comparison.read(out)).captured
    assert captured[Key("ladder", "end")] is None and captured[Key("hindsight", "end")][0] == 1


def test_families_stand_beside_sizes_in_their_order(tmp_path):
    kinds = (3, 4, "rooms5", "corridor6")
    read = comparison.read(fabricate(tmp_path / "study", TWO, 2, 2, samples=True, kinds=kinds))
    assert {key.metric for key in findings(read).differences} >= {"valid", "optimal", "sampled valid"}
    assert "held-out boards of sizes 3, 4, rooms5, corridor6" in " ".join(comparison.to_text(read).split())


def test_the_page_stands_alone_with_its_pictures_and_numbers(out, read, capsys):
    assert main([str(out)]) == 0
    page = Path(capsys.readouterr().out.strip())
    assert page == out / "report/comparison.html"
    text = page.read_text()
    assert text.count("data:image/png;base64,") == len(PICTURES) and text.index("Who designs best") < text.index("<img")
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    for name in PICTURES:
        assert matplotlib.image.imread(page.parent / name).shape[1] > 600
    numbers = json.loads((page.parent / "comparison.json").read_text(), parse_constant=pytest.fail)
    assert numbers["seeds"] == {name: [0, 1, 2] for name in ("fixed_random", "uniform", "V6", "V1")}
    assert {one["engineer"] for one in numbers["differences"]} == {"uniform", "V6", "V1"}


def test_unfinished_runs_are_left_out_and_named(tmp_path):
    out = fabricate(tmp_path / "study", boards=1)
    (out / "arms" / "V6" / "seed1" / "evaluation.json").unlink()
    (out / "arms" / "fixed_random" / "seed2" / "evaluation.json").unlink()
    shutil.rmtree(out / "arms" / "V1")
    read = comparison.read(out)
    assert tuple(read.runs) == ("fixed_random", "uniform", "V6")
    assert len(findings(read).differences["V6", "valid", 4].by_seed) == 1
    text = " ".join(comparison.to_text(read).split())
    assert "Not finished and left out: fixed_random seed 2, V6 seed 1, V1 seed 0, V1 seed 1, V1 seed 2." in text
    assert "3 engineers, 2 to 3 seeds each" in text and "Not all engineers have the same seeds yet" in text
    shutil.rmtree(out / "arms/fixed_random")
    with pytest.raises(ValueError, match="none of the runs of its baseline fixed_random is finished"):
        comparison.read(out)
