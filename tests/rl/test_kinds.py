"""A run on boards of several kinds, validated on another than it designs."""

import json
from pathlib import Path

import pytest
import yaml
from shapes import SMALL_JSON

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from rl.train import main

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("quick_compilation")]

DESIGNED, TARGETS = ["3", "rooms5", "corridor5"], ["rooms5x3", "corridor5"]
MICRO = """
mesh: {{fsdp: 1}}
lake: {{kinds: [corridor5, 3, rooms5]}}
rounds: {{count: 2, instances: 16}}
validation: {{kinds: [corridor5, rooms5x3], instances: 12, samples: 2}}
engineer: {{template: null, context: V6+R, max_prompt_tokens: 2048, max_thinking_tokens: 4, max_answer_tokens: 192}}
student:
  model: {{shape: {folder}/shape.json}}
  text: {{max_prompt_tokens: 64, max_new_tokens: 64}}
  sampler: {{rows: 32}}
  warm_start: {{steps: 4, instances: 48, batch: 16, engineer_first: 0, engineer_every: 2, engineer_batch: 2,
               warmup_steps: 1,
               kinds: [3, rooms5, rooms5x3], max_context_tokens: 1280, max_answer_tokens: 192}}
  learn: {{prompts: 8, samples: 4, micro_batch: 8, learning_rate: 0.01}}
  reward: {{free_tokens: 12, limit_tokens: 64}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "shape.json").write_text(json.dumps(SMALL_JSON))
    (folder / "micro.yaml").write_text(MICRO.format(folder=folder))
    return folder


def go(folder: Path, run: str) -> int:
    return main(["--config", str(folder / "micro.yaml"), "--run", str(folder / run)])


@pytest.fixture(scope="module")
def run(folder, quick_compilation) -> Path:
    """A run that nobody disturbed."""
    assert go(folder, "whole") == 0
    return folder / "whole"


def evidence(run: Path, stage: str) -> Evidence:
    return Evidence.from_json(json.loads((run / stage / "evidence.json").read_text()))


def test_a_run_is_validated_on_its_targets_and_trained_on_what_is_designed(run):
    for k in range(2):
        lake = LakeConfig.from_dict(json.loads((run / f"rounds/{k}/config.json").read_text()))
        assert list(map(str, lake.kinds)) == DESIGNED
        found = evidence(run, f"rounds/{k}")
        for rows in (found.by_kind, found.environment):
            assert [str(row.kind) for row in rows] == TARGETS
        with_data = {str(kind) for kind, share in zip(lake.kinds, lake.data, strict=True) if share > 1 / 16}
        assert with_data <= {str(row.kind) for row in found.training.by_kind} <= {*DESIGNED}
        assert [str(row.kind) for row in found.training.environment] == DESIGNED
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    named = {name.partition("/")[2] for row in rows for name in row if name.startswith("valid/")}
    assert named == {"size_3", "kind_rooms5", "kind_corridor5"}
    assert yaml.safe_load((run / "config.yaml").read_text())["lake"]["kinds"] == [3, "rooms5", "corridor5"]


def test_the_engineer_reads_what_is_designed_and_what_is_validated(run):
    context = (run / "rounds/1/context.md").read_text()
    assert "To be designed: 3 rooms5 corridor5. Validated, what the policy is judged by: rooms5x3 corridor5." in context
    assert "\ncorridor: one lane" in context and "\nmaze: " not in context
    proposal = json.loads((run / "rounds/1/proposal.json").read_text())
    written = list(proposal["parsed"])
    assert written and written == [kind for kind in DESIGNED if kind in written]
    designed = LakeConfig.from_dict(proposal["projected"])
    left_out = [share for kind, share in zip(designed.kinds, designed.data, strict=True) if str(kind) not in written]
    assert list(map(str, designed.kinds)) == DESIGNED and not any(left_out)
