"""A report on branches says what ``gains.jsonl`` says; its statistics are held against hand-worked and naive ones."""

import itertools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from jaxlake.config import LakeConfig
from rl.report.branch import read, to_text, write
from rl.report.branch.findings import ALL, RANDOM, findings
from rl.report.branch.gains import FILE
from rl.report.branch.statistics import (
    bootstrap,
    intraclass,
    repeat_half_widths,
    retest_correlation,
    spearman_brown,
    specialisation,
    variance_shares,
)
from rl.statistics import spearman

KINDS = ("3", "5x3", "5x4", "7")
Line = dict[str, Any]


def alone(kind: str) -> LakeConfig:
    """Return a design with all data on one kind."""
    return LakeConfig(KINDS, [float(one == kind) for one in KINDS], [0.1] * 4, [0.0] * 4)


def branch(design: int = 0, repeat: int = 0, gain: float = 0.1, **changes: Any) -> Line:
    """Return a line of a random design."""
    line = {
        "version": 1,
        "state": "runs/lab round 2",
        "round": 3,
        "design": design,
        "repeat": repeat,
        "updates": 10,
        "context": "Valid plays: <11> of 100.",
        "config": LakeConfig.uniform(KINDS, 0.2, 0.1).to_dict(),
        "origin": "random",
        "before": 0.3,
        "after": 0.3 + gain,
        "gain": gain,
        "gain_se": 0.01,
        "by_kind": {kind: {"before": 0.3, "after": 0.3 + gain} for kind in KINDS},
        "predictors": {"p(1-p)": 0.2 * gain, "gradient alignment": None},
    }
    return line | changes


def save(folder: Path, lines: Iterable[Line | str]) -> Path:
    folder.mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / FILE).write_text("".join(f"{text}\n" for text in texts))
    return folder


def mixed(repeats: int = 2, states: int = 2, noise: float = 0.02) -> list[Line]:
    """Lines of 20 random designs, one on each of two kinds, and an engineer's, from some states, in the file's order.

    A kind is learned by training on it or, a third as well, on its neighbour.
    """
    rng = np.random.default_rng(0)
    lines = []
    for state, repeat in itertools.product(range(states), range(repeats)):
        levels = np.random.default_rng(100 + state).uniform(-0.1, 0.2, 23)
        for design, level in enumerate(levels):
            kind = {20: "3", 21: "7"}.get(design)
            changes: Line = {"state": f"runs/lab round {state}", "round": state + 1}
            if kind is not None:
                changes |= {"origin": f"kind:{kind}", "config": alone(kind).to_dict()}
                after = {one: 0.5 if one == kind else 0.3 + (0.05 if one in ("5x3", "5x4") else 0.0) for one in KINDS}
                jitter = dict(zip(KINDS, rng.normal(0, 0.01, 4), strict=True))
                changes["by_kind"] = {one: {"before": 0.3, "after": after[one] + jitter[one]} for one in KINDS}
            elif design == 22:
                changes["origin"] = "hindsight"
            cheap = {"p(1-p)": level + rng.normal(0, 0.05), "reward variance": rng.normal(), "alignment": None}
            gain = float(np.clip(level + rng.normal(0, noise), -0.3, 0.7))
            lines.append(branch(design, repeat, gain, predictors=cheap, **changes))
    return lines


# Statistics


def test_spearman_by_hand() -> None:
    # Without ties 1 - 6 sum(d^2) / (n (n^2 - 1)): d = 0, 1, 1, 1, 1 gives 1 - 24 / 120.
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 7, 5, 50, 11])) == pytest.approx(0.8)
    # Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5, variances 4.5 and 5.
    assert spearman(np.array([0.0, 1, 1, 2]), np.array([0.0, 1, 2, 3])) == pytest.approx(4.5 / np.sqrt(4.5 * 5))
    assert np.isnan(spearman(np.zeros(4), np.arange(4.0)))


def test_spearman_is_the_correlation_of_ranks_counted_naively() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 6, (50, 2, 9)).astype(float)  # many ties
    pairs[0, 0] = -np.inf  # constant

    def counted(values: np.ndarray) -> list[float]:
        return [sum(v < x for v in values) + (1 + sum(v == x for v in values)) / 2 for x in values]

    together = spearman(pairs[:, 0], pairs[:, 1])
    for (one, other), value in zip(pairs[1:], together[1:], strict=True):
        assert value == pytest.approx(np.corrcoef(counted(one), counted(other))[0, 1])
    assert np.isnan(together[0])


def test_retest_correlation_is_the_mean_over_pairs_of_repeats() -> None:
    gains = np.array([[1.0, 1, 3], [2, 2, 2], [3, 3, 1]])  # repeats 0 and 1 agree, 2 is reversed
    assert retest_correlation(gains) == pytest.approx((1 - 1 - 1) / 3)
    assert np.isnan(retest_correlation(gains[:, :1]))


def test_spearman_brown_predicts_the_correlation_of_means() -> None:
    assert spearman_brown(np.array(0.5), 2) == pytest.approx(2 / 3)
    assert spearman_brown(np.array(-0.2), 3) == 0
    rng = np.random.default_rng(1)
    gains = rng.normal(size=(4000, 1)) + rng.normal(size=(4000, 6))
    predicted = spearman_brown(retest_correlation(gains), 3)
    assert spearman(gains[:, :3].mean(1), gains[:, 3:].mean(1)) == pytest.approx(predicted, abs=0.02)


def test_intraclass_correlation_by_hand_and_without_bias() -> None:
    # Means 2 and 6, within variances 2 and 2: between 2 * 8 = 16, so (16 - 2) / (16 + 2).
    assert intraclass(np.array([[1.0, 3], [5, 7]])) == pytest.approx(14 / 18)
    rng = np.random.default_rng(2)
    gains = 2 * rng.normal(size=(300, 20, 1)) + rng.normal(size=(300, 20, 3))
    assert intraclass(gains).mean() == pytest.approx(0.8, abs=0.02)
    assert intraclass(rng.normal(size=(300, 20, 3))).mean() == pytest.approx(0, abs=0.02)
    assert np.isnan(intraclass(gains[..., :1])).all()


def test_bootstrap_covers_the_true_correlation_and_leaves_undefined_states_out() -> None:
    rng = np.random.default_rng(3)
    true = 6 / np.pi * np.arcsin(0.6 / 2)  # Spearman's of a bivariate normal whose Pearson's is .6
    covered = 0
    for _ in range(100):
        x, noise = rng.normal(size=(2, 40))
        interval = bootstrap(spearman, {"a": (x, 0.6 * x + 0.8 * noise)}, resamples=400)
        covered += interval.low <= true <= interval.high
    assert 87 <= covered <= 99
    two = bootstrap(spearman, {"a": (np.arange(9.0), np.arange(9.0)), "constant": (np.zeros(9), np.arange(9.0))})
    assert (two.value, two.by_state) == (1.0, {"a": pytest.approx(1.0), "constant": None})
    assert bootstrap(spearman, {"constant": (np.zeros(9), np.arange(9.0))}) is None
    assert bootstrap(spearman, {}) is None


def test_specialisation_is_what_the_best_row_gains_and_none_of_its_luck() -> None:
    # Gained on x trained on; the best rows 1 and 0 are 2 and 1 above the means 2 and 1.
    matrix = np.array([[0.0, 4, 2], [2, 0, 1]])
    assert specialisation(np.stack([matrix, matrix], axis=1)) == pytest.approx(1.5)
    noise = np.random.default_rng(4).normal(size=(200, 6, 3, 6))
    assert specialisation(noise).mean() == pytest.approx(0, abs=0.05)
    assert np.isnan(specialisation(matrix[:, None]))


def test_variance_shares_are_those_that_a_matrix_was_made_of() -> None:
    rows, columns = np.array([-1.0, 1, 0]), np.array([3.0, -3])
    interaction = np.outer([1.0, -1], [2, -1, -1])
    gains = 7 + columns[:, None] + rows + interaction
    repeated = np.stack([gains, gains + 5], axis=1)  # a shift of a whole repeat is no structure
    variances = np.array([rows.var(), columns.var(), interaction.var()])
    assert variance_shares(repeated) == pytest.approx(variances / variances.sum())
    noise = np.random.default_rng(5).normal(size=(400, 2, 4, 3))
    assert variance_shares(noise + gains[:, None]).mean(0) == pytest.approx(variances / variances.sum(), abs=0.02)
    assert np.isnan(variance_shares(np.ones((2, 2, 3)))).all()


def test_half_widths_cover_the_true_matrix() -> None:
    rng = np.random.default_rng(6)
    spread = np.array([1.0, 5.0])[:, None, None]
    covered = []
    for _ in range(300):
        states = [spread * rng.normal(size=(2, repeats, 4)) for repeats in (2, 3)]
        matrix = np.mean([one.mean(1) for one in states], axis=0)
        covered.append(np.abs(matrix) <= repeat_half_widths(states)[:, None])
    assert np.mean(covered, axis=(0, 2)) == pytest.approx([0.95, 0.95], abs=0.025)
    assert repeat_half_widths([np.zeros((2, 1, 4))]) is None


# The file


def test_values_are_read_in_order_of_design_and_repeat(tmp_path: Path) -> None:
    lines = [branch(d, r, (d + 1) / 10 + r / 100) for d, r in [(4, 1), (0, 0), (4, 0), (0, 1)]]
    [state] = read(save(tmp_path, lines)).states
    assert [design.number for design in state.designs] == [0, 4]
    assert state.gains == pytest.approx(np.array([[0.1, 0.11], [0.5, 0.51]]))
    assert list(map(str, state.kinds)) == ["3", "5x3", "5x4", "7"]
    assert state.kind_gains[1, 0] == pytest.approx(0.5)
    assert state.predictors["p(1-p)"] == pytest.approx([0.021, 0.101])  # mean over repeats
    assert np.isnan(state.predictors["gradient alignment"]).all()


def test_a_line_without_its_end_and_a_design_without_a_repeat_are_left_out(tmp_path: Path) -> None:
    lines = [branch(d, r) for r, d in itertools.product(range(2), range(4))]
    folder = save(tmp_path, [*lines[:-1], branch(0, 0, state="runs/lab round 3")])
    with (folder / FILE).open("a") as file:
        file.write(json.dumps(lines[-1]))
    branches = read(folder)
    assert [[design.number for design in state.designs] for state in branches.states] == [[0, 1, 2]]
    assert "design 3 of runs/lab round 2" in branches.left_out[0]
    assert "runs/lab round 3" in branches.left_out[1]
    assert "Left out: design 3" in to_text(branches)


WRONG: dict[str, tuple[Any, str]] = {
    "not JSON": ('{"version": 1,', "line 2: not JSON"),
    "no object": ("[1]", "line 2: [1] must be an object"),
    "version": (branch(1, version=2), "line 2: version = 2 must be 1"),
    "missing key": ({k: v for k, v in branch(1).items() if k != "gain_se"}, "line 2: gain_se is missing"),
    "gain not finite": (branch(1, gain=0.1) | {"gain": float("nan")}, "line 2: gain = nan must be a number"),
    "gain as text": (branch(1) | {"gain": "0.1"}, "line 2: gain = '0.1' must be a number"),
    "gain of another": (branch(1) | {"gain": 0.2}, "line 2: gain = 0.2 must be after - before = 0.1"),
    "error below 0": (branch(1, gain_se=-1), "line 2: gain_se = -1 must be a number from 0 to 1"),
    "after above 1": (branch(1, after=1.5), "line 2: after = 1.5 must be a number from 0 to 1"),
    "no updates": (branch(1, updates=0), "line 2: updates = 0 must be a whole number from 1 on"),
    "no state": (branch(1, state=""), "line 2: state = '' must be a text"),
    "config": (branch(1, config={"3": {"data": 0.5, "hole": 0, "wait": 0}}), "line 2: data sums to 0.5"),
    "kind": (branch(1, by_kind={"12": {"before": 0, "after": 0}}), "line 2: size of random boards = 12"),
    "kind's gain": (branch(1, by_kind={"3": {"before": 0}}), "line 2: by_kind of 3"),
    "origin": (branch(1, origin="kind:lake"), "line 2: kind = 'lake' must be"),
    "predictor": (branch(1, predictors={"p": float("inf")}), "line 2: predictor p = inf must be a finite number"),
    "duplicate": (branch(0), "line 2: design 0, repeat 0 of runs/lab round 2 is there twice"),
    "other context": (branch(1, context="else"), "line 2: context must be that of the other lines"),
    "other kinds": (branch(1, by_kind={"3": {"before": 0, "after": 0}}), "line 2: by_kind must have the kinds"),
    "other config": (branch(0, 1, config=alone("3").to_dict()), "line 2: config must be that of the other repeats"),
    "one design": (branch(0, 1), "1 designs with all 2 repeats): a state must have at least 2"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str) -> None:
    line, message = WRONG[name]
    with pytest.raises(ValueError) as error:
        read(save(tmp_path, [branch(0), line]))
    text = str(error.value)
    assert text.startswith(str(tmp_path / FILE)) and message in text and "\n" not in text


def test_a_folder_without_the_file_or_without_a_line_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere/gains.jsonl: there is no such file"):
        read(tmp_path / "nowhere")
    (tmp_path / FILE).write_text(json.dumps(branch()))
    with pytest.raises(ValueError, match=r"gains.jsonl: the file has no branch"):
        read(tmp_path)


# The report


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(save(tmp_path_factory.mktemp("branches"), mixed())).parent


def test_findings_say_what_the_gains_were_made_of(written: Path) -> None:
    numbers = findings(read(written.parent))
    by_group = {one.group: one for one in numbers.retests}
    assert [by_group[group].designs for group in (ALL, RANDOM)] == [46, 40]
    assert all(one.is_enough and one.single.value > 0.85 for one in by_group.values())
    assert by_group[ALL].of_mean.value > by_group[ALL].single.value
    assert by_group[RANDOM].intraclass.value == pytest.approx(0.95, abs=0.04)  # .087^2 of designs, .02^2 of repeats
    assert [one.designs for one in numbers.distributions] == [20, 20]
    assert numbers.distributions[0].within == pytest.approx(0.02, rel=0.35)
    assert numbers.distributions[0].error == pytest.approx(0.01)
    transfer = numbers.transfer
    assert (transfer.trained_on, transfer.gained_on) == (("3", "7"), ("3", "7", "5x3", "5x4"))  # by difficulty
    assert np.array(transfer.gains) == pytest.approx(np.array([[0.2, 0, 0.05, 0.05], [0, 0.2, 0.05, 0.05]]), abs=0.03)
    assert transfer.shares["interaction"].value > 0.8
    assert transfer.specialisation.value == pytest.approx(0.05, abs=0.015)  # .1, 0, 0, .1 above the mean of two rows
    found = {one.predictor: one.correlation for one in numbers.predictions if one.group == ALL}
    assert found["p(1-p)"].low > 0.5
    assert found["reward variance"].low < 0 < found["reward variance"].high
    assert found["alignment"] is None


def test_the_page_stands_alone_with_its_pictures_and_numbers(written: Path) -> None:
    page = (written / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 4
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "Valid plays: &lt;11&gt; of 100." in page
    for name in ("retest", "gains", "transfer", "predictors"):
        assert matplotlib.image.imread(written / f"{name}.png").std() > 0.02
    numbers = json.loads((written / "branch.json").read_text())
    assert numbers["states"][1]["designs"][22]["origin"] == "hindsight"
    assert numbers["retests"][0]["single"]["by_state"].keys() == {"runs/lab round 0", "runs/lab round 1"}


def test_the_text_fits_a_terminal(written: Path) -> None:
    text = to_text(read(written.parent))
    assert max(map(len, text.splitlines())) <= 80
    for title in ("Test-retest", "Gains of random designs", "Transfer", "How structured", "Predictors"):
        assert title in text


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (lambda: mixed(repeats=1, states=1), "Test-retest: not measured (one repeat)"),
        (lambda: mixed(noise=0.5), "the branches are too short or too few"),
        (lambda: [branch(d, r, 0.0) for d in range(4) for r in range(2)], "no state in which three designs differ"),
        (lambda: [branch(d, r, d / 9, origin="rule") for d in range(2) for r in range(2)], "no state in which"),
    ],
)
def test_what_cannot_be_measured_is_said(tmp_path: Path, lines: Callable[[], list[Line]], said: str) -> None:
    folder = save(tmp_path, lines())
    assert said in " ".join(to_text(read(folder)).split())
    assert said in write(folder).read_text()
    json.loads((folder / "report" / "branch.json").read_text(), parse_constant=pytest.fail)
