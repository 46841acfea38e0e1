"""The warm start: the supervised steps of a run, from wherever it stands."""

import jax
import numpy as np
import optax
from flax import nnx

from rl.grpo.optimizer import learning_rate, updates_made
from rl.qwen3 import lora, sharding
from rl.qwen3.logprobs import Sequences, take
from rl.run.keys import Purpose
from rl.run.run import Run
from rl.run.tracking import Stopwatch
from rl.sft.examples import engineer_examples
from rl.sft.step import update


def warm_start(run: Run, optimizer: optax.GradientTransformation, plans: Sequences) -> None:
    """Runs the supervised steps that are still to be done, on batches of `plans` and of fresh engineer examples.

    Every process draws the same batch and takes its own part of it.

    Raises:
      RunError: after `grpo.max_skipped` updates in a row that are not finite.
      Interrupted: where a signal asks for it, with everything saved.
    """
    settings, graph, mesh = run.config.warm_start, run.policy.graph, run.policy.mesh
    trained, frozen = lora.split(run.parameters)
    rate = learning_rate(settings, settings.steps)
    run.display.stage("warm start", settings.steps, done=run.progress.step)
    for step in range(run.progress.step, settings.steps):
        watch = Stopwatch()
        rng = np.random.default_rng(np.asarray(jax.random.key_data(run.key(Purpose.WARM_START_STEP, step=step))))
        if step % settings.engineer_every == 0:
            kind, examples = "engineer", engineer_examples(run.policy, rng)
            rows = np.arange(settings.engineer_batch)
        else:
            kind, examples = "plan", plans
            rows = rng.choice(len(plans.tokens), settings.batch, replace=False)
        count = sharding.rows_for(len(rows), mesh)
        mine = rows[jax.process_index() * count :][:count]
        batch = take(examples, mine, count)
        watch.lap("host")
        now = float(rate(updates_made(run.optimizer_state)))
        trained, run.optimizer_state, found = update(
            graph, optimizer, trained, frozen, run.optimizer_state, sharding.shard_batch(batch, mesh), mesh=mesh
        )
        run.parameters = nnx.merge_state(trained, frozen)
        metrics = {name: float(value) for name, value in found.items()} | {"learning_rate": now}
        watch.lap("update")
        run.note_update(metrics, batch)
        loss = metrics.pop("loss")
        row = {"phase": "warm_start", f"{kind}_loss": loss} | metrics
        run.step_done(row, watch.seconds, f"{kind} loss {loss:.3f}")
