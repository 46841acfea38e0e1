"""Plays a trainer whose policy learns where it is unsure, and shows what a rule designs from its answers."""

import random
import sys

from jaxlake_trainers import Boards, EngineerCurriculum

from engineer import RULES, RuleEngineer
from jaxlake import LakeConfig

RULE = sys.argv[1] if len(sys.argv) > 1 else "learnability"
TASKS, SAMPLES = 64, 8

start = LakeConfig.uniform((3, 4, 5, "rooms5"), hole=0.2, wait=0.3)
curriculum = EngineerCurriculum(RuleEngineer(RULE, RULES[RULE]), Boards(start), tasks_per_round=TASKS)
rng, skill = random.Random(0), {"3": 0.6, "4": 0.3, "5": 0.1, "rooms5": 0.0}

print(f"{RULE}: each kind's share of the tasks, and of its answers that are valid")
for number in range(6):
    taken, valid = dict.fromkeys(skill, 0), dict.fromkeys(skill, 0)
    for task in curriculum.sample(TASKS):
        right = [rng.random() < skill[task.kind] for _ in range(SAMPLES)]
        answers = [task.content.answer if one else "I see no way." for one in right]
        curriculum.observe([task], [list(map(float, right))], answers=[answers])
        skill[task.kind] += 0.05 * skill[task.kind] * (1 - skill[task.kind]) + 0.002
        taken[task.kind] += 1
        valid[task.kind] += sum(right)
    row = (f"{kind}: {taken[kind] / TASKS:4.0%} {valid[kind] / (taken[kind] * SAMPLES):4.0%}" for kind in skill)
    print(f"round {number}   {'   '.join(row)}", flush=True)
