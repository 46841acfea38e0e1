"""Sample answers of a validation as a report shows them."""

import pytest
from runs import SAMPLES

from engineer.evidence import CHECKS
from rl.run.samples import lost_parts


@pytest.mark.parametrize(
    ("lost_at", "shown"),
    [
        (11, "0:(0,0)»(1,0)«\n1:(2,2)"),
        (12, "0:(0,0)(1,0)»↵«\n1:(2,2)"),  # the path ends too early
        (20, "0:(0,0)(1,0)\n1:(2,2)»«"),  # the answer does
    ],
)
def test_a_failed_answer_shows_what_loses_the_last_valid_plan(lost_at, shown):
    sample = SAMPLES[0] | {"answer": "0:(0,0)(1,0)\n1:(2,2)", "lost_at": lost_at, "optimal": False}
    before, lost, after = lost_parts(sample | {"checks": {**dict.fromkeys(CHECKS, True), "hole_free": False}})
    assert f"{before}»{lost}«{after}" == shown
    assert lost_parts(sample) is None  # a valid one has lost nothing
