"""Every value of a run knows where it comes from: its file's comment, its section's, or nobody who says so."""

import re
from pathlib import Path

import pytest

from rl import config as config_
from rl.provenance import comments, provenance

CONFIGS = Path(__file__).parents[2] / "configs"
TINY = CONFIGS / "tiny.yaml"


def of(path, *overrides):
    return provenance(path, config_.load(path, overrides), TINY)


def test_a_comment_holds_for_its_value_and_a_sections_for_all_in_it():
    text = """\
seed: 3  # ours
rounds:  # paper: section 4
  count: 3
  epochs: 1  # inferred: from a figure
engineer:
  gate:   # ours: off
    boards: 8
  kind: base
grpo: {prompts: 24, samples: 8}  # paper
lake:
  sizes:  # paper: all
    - 3
    - 4
  num_agents: 2  # my own
model:
  path: "a # ours"
"""
    assert comments(text) == {
        "seed": "ours",
        "rounds.count": "paper: section 4",
        "rounds.epochs": "inferred: from a figure",
        "engineer.gate.boards": "ours: off",
        "grpo.prompts": "paper",
        "grpo.samples": "paper",
        "lake.sizes": "paper: all",
    }


@pytest.mark.parametrize("path", sorted(path for path in CONFIGS.glob("*.yaml") if "compare" not in path.stem))
def test_every_value_of_the_shipped_configurations_is_accounted_for(path):
    found = of(path)
    assert set(found) == set(config_.keys())
    assert all(re.match("(paper|inferred|ours)(: |$)", said) for said in found.values()), found


def test_an_override_is_a_change_unless_it_says_what_the_file_says():
    found = of(TINY, "rounds.count=4", "grpo.prompts=24", "lake.sizes=[3, 4]")
    assert found["rounds.count"] == "changed"
    assert found["lake.sizes"] == "changed"
    assert found["grpo.prompts"] == of(TINY)["grpo.prompts"]
    assert found["lake.num_agents"] == "paper: training and validation"


def test_a_users_file_accounts_for_what_it_comments_and_the_shipped_one_for_what_it_leaves_out(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("rounds:\n  count: 3\n  epochs: 2  # paper\n")
    found = of(path)
    assert found["rounds.count"] == "changed"
    assert found["rounds.epochs"] == "paper"
    assert found["reward.kind"] == "paper"


def test_an_empty_file_is_the_shipped_defaults(tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert of(path) == of(TINY)
