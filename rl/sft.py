"""The warm start: supervised learning on the solver's plans and on examples of an environment engineer's answers."""

import functools

import chex
import jax
import numpy as np
import optax
from flax import nnx

from engineer import examples
from jaxlake import text
from rl.config import Config
from rl.grpo import answer_logprobs, masked_mean
from rl.policy import Policy, row
from rl.qwen3.model import Qwen3
from rl.qwen3.sharding import shard_batch
from rl.run import Purpose, Run, Stopwatch, mixed_boards


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
    plans: Examples,
    engineering: Examples,
) -> tuple[nnx.State, optax.OptState, dict[str, jax.Array]]:
    """One step on the sum of the two cross-entropies, each a mean over its answer tokens; the old state is donated."""

    def loss(parameters):
        model = nnx.merge(graph, parameters)
        losses = {}
        for name, batch in (("plan", plans), ("engineer", engineering)):
            logprobs, _ = answer_logprobs(model, batch.tokens, batch.valid, batch.mask.shape[1], 1.0)
            losses[f"{name}_loss"] = -masked_mean(logprobs, batch.mask)
        return losses["plan_loss"] + losses["engineer_loss"], losses

    gradients, metrics = jax.grad(loss, has_aux=True)(parameters)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state, parameters)
    return optax.apply_updates(parameters, updates), optimizer_state, metrics


def make_optimizer(config: Config) -> optax.GradientTransformation:
    """AdamW with a linear warm-up and a cosine decay to a tenth."""
    settings = config.warm_start
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
        decay_steps=max(settings.steps, settings.warmup_steps + 1),
        end_value=settings.learning_rate / 10,
    )
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.98, weight_decay=0.01))


def warm_start(run: Run, optimizer: optax.GradientTransformation) -> None:
    """Runs the supervised steps that are still to be done."""
    settings = run.config.warm_start
    key = run.key(Purpose.WARM_START_SET)
    boards = mixed_boards(
        run.config, settings.holes, settings.wait, key, settings.instances, exclude=run.validation.instances
    )
    plans = _plan_examples(run.policy, boards)
    run.display.stage("warm start", settings.steps, done=run.progress.step)
    for step in range(run.progress.step, settings.steps):
        watch = Stopwatch()
        rng = np.random.default_rng(np.asarray(jax.random.key_data(run.key(Purpose.WARM_START_STEP, step=step))))
        rows = rng.choice(len(plans.tokens), settings.batch, replace=False)
        batch = jax.tree.map(lambda x, rows=rows: x[rows], plans)
        batches = shard_batch((batch, _engineer_examples(run.policy, rng)), run.policy.mesh)
        watch.lap("host")
        run.parameters, run.optimizer_state, metrics = update(
            run.policy.graph, optimizer, run.parameters, run.optimizer_state, *batches
        )
        metrics = {name: float(value) for name, value in metrics.items()}
        watch.lap("update")
        status = f"plan loss {metrics['plan_loss']:.3f}  engineer loss {metrics['engineer_loss']:.3f}"
        run.step_done({"phase": "warm_start"} | metrics, watch.seconds, status)


def _plan_examples(policy: Policy, boards) -> Examples:
    """Every board with its optimal plan as the answer."""
    prompts = policy.prompts(boards.instances)
    plans = jax.tree.map(np.asarray, boards.solutions.plan)
    thought = "<think>\n\n</think>\n\n" if policy.config.text.thinking else ""
    answers = [
        policy.tokenizer.completion(thought + text.answer(row(plans, i), prompts.instances.max_size))
        for i in range(len(prompts))
    ]
    tokens, mask = policy.tokenizer.pad_right(answers, policy.config.text.max_new_tokens, "text.max_new_tokens")
    return _joined(prompts.tokens, prompts.valid, tokens, mask)


def _engineer_examples(policy: Policy, rng: np.random.Generator) -> Examples:
    """Freshly drawn examples of evidence with the configuration that our rule would answer."""
    config, tokenizer = policy.config, policy.tokenizer
    contexts, answers = [], []
    for _ in range(config.warm_start.engineer_batch):
        context, thinking, answer, _ = examples.example(
            rng, config.lake.sizes, max(config.rounds.count, 2), config.rounds.epochs
        )
        contexts.append(tokenizer.chat(context, thinking=True))
        answers.append(tokenizer.completion(f"<think>\n{thinking}\n</think>\n\n{answer}"))
    settings = config.warm_start
    return _joined(
        *tokenizer.pad_left(contexts, settings.max_context_tokens, "warm_start.max_context_tokens"),
        *tokenizer.pad_right(answers, settings.max_answer_tokens, "warm_start.max_answer_tokens"),
    )


def _joined(prompts: np.ndarray, valid: np.ndarray, answers: np.ndarray, mask: np.ndarray) -> Examples:
    return Examples(
        tokens=np.concatenate([prompts, answers], axis=1), valid=np.concatenate([valid, mask], axis=1), mask=mask
    )
