"""In a process forked from one in which JAX had run, all that would run JAX says so instead of hanging."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import multiprocessing
import jax
import numpy as np
import jaxlake
from jaxlake.adapters import text
from jaxlake.generate import pool

boards = jaxlake.stack([jaxlake.from_text("a.A\\n...\\n...")])
plans = jaxlake.parse_batch(["0:(0,0)(0,1)(0,2)"], max_size=3, max_agents=1, max_steps=4)
[(_, level)] = text.tasks(boards, np.array([2]))
bank = jaxlake.LevelBank.build(boards)
config, key = jaxlake.LakeConfig.uniform((3,), 0.2, 0.0), jax.random.key(0)
entries = {
    "tasks": lambda: text.tasks(boards, np.array([2])),
    "verify": lambda: jaxlake.verify(boards, plans, np.int32(2)),
    "solve": lambda: jaxlake.solve(boards),
    "without_waiting": lambda: jaxlake.without_waiting(boards, None),
    "needs_wait": lambda: jaxlake.needs_wait(boards, None),
    "generate": lambda: jaxlake.generate(config, key, 4),
    "pool.draw": lambda: pool.draw(config, key, 4),
    "LakeConfig.random": lambda: jaxlake.LakeConfig.random((3, 4), key),
    "LevelBank.build": lambda: jaxlake.LevelBank.build(boards),
    "LevelBank.draw": lambda: bank.draw(key),
    "AutoReset.reset": lambda: jaxlake.AutoReset(jaxlake.Lake()).reset(bank, key),
    "Lake.reset": lambda: jaxlake.Lake().reset(boards[0]),
    "Lake.step": lambda: jaxlake.Lake().step(None, None),
    "joint_values": lambda: jaxlake.joint_values(boards, 1, "sum_of_loss"),
    "completion_costs": lambda: jaxlake.completion_costs(boards, plans),
    "judge": lambda: text.judge(["0:(0,0)"], [level]),
    "path_reward": lambda: text.path_reward(["0:(0,0)"], [level]),
    "compute_score": lambda: text.compute_score("jaxlake", "0:(0,0)", level),
}


def tried(name):
    try:
        entries[name]()
    except RuntimeError as error:
        return f"{name}: {error}"
    return f"{name}: done"


with multiprocessing.get_context("fork").Pool(1) as workers:
    print(*workers.map_async(tried, entries).get(timeout=60), sep="\\n")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_puts_boards_into_words_and_says_why_it_can_do_no_more():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    first, *others = done.stdout.splitlines()
    assert first == "tasks: done" and len(others) == 17
    assert [line for line in others if "this process was forked from one in which JAX had run" not in line] == []
