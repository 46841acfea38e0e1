"""What is kept of an evaluation, and what answers are worth in shares, intervals and lengths."""

import numpy as np
import pytest

from engineer.evidence import wilson
from jaxlake.benchmark import Benchmark, load, spread, take
from jaxlake.types import Objective
from rl.config import ConfigError
from rl.evaluation import Answer, Evaluation, Record, evaluate

RIGHT = {"2ag_3x3_hr0.1_000": "0:(1,2)(1,1)(1,0)\n1:(2,1)(2,2)(1,2)(0,2)"}


def first(count: int) -> Benchmark:
    """The first boards with two agents: of each of the 8 sizes one before there is a second."""
    return take(load("validation"), spread(load("validation"))[:count])


def judge(part: Benchmark, answers: dict[tuple[str, int], Answer], samples: int) -> Evaluation:
    return evaluate(part, answers, samples, Objective.SUM_OF_COSTS, {})


def test_a_folder_takes_one_process_at_a_time(tmp_path):
    with (
        Record(tmp_path / "e", {"seed": 0}),
        pytest.raises(ConfigError, match="e: another process is writing there"),
    ):
        Record(tmp_path / "e", {"seed": 0})
    with Record(tmp_path / "e", {"seed": 0}) as record:
        assert record.answers == {}


@pytest.mark.parametrize("line", ["{", '{"id": "a"}', "[]", '{"id": 1, "sample": 0, "answer": "", "tokens": 1}'])
def test_a_broken_line_within_the_answers_is_named(tmp_path, line):
    with Record(tmp_path, {"seed": 0}):
        pass
    (tmp_path / "answers.jsonl").write_text(f"{line}\n")
    with pytest.raises(
        ConfigError, match="answers.jsonl, line 1: no answer; delete the line, and it is asked for again"
    ):
        Record(tmp_path, {"seed": 0})


def test_shares_have_wilsons_interval_over_boards_whatever_the_number_of_samples():
    """Wilson's bounds are the p at which the share is 1.96 standard errors of p away."""
    part = first(16)
    ((name, plan),) = RIGHT.items()
    answers = {(name, sample): Answer(name, sample, plan if sample < 2 else "no", 9, False) for sample in (0, 1, 2)}
    result = judge(part, answers, samples=4)
    lines = {line.size: line for line in result.lines}
    share = (2 / 3) / 2  # two of its three answers, none to the other board
    for line, n, mean in ((lines[3], 2, share), (lines[None], 16, share / 8)):
        assert line.valid.value == line.optimal.value == pytest.approx(mean)
        for bound in (line.valid.low, line.valid.high):
            distance = 1.96 * np.sqrt(bound * (1 - bound) / n)
            assert abs(bound - mean) == pytest.approx(distance)
        assert line.optimal_given_valid.value == pytest.approx(1)
    assert lines[4].optimal_given_valid is None and lines[4].valid.low == 0
    assert lines[3].at[4] == (50, 50) and result.scores.answers.sum() == 3


def test_a_mean_over_sizes_of_unlike_numbers_of_boards_tells_less_than_their_sum():
    part = first(12)  # of four sizes 2, of four 1
    (mean,) = (line for line in judge(part, {}, samples=1).lines if line.size is None)
    assert mean.boards == 12
    assert mean.valid.high == pytest.approx(wilson(0, 64 / 6)[1])  # 8 sizes: 64 / (4 / 2 + 4 / 1)


def test_lengths_are_over_the_answers_that_there_are():
    part = first(8)
    lengths = {8: (10, False), 9: (20, True), 10: (None, True)}
    names = {size: part.ids[list(part.instances.size).index(size)] for size in lengths}
    answers = {(names[size], 0): Answer(names[size], 0, "no", *length) for size, length in lengths.items()}
    lines = {line.size: line.lengths for line in judge(part, answers, samples=1).lines}
    assert (lines[8]["mean"], lines[8]["p90"], lines[8]["truncated"]) == (10, 10, 0)
    assert (lines[10]["mean"], lines[10]["p90"], lines[10]["truncated"]) == (None, None, 100)
    assert (lines[7]["mean"], lines[7]["truncated"]) == (None, None)
    assert (lines[None]["mean"], lines[None]["p90"]) == (15, pytest.approx(19))
    assert lines[None]["truncated"] == pytest.approx(200 / 3)
