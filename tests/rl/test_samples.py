"""Sample answers of a validation as people read them."""

import pytest
from runs import SAMPLES

from engineer.evidence import CHECKS
from rl.run.samples import marked, samples_markdown


def test_samples_page_holds_prompt_answer_verdict_and_the_board_with_its_paths():
    page = samples_markdown(SAMPLES)
    assert "| 0 | 4x4 | optimal | 10 | 10 |" in page
    assert "| 1 | 5x5 | fails: conflict | - | 15 |" in page
    # Agent 0 comes along the top, agent 1 goes along the third row, and both leave the cell between.
    assert "a..b   a>>b\n.##.   .##+\nB..A   B<<A\n....   ....\n" in page
    for sample in SAMPLES:
        assert f"```text\n{sample['prompt']}\n```" in page
        assert f"```text\n{sample['answer']}\n```" in page


def test_samples_page_shows_an_unreadable_answer_verbatim_beside_no_paths():
    checks = {**dict.fromkeys(CHECKS, True), "parsable": False, "goal_reached": False}
    page = samples_markdown([SAMPLES[0] | {"answer": "``` no plan", "checks": checks, "optimal": False, "cost": -1}])
    assert "## Sample 0: 4x4, fails: parse (then goal)" in page
    assert "```text\na..b\n.##.\nB..A\n....\n```" in page
    assert "````text\n``` no plan\n````" in page


@pytest.mark.parametrize(
    ("lost_at", "shown"),
    [
        (11, "0:(0,0)»(1,0)«\n1:(2,2)"),
        (12, "0:(0,0)(1,0)»↵«\n1:(2,2)"),  # the path ends too early
        (20, "0:(0,0)(1,0)\n1:(2,2)»«"),  # the answer does
        (None, "0:(0,0)(1,0)\n1:(2,2)"),
    ],
)
def test_a_failed_answer_shows_what_loses_the_last_valid_plan(lost_at, shown):
    failed = {**dict.fromkeys(CHECKS, True), "hole_free": False}
    sample = SAMPLES[0] | {"answer": "0:(0,0)(1,0)\n1:(2,2)", "lost_at": lost_at, "optimal": False}
    assert marked(sample | {"checks": failed}) == shown
    assert shown in samples_markdown([sample | {"checks": failed}])
    assert marked(sample) == sample["answer"]  # a valid one has lost nothing


def test_samples_page_shows_begin_and_end_of_a_long_thought():
    thought = "".join(f"<{i}>" for i in range(5000))
    page = samples_markdown([SAMPLES[0] | {"answer": f"{thought}\n{SAMPLES[0]['answer']}"}])
    assert len(page) < 6000
    assert "<0><1>" in page
    assert SAMPLES[0]["answer"] in page
    assert " characters ...]" in page
