"""A run on boards of several kinds, validated on another than it designs."""

import json

import pytest
from shapes import SMALL_JSON

from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from rl.train import main

pytestmark = pytest.mark.heavy

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


def test_a_run_designs_and_trains_on_some_kinds_and_is_validated_on_its_targets(tmp_path):
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    (tmp_path / "micro.yaml").write_text(MICRO.format(folder=tmp_path))
    run = tmp_path / "run"
    assert main(["--config", str(tmp_path / "micro.yaml"), "--run", str(run)]) == 0
    for k in range(2):
        lake = LakeConfig.from_dict(json.loads((run / f"rounds/{k}/config.json").read_text()))
        assert list(map(str, lake.kinds)) == DESIGNED
        evidence = Evidence.from_json(json.loads((run / f"rounds/{k}/evidence.json").read_text()))
        for rows in (evidence.by_kind, evidence.environment):
            assert [str(row.kind) for row in rows] == TARGETS
        with_data = {str(kind) for kind, share in zip(lake.kinds, lake.data, strict=True) if share > 1 / 16}
        assert with_data <= {str(row.kind) for row in evidence.training.by_kind} <= {*DESIGNED}
        assert [str(row.kind) for row in evidence.training.environment] == DESIGNED
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = {name.partition("/")[2] for row in rows for name in row if name.startswith("valid/")}
    assert measured == {"size_3", "kind_rooms5", "kind_corridor5"}
    context = (run / "rounds/1/context.md").read_text()
    assert "To be designed: 3 rooms5 corridor5. Validated, what the policy is judged by: rooms5x3 corridor5." in context
    proposal = json.loads((run / "rounds/1/proposal.json").read_text())
    written, designed = list(proposal["parsed"]), LakeConfig.from_dict(proposal["projected"])
    assert written and written == [kind for kind in DESIGNED if kind in written]
    assert not any(x for kind, x in zip(designed.kinds, designed.data, strict=True) if str(kind) not in written)
