"""The warm start: supervised learning on the solver's plans and on examples of an environment engineer's answers."""

import functools

import chex
import jax
import numpy as np
import optax
from flax import nnx

from engineer import examples
from jaxlake import text
from jaxlake.types import Instance
from rl.config import Config, ConfigError
from rl.grpo import answer_logprobs, masked_sum
from rl.policy import Policy, row
from rl.qwen3.model import Qwen3
from rl.qwen3.sharding import shard_batch
from rl.run import Purpose, Run, Stopwatch, make_key, mixed_boards
from rl.tracking import Display


@chex.dataclass(frozen=True)
class Examples:
    """Prompts with the answers to learn.

    Attributes:
      tokens: int32 ``[B, T0 + T]``, left-padded prompts, then right-padded answers.
      valid: bool ``[B, T0 + T]``, False on padding at either end.
      mask: bool ``[B, T]``, answer tokens, the stop token included.
    """

    tokens: chex.Array
    valid: chex.Array
    mask: chex.Array


@functools.partial(jax.jit, static_argnames=("graph", "optimizer"), donate_argnames=("parameters", "optimizer_state"))
def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    parameters: nnx.State,
    optimizer_state: optax.OptState,
    examples: Examples,
) -> tuple[nnx.State, optax.OptState, jax.Array]:
    """One step on the cross-entropy, a mean over the answer tokens, which it returns; the old state is donated."""

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        logprobs, _ = answer_logprobs(model, examples.tokens, examples.valid, examples.mask.shape[1], 1.0)
        return -masked_sum(logprobs, examples.mask) / examples.mask.sum()

    value, gradients = jax.value_and_grad(loss)(parameters)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
    return optax.apply_updates(parameters, updates), optimizer_state, value


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW at a rate that rises linearly, then stays.

    It does not decay: a decayed warm start is sharp and leaves the rounds little to gain (see docs/decisions.md).
    """
    settings = config.warm_start
    schedule = optax.linear_schedule(0.0, settings.learning_rate, settings.warmup_steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.01))


def warm_start(run: Run, optimizer: optax.GradientTransformation, plans: Examples) -> None:
    """Runs the supervised steps that are still to be done, on batches of `plans` and of fresh engineer examples."""
    settings = run.config.warm_start
    run.display.stage("warm start", settings.steps, done=run.progress.step)
    for step in range(run.progress.step, settings.steps):
        watch = Stopwatch()
        rng = np.random.default_rng(np.asarray(jax.random.key_data(run.key(Purpose.WARM_START_STEP, step=step))))
        if step % settings.engineer_every == 0:
            kind, batch = "engineer", _engineer_examples(run.policy, rng)
        else:
            rows = rng.choice(len(plans.tokens), settings.batch, replace=False)
            kind, batch = "plan", jax.tree.map(lambda x, rows=rows: x[rows], plans)
        watch.lap("host")
        run.parameters, run.optimizer_state, loss = update(
            run.policy.graph, optimizer, run.parameters, run.optimizer_state, shard_batch(batch, run.policy.mesh)
        )
        loss = float(loss)
        watch.lap("update")
        run.step_done({"phase": "warm_start", f"{kind}_loss": loss}, watch.seconds, f"{kind} loss {loss:.3f}")


def plan_examples(policy: Policy, exclude: Instance, display: Display) -> Examples:
    """The warm start's boards, none of them in `exclude`, each with its optimal plan as the answer.

    A few boards have plans longer than any answer can be (1 of 20,000 in one seed of the tiny run); they are left out,
    and `display` says how many.

    Raises:
      ConfigError: if a prompt is longer than the room for it, or more than one plan in a hundred is.
    """
    config, settings = policy.config, policy.config.warm_start
    key = make_key(config.seed, Purpose.WARM_START_SET)
    boards = mixed_boards(config, settings.holes, settings.wait, key, settings.instances, exclude)
    prompts = policy.prompts(boards.instances)
    thought = "<think>\n\n</think>\n\n" if config.text.thinking else ""
    answers = [
        policy.tokenizer.completion(thought + text.answer(row(boards.solutions.plan, i), prompts.instances.max_size))
        for i in range(len(prompts))
    ]
    room = config.text.max_new_tokens
    fits = np.array([len(answer) <= room for answer in answers])
    if fits.mean() < 0.99:
        raise ConfigError(f"text.max_new_tokens = {room} is too small for {(~fits).sum()} of {len(fits)} plans")
    if not fits.all():
        display.say(f"{(~fits).sum()} of {len(fits)} boards are left out: their plans need more than {room} tokens")
    tokens, mask = policy.tokenizer.pad_right([a for a in answers if len(a) <= room], room, "text.max_new_tokens")
    return _joined(prompts.tokens[fits], prompts.valid[fits], tokens, mask)


def _engineer_examples(policy: Policy, rng: np.random.Generator) -> Examples:
    """Freshly drawn examples of evidence with the configuration that our rule would answer."""
    settings = policy.config.warm_start
    contexts, taught, _ = zip(*engineer_texts(policy, rng, settings.engineer_batch), strict=True)
    return _joined(
        *policy.tokenizer.pad_left(contexts, settings.max_context_tokens, "warm_start.max_context_tokens"),
        *policy.tokenizer.pad_right(taught, settings.max_answer_tokens, "warm_start.max_answer_tokens"),
    )


def engineer_texts(
    policy: Policy, rng: np.random.Generator, count: int
) -> list[tuple[list[int], list[int], list[int]]]:
    """Tokens of `count` examples: the context, what is taught to follow it (thought and answer), the answer alone."""
    config, tokenizer = policy.config, policy.tokenizer
    rows = []
    for _ in range(count):
        context, thinking, answer, _ = examples.example(
            rng, config.lake.sizes, max(config.rounds.count, 2), config.rounds.epochs
        )
        taught = tokenizer.completion(f"<think>\n{thinking}\n</think>\n\n{answer}")
        rows.append((tokenizer.chat(context, thinking=True), taught, tokenizer.completion(answer)))
    return rows


def _joined(prompts: np.ndarray, valid: np.ndarray, answers: np.ndarray, mask: np.ndarray) -> Examples:
    return Examples(
        tokens=np.concatenate([prompts, answers], axis=1), valid=np.concatenate([valid, mask], axis=1), mask=mask
    )
