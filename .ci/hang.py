"""Do fresh processes that train the lab's round come back? JAX 0.10.2 lost six of forty on an idle CPU.

python .ci/hang.py [PROCESSES] [LANES]      20 and 4; one after another, with nothing beside them
"""

import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]
SECONDS = 120
"""After which a process that needs ten is lost."""


def train(inputs: Path) -> None:
    """Train one round in as many lanes as the file has."""
    from rl.students.turns import network
    from rl.students.turns.rollout import Boards
    from rl.students.turns.student import make_trainer

    actor, settings, levels, optima = pickle.loads(inputs.read_bytes())
    keys, trainer = jax.random.split(jax.random.key(0), len(optima)), make_trainer(actor, settings, 1)
    learner = network.begin(actor, trainer.optimizer, keys)
    trainer.train(None, None, learner, Boards.of_lanes(levels, optima, settings.reward), keys)


def main(processes: int = 20, lanes: int = 4) -> int:
    """Start the processes; return 1 if one did not come back."""
    with tempfile.TemporaryDirectory() as scratch:
        from lab_speed import make_student

        from jaxlake.config import LakeConfig
        from rl.students.turns.actor import lanes as side_by_side

        student, inputs = make_student(Path(scratch)), Path(scratch) / "inputs"
        boards = student.build(LakeConfig.random(student.config.lake.kinds, jax.random.key(3)))
        levels = jax.tree.map(np.asarray, side_by_side([boards.instances] * lanes))
        optima = np.stack([np.asarray(boards.solutions.cost)] * lanes)
        inputs.write_bytes(pickle.dumps((student.actor, student.config.student, levels, optima)))
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": f"{scratch}/cache",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
            "TF_CPP_MIN_LOG_LEVEL": "3",  # JAX 0.9 fears for every program of the cache that the machine is another
        }
        start, lost = time.monotonic(), 0
        for _ in range(processes):
            try:
                subprocess.run([sys.executable, __file__, inputs], env=environment, check=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                lost += 1
    seconds = time.monotonic() - start
    print(f"JAX {jax.__version__}: {lost} of {processes} processes with {lanes} lanes hung, {seconds:.0f} s")
    return int(lost > 0)


if __name__ == "__main__":
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_file():
        train(Path(sys.argv[1]))
    else:
        sys.exit(main(*map(int, sys.argv[1:])))
