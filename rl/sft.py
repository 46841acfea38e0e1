"""The warm start: supervised learning on the solver's plans and on examples of an environment engineer's answers."""

import functools

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from engineer import examples
from jaxlake import text
from jaxlake.types import Instance
from rl.config import Config, ConfigError, WarmStartSection
from rl.grpo import masked_sum
from rl.logprobs import Sequences, abstract_sequences, answer_logprobs, join, take
from rl.policy import Policy, row
from rl.qwen3 import lora, sharding
from rl.qwen3.model import Qwen3
from rl.qwen3.tokenizer import check_fit
from rl.run import Purpose, Run, Stopwatch, make_key, mixed_boards
from rl.tracking import Display


@functools.partial(
    jax.jit, static_argnames=("graph", "optimizer", "mesh"), donate_argnames=("trained", "optimizer_state")
)
def update(
    graph: nnx.GraphDef[Qwen3],
    optimizer: optax.GradientTransformation,
    trained: nnx.State,
    frozen: nnx.State,
    optimizer_state: optax.OptState,
    examples: Sequences,
    *,
    mesh: Mesh,
) -> tuple[nnx.State, optax.OptState, jax.Array]:
    """One step on the cross-entropy, a mean over the answer tokens, which it returns; the old state is donated."""

    def loss(trained):
        logprobs, _ = answer_logprobs(nnx.merge(graph, trained, frozen), examples, 1.0)
        return -masked_sum(logprobs, examples.mask) / examples.mask.sum()

    value, gradients = jax.value_and_grad(loss)(trained)
    gradients = sharding.constrain(gradients, mesh)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, trained)
    return *sharding.constrain((optax.apply_updates(trained, updates), optimizer_state), mesh), value


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW at a rate that rises linearly, then stays.

    It does not decay: a decayed warm start is sharp and leaves the rounds little to gain (see docs/decisions.md).
    """
    settings = config.warm_start
    schedule = optax.linear_schedule(0.0, settings.learning_rate, settings.warmup_steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.01))


def warm_start(run: Run, optimizer: optax.GradientTransformation, plans: Sequences) -> None:
    """Runs the supervised steps that are still to be done, on batches of `plans` and of fresh engineer examples.

    Every process draws the same batch and takes its own part of it.
    """
    settings, graph, mesh = run.config.warm_start, run.policy.graph, run.policy.mesh
    trained, frozen = lora.split(run.parameters)
    run.display.stage("warm start", settings.steps, done=run.progress.step)
    for step in range(run.progress.step, settings.steps):
        watch = Stopwatch()
        rng = np.random.default_rng(np.asarray(jax.random.key_data(run.key(Purpose.WARM_START_STEP, step=step))))
        if step % settings.engineer_every == 0:
            kind, examples = "engineer", _engineer_examples(run.policy, rng)
            rows = np.arange(settings.engineer_batch)
        else:
            kind, examples = "plan", plans
            rows = rng.choice(len(plans.tokens), settings.batch, replace=False)
        count = sharding.rows_for(len(rows), mesh)
        mine = rows[jax.process_index() * count :][:count]
        batch = sharding.shard_batch(take(examples, mine, count), mesh)
        watch.lap("host")
        trained, run.optimizer_state, loss = update(
            graph, optimizer, trained, frozen, run.optimizer_state, batch, mesh=mesh
        )
        run.parameters = nnx.merge_state(trained, frozen)
        loss = float(loss)
        watch.lap("update")
        run.step_done({"phase": "warm_start", f"{kind}_loss": loss}, watch.seconds, f"{kind} loss {loss:.3f}")


def plan_examples(policy: Policy, exclude: Instance, display: Display) -> Sequences:
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
    padded = policy.tokenizer.pad_right([a for a in answers if len(a) <= room], room, "text.max_new_tokens")
    return join(prompts.take(fits).tokens, config.text.max_prompt_tokens, *padded)


def _engineer_examples(policy: Policy, rng: np.random.Generator) -> Sequences:
    """Freshly drawn examples of evidence with the configuration that our rule would answer."""
    settings = policy.config.warm_start
    contexts, taught, _ = zip(*engineer_texts(policy, rng, settings.engineer_batch), strict=True)
    check_fit(contexts, settings.max_context_tokens, "warm_start.max_context_tokens")
    padded = policy.tokenizer.pad_right(taught, settings.max_answer_tokens, "warm_start.max_answer_tokens")
    return join(contexts, settings.max_context_tokens, *padded)


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


def lower(
    graph: nnx.GraphDef[Qwen3],
    parameters: nnx.State,
    optimizer: optax.GradientTransformation,
    settings: WarmStartSection,
    prompt_tokens: int,
    answer_tokens: int,
    mesh: Mesh,
) -> dict[str, jax.stages.Lowered]:
    """`update` as a run with these settings would compile it, on plans and on engineer examples, from shapes alone.

    Args:
      parameters: ShapeDtypeStructs (`model.abstract`).
      prompt_tokens, answer_tokens: room for a plan's.
    """
    trained, frozen = sharding.abstract(lora.split(parameters), mesh)
    state = sharding.abstract(jax.eval_shape(optimizer.init, trained), mesh)
    shapes = {
        "plans": (settings.batch, prompt_tokens, answer_tokens),
        "engineer": (settings.engineer_batch, settings.max_context_tokens, settings.max_answer_tokens),
    }

    def lowered(rows, *room):
        examples = abstract_sequences(sharding.rows_for(rows, mesh), *room)
        batch = sharding.abstract_batch(examples, mesh)
        return update.lower(graph, optimizer, trained, frozen, state, batch, mesh=mesh)

    return {name: lowered(*shape) for name, shape in shapes.items()}
