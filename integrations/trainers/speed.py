"""Measures tasks handed out a second, groups of eight counted a second, and a state saved and loaded."""

import json
import time

from jaxlake_trainers import Boards, EngineerCurriculum

from engineer import RULES, RuleEngineer
from jaxlake import LakeConfig

ROUNDS, TASKS, SAMPLES = 5, 256, 8
KINDS = (3, 4, 5, 6, "6x3", "rooms6")


def fresh() -> EngineerCurriculum:
    start = LakeConfig.uniform(KINDS, hole=0.2, wait=0.3)
    return EngineerCurriculum(RuleEngineer("learnability", RULES["learnability"]), Boards(start), tasks_per_round=TASKS)


curriculum, handed, counted = fresh(), 0.0, 0.0
for number in range(ROUNDS + 1):
    begin = time.perf_counter()
    tasks, answers, rewards = curriculum.sample(TASKS), [], []
    middle = time.perf_counter()
    for place, task in enumerate(tasks):
        best = task.content.answer
        answers.append([best if place % SAMPLES > sample else "I see no way." for sample in range(SAMPLES)])
        rewards.append([float(answer == best) for answer in answers[-1]])
    curriculum.observe(tasks, rewards, answers=answers)
    if number:  # the first one compiles
        handed += middle - begin
        counted += time.perf_counter() - middle
print(f"{ROUNDS} rounds of {TASKS} tasks of the kinds {', '.join(map(str, KINDS))}, drawn and solved:")
print(f"{ROUNDS * TASKS / handed:,.0f} tasks a second, {handed / ROUNDS:.2f} s a round")
print(f"{ROUNDS * TASKS / counted:,.0f} groups of {SAMPLES} answers a second")

begin = time.perf_counter()
state = json.dumps(curriculum.state_dict())
middle = time.perf_counter()
resumed = fresh()
loading = time.perf_counter()
resumed.load_state_dict(json.loads(state))
end = time.perf_counter()
same = resumed.sample(2 * TASKS) == curriculum.sample(2 * TASKS)
saved, loaded = 1e3 * (middle - begin), end - loading
print(f"a state of {ROUNDS + 1} rounds: {len(state):,} bytes, saved in {saved:.0f} ms, loaded in {loaded:.2f} s")
print(f"the next {2 * TASKS} tasks are the same: {same}")
