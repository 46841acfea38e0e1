"""The supervised steps of a run: its warm start, from its last update, and the rehearsals of its rounds."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optax
from flax import nnx

from engineer.engineers.base import generator
from rl.config import Config
from rl.learn.grpo.optimizer import learning_rate, make_optimizer, updates_made
from rl.learn.sft.examples import engineer_examples
from rl.learn.sft.step import update
from rl.model import lora, sharding
from rl.model.logprobs import Sequences, take
from rl.model.policy import Policy
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.run.tracking import Stopwatch

NoteUpdate = Callable[[dict[str, float]], None]
"""``(metrics)``: counts the updates in a row that were skipped, see `Recorder.note_update`."""


def warm_start(policy: Policy, config: Config, state: TrainState, recorder: Recorder, plans: Sequences | None) -> None:
    """Run the supervised steps that are still to be done, on batches of fresh engineer examples and of `plans`.

    The engineer comes first: a model that has learned to read learns plans as well as another, whereas examples among
    plans from the beginning took as long to learn, with no more of either. Every process draws the same batch and takes
    its own part of it.

    Args:
      plans: None where every step is the engineer's.

    Raises:
      RunError: after `MAX_SKIPPED` updates in a row that are not finite.
      Interrupted: where a signal asks for it, with everything saved.
    """
    settings, progress = config.warm_start, state.progress
    optimizer, rate = make_optimizer(settings, settings.steps), learning_rate(settings, settings.steps)
    recorder.display.stage("warm start", settings.steps, done=progress.step)

    def draw(step: int) -> tuple[str, Sequences, np.ndarray]:
        rng = generator(make_key(config.seed, Purpose.WARM_START_STEP, step=step))
        first, every = step < settings.engineer_first, settings.engineer_every
        if plans is None or first or (every and step % every == 0):
            return "engineer", engineer_examples(policy.tokenizer, config, rng), np.arange(settings.engineer_batch)
        return "plan", plans, rng.choice(len(plans.tokens), settings.batch, replace=False)

    with ThreadPoolExecutor(1) as beside:  # eight examples take 20 ms, a fifth of their update
        drawn = beside.submit(draw, progress.step)
        for step in range(progress.step, settings.steps):
            watch = Stopwatch()
            kind, examples, rows = drawn.result()
            drawn = beside.submit(draw, step + 1)
            watch.lap("host")
            now = float(rate(updates_made(state.optimizer_state)))
            metrics = teach(policy, state, optimizer, examples, rows, recorder.note_update) | {"learning_rate": now}
            watch.lap("update")
            loss = metrics.pop("loss")
            row = {"phase": "warm_start", f"{kind}_loss": loss} | metrics
            recorder.step_done(row, watch.seconds, f"{kind} loss {loss:.3f}", config.checkpoint.every_steps)


def rehearse(
    policy: Policy, config: Config, state: TrainState, optimizer: optax.GradientTransformation, note_update: NoteUpdate
) -> float:
    """Make one update of the rounds on fresh engineer examples; the same on every process.

    Returns:
      The examples' loss before it, in nats a token.

    Raises:
      RunError: see `Recorder.note_update`.
    """
    progress, rows = state.progress, np.arange(config.warm_start.engineer_batch)
    rng = generator(make_key(config.seed, Purpose.REHEARSAL, progress.round, progress.step))
    examples = engineer_examples(policy.tokenizer, config, rng)
    return teach(policy, state, optimizer, examples, rows, note_update)["loss"]


def teach(
    policy: Policy,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    examples: Sequences,
    rows: np.ndarray,
    note_update: NoteUpdate,
) -> dict[str, float]:
    """Make an update on these rows of the examples, each process on its part; see `rl.learn.sft.step.update`."""
    trained, frozen = lora.split(state.parameters)
    count = sharding.rows_for(len(rows), policy.mesh)
    mine = slice(jax.process_index() * count, (jax.process_index() + 1) * count)
    batch = take(examples, rows[mine], count)
    trained, state.optimizer_state, scalars = update(
        policy.graph,
        optimizer,
        trained,
        frozen,
        state.optimizer_state,
        sharding.shard_batch(batch, policy.mesh),
        mesh=policy.mesh,
    )
    state.parameters = nnx.merge_state(trained, frozen)
    metrics = {name: float(value) for name, value in scalars.items()}
    note_update(metrics)
    return metrics
