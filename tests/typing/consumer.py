"""A program of somebody else's, typed strictly: each claim fails if jaxlake, engineer or rl lose their types.

Not run; ``mypy --strict`` reads it beside the installed package (see .ci/run). A type that got lost is Any, and Any is
not what these claims say; a mistake that is no longer found leaves an ignore without use, which is an error too.
"""

from collections.abc import Sequence
from typing import assert_type

import jax
import numpy as np

import jaxlake
from engineer import Engineer, Evidence, PastRound, Proposal, RuleEngineer, evidence_from_verdicts
from jaxlake import Instance, Kind, Lake, LakeConfig, LevelBank, Objective, Solution, State, TimeStep, Verdict
from jaxlake.adapters.gymnasium import VectorLake
from jaxlake.record import Array


def boards() -> Verdict:
    config = LakeConfig.uniform(kinds=("4x3", "corridor6"), hole=0.3, wait=0.5)
    assert_type(config.kinds, tuple[Kind, ...])
    lake = jaxlake.generate(config, jax.random.key(0), count=8)
    assert_type(lake.instances, Instance)
    assert_type(lake.instances.starts, Array)
    assert_type(jaxlake.solve(lake.instances, Objective.MAKESPAN), Solution)
    assert_type(jaxlake.to_text(lake.instances), str)
    verdict = jaxlake.verify(lake.instances, lake.solutions.plan, lake.solutions.cost)
    assert_type(verdict, Verdict)
    assert_type(verdict.valid, Array)
    assert_type(verdict.replace(valid=verdict.optimal), Verdict)
    return verdict


def episode(instance: Instance) -> State:
    lake = Lake()
    state, step = lake.reset(instance)
    assert_type(state, State)
    assert_type(step, TimeStep)
    state, step = lake.step(state, np.full(instance.max_agents, jaxlake.Action.WAIT))
    assert_type(step.info.solved, Array)
    assert_type(LevelBank.build(instance).instances, Instance)
    return state.replace(time=state.time + 1)


def spread(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    assert_type([row.valid for row in evidence.by_kind], list[int])
    return LakeConfig.uniform(history[-1].config.kinds, hole=0.2, wait=0.5)


class Same:
    """An engineer of one's own."""

    def propose(self, evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> Proposal:
        return RuleEngineer("spread", spread).propose(evidence, history, key)


def engineers() -> Sequence[Engineer]:
    evidence = evidence_from_verdicts(
        kinds=np.array([4]),
        checks=np.ones((1, 8), bool),
        optimal=np.array([True]),
        tokens=np.array([9]),
        truncated=np.array([False]),
    )
    assert_type(Same().propose(evidence, [], jax.random.key(0)).projected, LakeConfig)
    return [Same(), RuleEngineer("spread", spread)]


def mistakes(instance: Instance, key: jax.Array) -> None:
    Instance(size=instance.size)  # type: ignore[call-arg]
    LakeConfig.uniform(kinds=(4, 6), hole="0.3", wait=0.5)  # type: ignore[arg-type]
    print(instance.size.side)  # type: ignore[union-attr]
    instance.size = np.array(3)  # type: ignore[misc]
    VectorLake(LevelBank.build(instance), num_envs="2")  # type: ignore[arg-type]
    RuleEngineer("spread", lambda evidence: None)  # type: ignore[arg-type, misc]
