"""Supervised learning on the solver's plans and on answers of an environment engineer: warm start and rehearsals."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from engineer import examples
from engineer.engineers.base import generator
from jaxlake import text
from jaxlake.types import Instance
from rl.config import Config, ConfigError, EngineerExamplesSection, WarmStartSection
from rl.learn.boards import Draw, mixed_boards
from rl.learn.context import read_context
from rl.learn.optimizer import learning_rate, make_optimizer, step, updates_made
from rl.learn.state import TrainState
from rl.model import lora, sharding
from rl.model.decoder import Decoder
from rl.model.logprobs import Sequences, answer_logprobs, join, masked_sum, take
from rl.model.policy import Policy
from rl.model.tokenizer import Tokenizer, check_fit
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.tracking import Display, Stopwatch

WAIT = 0.1
"""Share of the warm start's boards that need a wait."""


class ExampleTokens(NamedTuple):
    """The tokens of an engineer example."""

    context: list[int]
    """The message with the evidence, as the chat template has it."""
    response: list[int]
    """Thought, configuration and end, which are taught to follow it."""
    answer: list[int]
    """Configuration and end alone."""


def warm_start(policy: Policy, config: Config, state: TrainState, recorder: Recorder, plans: Sequences | None) -> None:
    """Run the supervised steps that are still to be done, on batches of fresh engineer examples and of `plans`.

    The engineer comes first: a model that has learned to read learns plans as well as another, whereas examples among
    plans from the beginning took as long to learn, with no more of either. Every process draws the same batch.

    Args:
      plans: the examples of `plan_examples`; None where every step is the engineer's.
    """
    settings, progress = config.student.warm_start, state.progress
    optimizer, rate = make_optimizer(settings, settings.steps), learning_rate(settings, settings.steps)
    recorder.display.stage("warm start", settings.steps, done=progress.step)

    def draw(step: int) -> tuple[str, Sequences, np.ndarray]:
        rng = generator(make_key(config.seed, Purpose.WARM_START_STEP, step=step))
        if plans is not None and isinstance(settings, WarmStartSection) and not settings.is_of_engineer(step):
            return "plan", plans, rng.choice(len(plans.tokens), settings.batch, replace=False)
        return "engineer", engineer_examples(policy.tokenizer, config, rng), np.arange(settings.engineer_batch)

    with ThreadPoolExecutor(1) as beside:  # eight examples take 20 ms, a fifth of their update
        drawn = beside.submit(draw, progress.step)
        for number in range(progress.step, settings.steps):
            watch = Stopwatch()
            kind, data, rows = drawn.result()
            drawn = beside.submit(draw, number + 1)
            watch.lap("host")
            now = float(rate(updates_made(state.optimizer_state)))
            metrics = teach(policy, state, optimizer, data, rows, recorder.note_update) | {"learning_rate": now}
            watch.lap("update")
            loss = metrics.pop("loss")
            row = {"phase": "warm_start", f"{kind}_loss": loss} | metrics
            recorder.step_done(row, watch.seconds, f"{kind} loss {loss:.3f}", config.checkpoint.every_steps)


def rehearse(
    policy: Policy, config: Config, state: TrainState, optimizer: optax.GradientTransformation, recorder: Recorder
) -> float:
    """Make one update of the rounds on fresh engineer examples; return their loss before it, in nats a token."""
    progress, rows = state.progress, np.arange(config.student.warm_start.engineer_batch)
    rng = generator(make_key(config.seed, Purpose.REHEARSAL, progress.round, progress.step))
    return teach(
        policy, state, optimizer, engineer_examples(policy.tokenizer, config, rng), rows, recorder.note_update
    )["loss"]


def teach(
    policy: Policy,
    state: TrainState,
    optimizer: optax.GradientTransformation,
    data: Sequences,
    rows: np.ndarray,
    note_update: Callable[[dict[str, float]], None],
) -> dict[str, float]:
    """Make an update on these rows of the examples, each process on its part; return the metrics of `update`.

    Args:
      note_update: called with the metrics, see `Recorder.note_update`.
    """
    trained, frozen = lora.split(state.parameters)
    count = sharding.rows_for(len(rows), policy.mesh)
    mine = slice(jax.process_index() * count, (jax.process_index() + 1) * count)
    batch = sharding.shard_batch(take(data, rows[mine], count), policy.mesh)
    trained, state.optimizer_state, scalars = update(
        policy.graph, optimizer, trained, frozen, state.optimizer_state, batch, mesh=policy.mesh
    )
    state.parameters = nnx.merge_state(trained, frozen)
    metrics = {name: float(value) for name, value in scalars.items()}
    note_update(metrics)
    return metrics


@functools.partial(
    jax.jit, static_argnames=("graph", "optimizer", "mesh"), donate_argnames=("trained", "optimizer_state")
)
def update(
    graph: nnx.GraphDef[Decoder],
    optimizer: optax.GradientTransformation,
    trained: nnx.State,
    frozen: nnx.State,
    optimizer_state: optax.OptState,
    data: Sequences,
    *,
    mesh: Mesh,
) -> tuple[nnx.State, optax.OptState, dict[str, jax.Array]]:
    """Take one step on the cross-entropy, a mean over the answer tokens; the old state is donated.

    What is trained and the optimizer's state stay as they were if the loss or the gradient is not finite. The metrics
    are the loss in nats, the gradient's norm before it is clipped, and 1 if the update was skipped.
    """

    def cross_entropy(trained: nnx.State) -> jax.Array:
        logprobs, _ = answer_logprobs(nnx.merge(graph, trained, frozen), data, 1.0)
        return -masked_sum(logprobs, data.mask) / data.mask.sum()

    loss, gradients = jax.value_and_grad(cross_entropy)(trained)
    gradients = sharding.constrain(gradients, mesh)
    *new, norm, finite = step(optimizer, trained, optimizer_state, gradients, loss)
    metrics = {"loss": loss, "gradient_norm": norm, "update_skipped": 1.0 - finite}
    return *sharding.constrain(tuple(new), mesh), metrics


def plan_examples(policy: Policy, config: Config, draw: Draw, exclude: Instance, display: Display) -> Sequences:
    """Return the warm start's boards, none of them in `exclude`, each with its optimal plan as the answer.

    A few boards have plans longer than any answer can be (1 of 20,000 in one seed of the tiny run); they are left out,
    and `display` says how many. ConfigError if they are more than one in a hundred.
    """
    settings, tokenizer, room = config.writer.warm_start, policy.tokenizer, config.writer.text.max_new_tokens
    key, kinds = make_key(config.seed, Purpose.WARM_START_SET), settings.kinds or config.lake.kinds
    boards = mixed_boards(draw, kinds, settings.holes, WAIT, key, settings.instances, exclude)
    prompts = policy.prompts(boards.instances)
    thought = "<think>\n\n</think>\n\n" if config.writer.text.thinking else ""
    thought = thought.removeprefix(tokenizer.opened(thinking=config.writer.text.thinking))
    answers = [
        tokenizer.completion(thought + text.answer(boards.solutions.plan[i], prompts.instances.max_size))
        for i in range(len(prompts))
    ]
    fits = np.array([len(answer) <= room for answer in answers])
    if fits.mean() < 0.99:
        raise ConfigError(f"student.text.max_new_tokens = {room} is too small for {(~fits).sum()} of {len(fits)} plans")
    if not fits.all():
        display.say(f"{(~fits).sum()} of {len(fits)} boards are left out: their plans need more than {room} tokens")
    padded = tokenizer.pad_right([a for a in answers if len(a) <= room], room, "student.text.max_new_tokens")
    return join(prompts.take(fits).tokens, config.writer.text.max_prompt_tokens, *padded)


def engineer_examples(tokenizer: Tokenizer, config: Config, rng: np.random.Generator) -> Sequences:
    """Draw a batch of evidence, each with the configuration that our rule would answer."""
    settings = config.student.warm_start
    drawn = example_tokens(tokenizer, config, rng, settings.engineer_batch, settings.contexts)
    return join_examples(tokenizer, settings, drawn)


def join_examples(tokenizer: Tokenizer, settings: EngineerExamplesSection, drawn: Sequence[ExampleTokens]) -> Sequences:
    """Return contexts, each with its response, as sequences; ConfigError if one does not fit its room."""
    contexts, responses = [x.context for x in drawn], [x.response for x in drawn]
    check_fit(contexts, settings.max_context_tokens, "student.warm_start.max_context_tokens")
    padded = tokenizer.pad_right(responses, settings.max_answer_tokens, "student.warm_start.max_answer_tokens")
    return join(contexts, settings.max_context_tokens, *padded)


def example_tokens(
    tokenizer: Tokenizer, config: Config, rng: np.random.Generator, count: int, variants: Sequence[str]
) -> list[ExampleTokens]:
    """Draw engineer examples with contexts of these variants."""
    rounds, template = max(config.rounds.count, 2), read_context(config.engineer).template
    kinds, targets, epochs = config.lake.kinds, config.target_kinds, config.student.epochs
    drawn = []
    for _ in range(count):
        context, thinking, answer, _ = examples.example(rng, kinds, rounds, epochs, variants, template, targets)
        taught = response(tokenizer, thinking, answer)
        drawn.append(ExampleTokens(tokenizer.chat(context, thinking=True), taught, answer_alone(tokenizer, answer)))
    return drawn


def response(tokenizer: Tokenizer, thinking: str, answer: str) -> list[int]:
    """Return the tokens of what an engineer writes behind its prompt: a thought, the configuration, the end."""
    thought = f"<think>\n{thinking}\n</think>\n\n".removeprefix(tokenizer.opened(thinking=True))
    # Apart, as the sampler writes them: in one text some tokenizers make other tokens of the lines between them.
    return [*tokenizer.reply(thought), *answer_alone(tokenizer, answer)]


def answer_alone(tokenizer: Tokenizer, answer: str) -> list[int]:
    """Return the tokens of an engineer's answer behind its thought, its end token included."""
    return [*tokenizer.encode(answer), tokenizer.stop_ids[0]]
