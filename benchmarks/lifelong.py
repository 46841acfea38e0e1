"""Does POGEMA's own simulator count the goals that lifelong episodes count here?

PIBT plays boards of 16x16 with 12 agents and 10 to 40 % of holes, 1,000 steps
each, with lists of goals in which some coincide. POGEMA 1.4.0 with
`on_target="restart"` and `collision_system="soft"` gets the same boards, lists
and joint actions. It must have every agent on the same cell after each step,
and as many goals reached by each. It is installed with pip into a virtual
environment of its own below --peers. Rewards and speed are measured by
`env_speed.py`, throughput by `python -m jaxlake.score --lifelong`.

examples:
  python benchmarks/lifelong.py
      10 boards, which are 10,000 joint actions
  python benchmarks/lifelong.py --quick
      one board, and only if POGEMA is installed already
"""

import jax
import jax.numpy as jnp
import numpy as np
from env_speed import POGEMA
from side_by_side import connect, interpreter, read_options, write_rows

from jaxlake import Lake, LakeConfig, Params, distance_fields, distance_tables, generate, lifelong, pibt, rewards
from jaxlake.state import LifelongState
from jaxlake.types import Instance, LifelongInstance

STEPS, TASKS = 1000, 30
TO_POGEMA = np.array([1, 2, 3, 4, 0])  # up, down, left, right, stay: its numbers by ours
LISTED = Lake(observe=lambda state: (), reward=rewards.reached, goals="listed")


def main() -> None:
    options = read_options(__doc__, quick="one board, which is 1,000 joint actions", peers=True)
    python = interpreter(options.peers / "pogema_random", POGEMA, install=not options.quick)
    rng, rows = np.random.default_rng(0), []
    for number in range(1 if options.quick else 10):
        config = LakeConfig.uniform(["16x12"], hole=(number % 4 + 1) / 10, wait=0.0)
        board = generate(config, jax.random.key(number), 1, exact=False).instances[0]
        tasks = random_tasks(board, rng)
        actions, positions, reached = jax.device_get(played(lifelong.board(board, tasks), jax.random.key(number)))
        ours = reached.sum() / STEPS
        row = {"name": f"board {number}", "ours": ours, "peer": None, "ratio": None, "target": None, "met": None}
        with connect("pogema_lifelong.py", python=python) as process:
            theirs = process and process.ask(
                rows=["".join(".#"[hole] for hole in row) for row in np.reshape(board.holes, (16, 16)).astype(int)],
                starts=cells(board.starts),
                goals=[cells(row) for row in tasks],
                actions=TO_POGEMA[actions].tolist(),
            )
        verdict = ""
        if theirs:
            same = theirs["cells"] == cells(positions) and theirs["reached"] == reached.tolist()
            peer = sum(theirs["reached"]) / STEPS
            row |= {"peer": peer, "ratio": ours / peer, "met": same}
            verdict = ": as in POGEMA" if same else ": POGEMA differs"
        print(f"board {number}: {len(actions):,} joint actions, {ours:.3f} goals a step{verdict}", flush=True)
        rows.append(row)
    write_rows(rows, options.json)


def random_tasks(board: Instance, rng: np.random.Generator) -> np.ndarray:
    """Return the goals of each agent ``[agents, tasks]``, cells that it can reach, the first of them the board's."""
    reach = np.asarray(distance_fields(board)) >= 0
    tasks = np.array([rng.choice(np.flatnonzero(row), TASKS) for row in reach], np.int32)
    tasks[:, 0] = board.goals
    return tasks


def cells(numbers: np.ndarray) -> list:
    return np.stack(np.divmod(numbers, 16), axis=-1).tolist()


@jax.jit
def played(board: LifelongInstance, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return PIBT's actions and the positions after each step, ``[steps, agents]``, and the goals reached."""
    tables = distance_tables(board)

    def step(carry, time):
        state, priorities = carry
        ties = jax.random.randint(jax.random.fold_in(key, time), (board.max_agents, 5), 0, 256)
        actions = pibt.step(board, state.positions, priorities, tables[0][state.instance.goals], ties)
        state, seen = LISTED.step(state, actions)
        return (state, pibt.next_priorities(priorities, seen.info.arrived)), (actions, state.positions)

    state, _ = LISTED.reset(board, Params(max_steps=STEPS))
    (state, _), (actions, positions) = jax.lax.scan(step, (state, jnp.arange(board.max_agents)), jnp.arange(STEPS))
    assert isinstance(state, LifelongState)
    return actions, positions, state.goals_reached


if __name__ == "__main__":
    main()
