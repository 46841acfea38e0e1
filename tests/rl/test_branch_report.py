"""``gains.jsonl`` is read as it was written, and the report on branches says what is in it."""

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from branches import alone, branch, mixed, save

from rl.judge.statistics import t_interval
from rl.lab.gains import read_gains
from rl.report import branch as report
from rl.report.__main__ import main


def test_retest_correlation_is_the_mean_over_pairs_of_repeats():
    gains = np.array([[1.0, 1, 3], [2, 2, 2], [3, 3, 1]])  # repeats 0 and 1 agree, 2 is reversed
    assert report.retest_correlation(gains) == pytest.approx((1 - 1 - 1) / 3)


def test_values_are_read_in_order_of_design_and_repeat(tmp_path):
    old = {"predictors": {"p(1-p)": 0.1}}  # which earlier files have
    lines = [branch(d, r, (d + 1) / 10 + r / 100, **old) for d, r in [(4, 1), (0, 0), (4, 0), (0, 1)]]
    [state] = read_gains(save(tmp_path, lines)).states
    assert list(state.designs) == [0, 4]
    assert state.gains == pytest.approx(np.array([[0.1, 0.11], [0.5, 0.51]]))
    assert list(map(str, state.kinds)) == ["3", "5x3", "5x4", "7"]
    assert state.kind_gains[1, 0] == pytest.approx(0.5)


def test_what_is_unfinished_is_left_out_and_what_was_trained_again_counts_once(tmp_path):
    lines = [branch(d, r) for r, d in itertools.product(range(2), range(4))]
    folder = save(tmp_path, [*lines[:-1], branch(0, 0, 0.2), branch(0, 0, state="runs/lab round 3")])
    with (folder / "gains.jsonl").open("a") as file:
        file.write(json.dumps(lines[-1]))  # without its end, as it is still being written
    gains = read_gains(folder)
    assert [list(state.designs) for state in gains.states] == [[0, 1, 2]]
    assert gains.states[0].gains[0] == pytest.approx([0.2, 0.1])
    assert gains.left_out[0].startswith("design 3 of runs/lab round 2 (") and "round 3" in gains.left_out[1]
    assert "Left out: design 3" in report.to_text(gains)


WRONG: dict[str, tuple[Any, str]] = {
    "not JSON": ('{"state": 1,', "line 2: Invalid JSON"),
    "missing key": ({k: v for k, v in branch(1).items() if k != "gain_se"}, "line 2: gain_se must be given"),
    "config": (branch(1, config={"3": {"data": 0.5, "hole": 0, "wait": 0}}), "data sums to 0.5"),
    "kind": (branch(1, by_kind={"65": {"before": 0, "after": 0}}), "size of random boards = 65"),
    "one design": (branch(0, 1), "1 designs with all 2 repeats): a state must have at least 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_file_is_one_line(tmp_path, name):
    line, message = WRONG[name]
    with pytest.raises(ValueError) as error:
        read_gains(save(tmp_path, [branch(0), line]))
    text = str(error.value)
    assert text.startswith(str(tmp_path / "gains.jsonl")) and message in text and "\n" not in text


def test_a_folder_without_the_file_or_without_a_line_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere/gains.jsonl: there is no such file"):
        read_gains(tmp_path / "nowhere")
    (tmp_path / "gains.jsonl").write_text(json.dumps(branch()))
    with pytest.raises(ValueError, match=r"gains.jsonl: no branch"):
        read_gains(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save(tmp_path_factory.mktemp("branches"), mixed())
    assert main([str(folder)]) == 0
    return folder


def test_the_report_says_what_the_gains_were_made_of(folder):
    gains, lines = read_gains(folder), mixed()
    # Designs have a variance of .3^2 / 12, repeats one of .02^2: Pearson's correlation is .95.
    mean, low, high = report.repeat_correlation(gains)
    assert low < mean < high and mean > 0.85 and low < 0.95
    transfer = report.transfer(gains)
    assert (transfer.trained_on, transfer.gained_on) == (["3", "7"], ["3", "7", "5x3", "5x4"])  # by difficulty
    assert np.array(transfer.gains) == pytest.approx(np.array([[0.2, 0, 0.05, 0.05], [0, 0.2, 0.05, 0.05]]), abs=0.03)

    def gained(origin):
        own = [line["gain"] for line in lines if line["origin"] == origin]
        return np.array([np.mean(own[:2]), np.mean(own[2:])])  # of the two states

    engineers = {one.name: one for one in report.engineers(gains)}
    assert set(engineers) == {"hindsight", "ladder", "fixed_random", report.BEST}
    less = gained("hindsight, ladder") - gained("fixed_random")
    assert engineers["ladder"].target == pytest.approx(gained("hindsight, ladder").mean())
    assert engineers["ladder"].target_above == pytest.approx((less.mean(), *t_interval(less)))


def test_the_best_of_all_is_chosen_by_the_other_repeats(tmp_path):
    values = {0: (0.5, 0.0), 1: (0.1, 0.4), 2: (0.2, 0.1)}  # best by repeat 1 is design 1, by repeat 0 design 0
    lines = [branch(d, r, gain, origin=f"rule{d}") for d, own in values.items() for r, gain in enumerate(own)]
    best = {one.name: one for one in report.engineers(read_gains(save(tmp_path, lines)))}[report.BEST]
    assert best.target == pytest.approx((0.1 + 0.0) / 2)


def test_the_page_stands_alone_with_its_pictures_and_numbers(folder):
    page = (folder / "report/branch.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    for name in ("gains", "transfer"):
        assert matplotlib.image.imread(folder / f"report/{name}.png").std() > 0.02
    assert json.loads((folder / "report/branch.json").read_text())["transfer"]["trained_on"] == ["3", "7"]


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (lambda: mixed(repeats=1, states=1), "Test-retest: not measured (one repeat)"),
        (lambda: mixed(noise=0.5), "the branches are too short or too few"),
        (lambda: [branch(d, r, 0.0) for d in range(4) for r in range(2)], "no three designs of a state differ"),
        (lambda: [branch(d, r, d / 9, origin="rule") for d in range(2) for r in range(2)], "no three designs"),
        (lambda: [branch(d, r, d / 9) for d in range(3) for r in range(2)], "3 designs, 1 state."),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path: Path, lines: Callable[[], list[dict]], note: str):
    folder = save(tmp_path, lines())
    assert note in " ".join(report.to_text(read_gains(folder)).split())
    assert note in report.write(folder).read_text()
    json.loads((folder / "report/branch.json").read_text(), parse_constant=pytest.fail)


def test_a_design_knows_who_proposed_it(folder):
    designs = read_gains(folder).states[0].designs
    assert designs[22].engineers == ("hindsight", "ladder") and designs[22].kind is None
    assert designs[20].config == alone("3") and str(designs[20].kind) == "3" and designs[20].engineers == ()
    assert designs[0].engineers == () and designs[0].kind is None
