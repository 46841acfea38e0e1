"""One supervised step: the cross-entropy of the answers, and the program that goes down it."""

import functools

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from rl.config import WarmStartSection
from rl.learn.grpo.optimizer import step
from rl.model import lora, sharding
from rl.model.decoder import Decoder
from rl.model.logprobs import Sequences, abstract_sequences, answer_logprobs, masked_sum


@functools.partial(
    jax.jit, static_argnames=("graph", "optimizer", "mesh"), donate_argnames=("trained", "optimizer_state")
)
def update(
    graph: nnx.GraphDef[Decoder],
    optimizer: optax.GradientTransformation,
    trained: nnx.State,
    frozen: nnx.State,
    optimizer_state: optax.OptState,
    examples: Sequences,
    *,
    mesh: Mesh,
) -> tuple[nnx.State, optax.OptState, dict[str, jax.Array]]:
    """One step on the cross-entropy, a mean over the answer tokens; the old state is donated.

    Returns:
      What is trained and the optimizer's state, both as they were if the loss or the gradient is not finite, and
      float32 scalars: the loss in nats, the gradient's norm before it is clipped, and 1 if the update was skipped.
    """

    def cross_entropy(trained: nnx.State) -> jax.Array:
        logprobs, _ = answer_logprobs(nnx.merge(graph, trained, frozen), examples, 1.0)
        return -masked_sum(logprobs, examples.mask) / examples.mask.sum()

    loss, gradients = jax.value_and_grad(cross_entropy)(trained)
    gradients = sharding.constrain(gradients, mesh)
    *new, norm, finite = step(optimizer, trained, optimizer_state, gradients, loss)
    metrics = {"loss": loss, "gradient_norm": norm, "update_skipped": 1.0 - finite}
    return *sharding.constrain(tuple(new), mesh), metrics


def lower(
    graph: nnx.GraphDef[Decoder],
    parameters: nnx.State,
    optimizer: optax.GradientTransformation,
    settings: WarmStartSection,
    prompt_tokens: int,
    answer_tokens: int,
    mesh: Mesh,
) -> dict[str, jax.stages.Lowered]:
    """Lower `update` as a run would compile it, on plans with this room and on engineer examples, from shapes alone."""
    trained, frozen = sharding.abstract(lora.split(parameters), mesh)
    state = sharding.abstract(jax.eval_shape(optimizer.init, trained), mesh)
    shapes = {
        "plans": (settings.batch, prompt_tokens, answer_tokens),
        "engineer": (settings.engineer_batch, settings.max_context_tokens, settings.max_answer_tokens),
    }

    def lowered(rows: int, *room: int) -> jax.stages.Lowered:
        examples = abstract_sequences(sharding.rows_for(rows, mesh), *room)
        batch = sharding.abstract_batch(examples, mesh)
        return update.lower(graph, optimizer, trained, frozen, state, batch, mesh=mesh)

    return {name: lowered(*shape) for name, shape in shapes.items()}
