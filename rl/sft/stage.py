"""The warm start: the supervised steps of a run, from wherever it stands."""

import jax
import numpy as np
import optax
from flax import nnx

from rl.grpo.optimizer import learning_rate, updates_made
from rl.policy import Policy
from rl.qwen3 import lora, sharding
from rl.qwen3.logprobs import Sequences, take
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.run.tracking import Stopwatch
from rl.sft.examples import engineer_examples
from rl.sft.step import update


def warm_start(
    policy: Policy, state: TrainState, recorder: Recorder, optimizer: optax.GradientTransformation, plans: Sequences
) -> None:
    """Runs the supervised steps that are still to be done, on batches of `plans` and of fresh engineer examples.

    Every process draws the same batch and takes its own part of it.

    Raises:
      RunError: after `grpo.max_skipped` updates in a row that are not finite.
      Interrupted: where a signal asks for it, with everything saved.
    """
    config, graph, mesh = policy.config, policy.graph, policy.mesh
    settings, progress = config.warm_start, state.progress
    trained, frozen = lora.split(state.parameters)
    rate = learning_rate(settings, settings.steps)
    recorder.display.stage("warm start", settings.steps, done=progress.step)
    for step in range(progress.step, settings.steps):
        watch = Stopwatch()
        key = make_key(config.seed, Purpose.WARM_START_STEP, step=step)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        if step % settings.engineer_every == 0:
            kind, examples = "engineer", engineer_examples(policy, rng)
            rows = np.arange(settings.engineer_batch)
        else:
            kind, examples = "plan", plans
            rows = rng.choice(len(plans.tokens), settings.batch, replace=False)
        count = sharding.rows_for(len(rows), mesh)
        mine = rows[jax.process_index() * count :][:count]
        batch = take(examples, mine, count)
        watch.lap("host")
        now = float(rate(updates_made(state.optimizer_state)))
        trained, state.optimizer_state, scalars = update(
            graph, optimizer, trained, frozen, state.optimizer_state, sharding.shard_batch(batch, mesh), mesh=mesh
        )
        state.parameters = nnx.merge_state(trained, frozen)
        metrics = {name: float(value) for name, value in scalars.items()} | {"learning_rate": now}
        watch.lap("update")
        recorder.note_update(state, metrics, batch, config.grpo.max_skipped)
        loss = metrics.pop("loss")
        row = {"phase": "warm_start", f"{kind}_loss": loss} | metrics
        recorder.step_done(state, row, watch.seconds, f"{kind} loss {loss:.3f}", config.checkpoint.every_steps)
