"""Lets an engineer design the difficulty of reasoning-gym's sums, for a stub policy that errs in each digit it adds.

The stub is no model: it computes the sum, errs once a digit with a probability of its own, and errs less after each
group with right and wrong answers. Its answers earn reasoning-gym's own scores.
"""

import math
import random
import sys

import reasoning_gym
from jaxlake_trainers import EngineerCurriculum, TaskSamplers

from engineer import RULES, RuleEngineer

RULE = sys.argv[1] if len(sys.argv) > 1 else "learnability"
TASKS, SAMPLES, KINDS = 64, 8, {f"{terms}-terms": terms for terms in (2, 4, 8, 16, 32)}


def sampler(terms):
    def draw(count, seed):
        sums = reasoning_gym.create_dataset("chain_sum", size=count, seed=seed, min_terms=terms, max_terms=terms)
        return [(sums, entry) for entry in sums]

    return draw


rng, error = random.Random(0), 0.2
curriculum = EngineerCurriculum(
    RuleEngineer(RULE, RULES[RULE]), TaskSamplers({name: sampler(KINDS[name]) for name in KINDS}), tasks_per_round=TASKS
)
for number in range(6):
    tasks, rewards = curriculum.sample(TASKS), []
    for task in tasks:
        sums, entry = task.content
        digits = sum(character.isdigit() for character in entry["metadata"]["expression"])
        wrong = [rng.random() > (1 - error) ** digits for _ in range(SAMPLES)]
        answers = [str(int(entry["answer"]) + is_wrong) for is_wrong in wrong]
        rewards.append([sums.score_answer(answer, entry) for answer in answers])
        error *= 1 - 0.02 * math.sqrt(sum(wrong) * (SAMPLES - sum(wrong))) / SAMPLES
    curriculum.observe(tasks, rewards)
    shares = (sum(task.kind == name for task in tasks) / TASKS for name in KINDS)
    row = "   ".join(f"{name}: {share:3.0%}" for name, share in zip(KINDS, shares, strict=True))
    print(f"round {number}   {row}   solved {sum(map(sum, rewards)) / TASKS / SAMPLES:3.0%}   error {error:.3f}")
