"""What a leg's policy answers to the held-out boards, as columns that need nothing of this project to be read."""

import functools
import json
from collections.abc import Sequence

import jax
import numpy as np

from jaxlake.benchmark import FAILURES, SETS, Benchmark, load, score, spread, take
from jaxlake.files import write_whole
from jaxlake.levels import pad
from jaxlake.types import MAX_AGENTS, MAX_SIZE
from rl.comparison.config import EvaluationSection
from rl.comparison.legs import EVALUATION, Leg
from rl.evaluation import Answer, PolicySource, Record
from rl.run.tracking import Display
from rl.sampler import SamplingParams


def evaluate(leg: Leg, settings: EvaluationSection, display: Display) -> None:
    """Has the policy in the leg's ``final/`` answer, and writes the leg's ``evaluation.json``.

    All answers are kept in ``evaluations/`` of the leg; what is there is not asked for again.
    """
    suite = held_out(leg.config.lake.sizes, settings.per_slice)
    greedy = _answers(leg, suite, settings, SamplingParams(temperature=0.0), 1, display)
    found = score(_texts(suite, greedy, 1), suite, objective=leg.config.lake.objective)
    first = [None if found.valid[i] else FAILURES[found.failures[i].argmax()] for i in range(len(suite))]
    shares = None
    if settings.samples:
        validation = leg.config.validation
        sampling = SamplingParams(validation.temperature, validation.top_k, validation.top_p)
        sampled = _answers(leg, suite, settings, sampling, settings.samples, display)
        shares = score(_texts(suite, sampled, settings.samples), suite).valid.tolist()
    columns = {
        "boards": {
            "id": list(suite.ids),
            "agents": suite.instances.num_agents.tolist(),
            "size": suite.instances.size.tolist(),
            "wait_subset": suite.wait_subset.tolist(),
            "needs_wait": suite.needs_wait.tolist(),
            "hole_ratio": suite.hole_ratio.tolist(),
        },
        "answers": {
            "valid": found.valid.astype(int).tolist(),
            "optimal": found.optimal.astype(int).tolist(),
            "first_failure": first,
            "tokens": [greedy[identifier, 0].tokens for identifier in suite.ids],
            "truncated": [greedy[identifier, 0].truncated for identifier in suite.ids],
            "sampled_valid": shares,
        },
    }
    write_whole(leg.path / EVALUATION, (json.dumps(columns) + "\n").encode())


@functools.cache
def held_out(sizes: tuple[int, ...], per_slice: int | None) -> Benchmark:
    """The boards of these sizes of both fixed suites: 2 agents, and 3 to 5. No training boards are among them.

    (`jaxlake.generate` never makes one of them.)

    Args:
      per_slice: how many of each number of agents, size and wait subset, spread over the hole ratios; None: all.
    """
    suites = []
    for name in SETS:
        suite = load(name)
        order = spread(suite)
        order = order[np.isin(suite.instances.size[order], sizes)]
        instances = suite.instances
        cells = np.stack([instances.num_agents, instances.size, 100 * suite.wait_subset], axis=1)[order]
        cell = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
        rank = np.array([(cell[:i] == cell[i]).sum() for i in range(len(cell))], int)
        suites.append(take(suite, np.sort(order[rank < (per_slice or len(suite))])))
    instances = [pad(suite.instances, MAX_SIZE, MAX_AGENTS) for suite in suites]
    joined = {
        name: np.concatenate([getattr(suite, name) for suite in suites])
        for name in ("optimum", "lower_bound", "makespan", "needs_wait", "hole_ratio", "wait_subset")
    }
    return Benchmark(
        name="held out",
        ids=tuple(identifier for suite in suites for identifier in suite.ids),
        instances=jax.tree.map(lambda *x: np.concatenate(x), *instances),
        account={"sha256": [suite.account["sha256"] for suite in suites]},
        **joined,
    )


def _answers(
    leg: Leg, suite: Benchmark, settings: EvaluationSection, sampling: SamplingParams, samples: int, display: Display
) -> dict[tuple[str, int], Answer]:
    """All answers of the leg's policy, by id and sample."""
    text = leg.config.text.model_copy(update={"max_new_tokens": settings.max_new_tokens})
    lora = leg.config.model.lora.model_copy(update={"rank": 0})
    model = leg.config.model.model_copy(update={"path": str(leg.path / "final"), "shape": None, "lora": lora})
    config = leg.config.model_copy(update={"text": text, "model": model})
    source = PolicySource(config, suite, sampling, samples, lambda line: None)
    kind = "greedy" if sampling.temperature == 0 else "sampled"
    identity = {
        "sha256": suite.account["sha256"],
        "boards": len(suite),
        "samples": samples,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "seed": config.seed,
        "max_new_tokens": settings.max_new_tokens,
        **source.identity(),
    }
    with Record(leg.path / "evaluations" / f"held_out_{kind}", identity) as record:
        missing = np.array(
            [[(identifier, sample) not in record.answers for sample in range(samples)] for identifier in suite.ids]
        )
        display.stage(f"held-out boards, {kind}", missing.size, done=int((~missing).sum()))

        def write(answers: Sequence[Answer]) -> None:
            record.add(answers)
            display.advance(steps=len(answers))

        source.answer(suite, missing, write, display.within)
        return dict(record.answers)


def _texts(suite: Benchmark, answers: dict[tuple[str, int], Answer], samples: int) -> dict[str, list[str]]:
    return {identifier: [answers[identifier, s].answer for s in range(samples)] for identifier in suite.ids}
