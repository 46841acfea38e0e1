"""A digest of what the environment, the solver, the generator and the verifier compute, part by part, as JSON.

Run as a program, so that a test can compare processes that differ in a setting of JAX.
"""

import functools
import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxlake as jl
from jaxlake import observations, rewards
from jaxlake.adapters import text as text_adapter
from jaxlake.generate.candidates import Shape, draw
from jaxlake.solve import action_values, joint_values

_SIZES = (3, 4, 5)


def digest(tree: Any) -> str:
    """The names, types, shapes and values of all leaves."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


@functools.cache
def config(num_agents: int) -> jl.LakeConfig:
    return jl.LakeConfig.random([jl.Kind("random", size, num_agents) for size in _SIZES], jax.random.key(7))


@functools.cache
def dataset(num_agents: int) -> jl.Dataset:
    return jl.generate(config(num_agents), jax.random.key(num_agents), 40, max_size=5, max_agents=3)


def generated(num_agents: int) -> Any:
    found = dataset(num_agents)
    return found.instances, found.solutions, found.needs_wait, str(found.report).encode()


def families() -> Any:
    kinds = [jl.Kind(family, 5) for family in jl.Family]
    return [draw(jax.random.key(5), 0, 128, Shape(kind, 0.3, 6, 3)) for kind in kinds]


def solved() -> Any:
    instances = dataset(2).instances
    shortest = jl.solve(instances, jl.Objective.MAKESPAN)
    return shortest, jl.needs_wait(instances, shortest, jl.Objective.MAKESPAN), jl.waits(shortest)


def verified() -> Any:
    found = dataset(2)
    plan = found.solutions.plan
    rng = np.random.default_rng(0)
    paths = np.where(rng.random(plan.paths.shape) < 0.02, rng.integers(-2, 26, plan.paths.shape), plan.paths)
    wrong = plan.replace(paths=paths.astype(np.int32), lengths=plan.lengths - (rng.random(plan.lengths.shape) < 0.1))
    verdicts = [
        jl.verify(found.instances, plans, found.solutions.cost, objective)
        for plans in (plan, wrong)
        for objective in jl.Objective
    ]
    return verdicts, [jl.first_failure(verdict.checks) for verdict in verdicts]


def drawn() -> Any:
    bank = jl.LevelBank.build(dataset(2).instances, with_distances=True)
    return jax.vmap(bank.draw)(jax.random.split(jax.random.key(3), 64))


def rollouts(mode: jl.AutoResetMode, lake: jl.Lake, slip: float | None) -> Any:
    bank = jl.LevelBank.build(dataset(2).instances, with_distances=True)
    auto = jl.AutoReset(lake, mode)
    keys = jax.random.split(jax.random.key(4), 8)
    start = jax.vmap(auto.reset, in_axes=(None, 0, None))(bank, keys, jl.Params(max_steps=9, slip=slip))

    def step(state, number):
        own = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)
        actions = jax.vmap(lambda key: jax.random.randint(key, (3,), 0, 5, jnp.int32))(own)
        return jax.vmap(auto.step, in_axes=(None, 0, 0, 0))(bank, state, actions, own)

    return start, jax.jit(lambda state: jax.lax.scan(step, state, jnp.arange(24, dtype=jnp.uint32)))(start[0])


def tables() -> Any:
    found = dataset(2)
    joint = joint_values(found.instances, 2)
    starts = jnp.asarray(found.instances.starts[:, :2])
    actions = jax.vmap(action_values)(joint, starts)
    return joint.values, actions


def texts() -> Any:
    found = dataset(2)
    rows = text_adapter.trl_rows(found.instances, found.solutions.cost, jl.PromptStyle.GRID, jl.AnswerFormat.MOVES)
    answers = [jl.answer(plan, 5, jl.AnswerFormat.MOVES) for plan in found.solutions.plan]
    levels = [row["level"] for row in rows]
    paid = text_adapter.path_reward(answers, levels), text_adapter.path_reward(answers[::-1], levels)
    return np.array(paid), json.dumps(rows).encode()


PARTS: dict[str, Callable[[], Any]] = {
    "LakeConfig.random": lambda: str(config(2)).encode(),
    "generate, two agents": lambda: generated(2),
    "boards of all families": families,
    "solve, needs_wait, waits": solved,
    "verify, first_failure": verified,
    "LevelBank.draw": drawn,
    "slips, same step, planes": lambda: rollouts(jl.AutoResetMode.SAME_STEP, jl.Lake(), 0.4),
    "slips, next step, falls, flat, shaped": lambda: rollouts(
        jl.AutoResetMode.NEXT_STEP,
        jl.Lake(holes=jl.HoleRule.FALL, observe=observations.flat, reward=rewards.shaped(0.1, 0.97)),
        jl.CLASSIC_SLIP,
    ),
    "joint values, sum of costs": tables,
    "text adapter": texts,
}
MORE: dict[str, Callable[[], Any]] = {
    "generate, three agents": lambda: generated(3),
    "no reset, conflicts end, window, cost": lambda: rollouts(
        jl.AutoResetMode.OFF,
        jl.Lake(conflicts=jl.ConflictRule.END, observe=observations.window(2), reward=rewards.cost),
        None,
    ),
}
"""What takes longer to compile: asked for by ``--all``."""


def found(part: Callable[[], Any]) -> str:
    tree = part()
    return hashlib.sha256(tree).hexdigest()[:16] if isinstance(tree, bytes) else digest(tree)


if __name__ == "__main__":
    parts = PARTS | MORE if "--all" in sys.argv else PARTS
    print(json.dumps({name: found(part) for name, part in parts.items()}))
