"""google-tunix's GRPO learner with its vanilla rollout on its own Qwen3, float32; one step for every line of JSON.

Arguments: a model folder, and JSON of the settings that `grpo_step.py` shares with it. A request has the prompts of a
step, token numbers as text, and a seed. The answer: seconds, lengths with the stop, and how far parameters moved.
"""

import json
import sys
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tunix.models.qwen3.params import create_model_from_safe_tensors
from tunix.rl.grpo.grpo_learner import GRPOConfig, GRPOLearner
from tunix.rl.rl_cluster import ClusterConfig, RLCluster, RLTrainingConfig, Role
from tunix.rl.rollout.base_rollout import RolloutConfig
from tunix_model import Tokens, read_config

folder, settings = sys.argv[1], json.loads(sys.argv[2])
config = read_config(folder)


class Numbers(Tokens):
    """For texts of token numbers."""

    def encode(self, text: str) -> list[int]:
        return [int(token) for token in text.split()]

    def decode(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))


lengths: list[int] = []


def reward(prompts: list[str], completions: list[str], **_: object) -> list[float]:
    """Return the penalty on length alone, of texts without their stop."""
    free, limit, most = settings["free_tokens"], settings["limit_tokens"], settings["new_tokens"]
    tokens = [min(len(text.split()) + 1, most) for text in completions]
    lengths.extend(tokens)
    return [-min(max((length - free) / (limit - free), 0.0), 1.0) for length in tokens]


mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(1, 1), ("fsdp", "tp"))
actor = create_model_from_safe_tensors(folder, config, mesh, dtype=jnp.float32)
rollout = RolloutConfig(
    max_tokens_to_generate=settings["new_tokens"],
    max_prompt_length=settings["prompt_tokens"],
    kv_cache_size=settings["prompt_tokens"] + settings["new_tokens"],
    temperature=1.0,
    eos_tokens=settings["stop_ids"],
)
training = RLTrainingConfig(
    actor_optimizer=optax.chain(
        optax.clip_by_global_norm(settings["max_gradient_norm"]), optax.adamw(settings["learning_rate"], b2=0.98)
    ),
    eval_every_n_steps=sys.maxsize,
    max_steps=sys.maxsize,
    mini_batch_size=settings["prompts"],
    train_micro_batch_size=settings["train_prompts"],
    rollout_micro_batch_size=settings["rollout_prompts"],
    compute_logps_micro_batch_size=settings["prompts"],
)
cluster = RLCluster(
    actor=actor,
    tokenizer=Numbers(config.vocab_size),
    cluster_config=ClusterConfig(
        role_to_mesh=dict.fromkeys((Role.ACTOR, Role.REFERENCE, Role.ROLLOUT), mesh),
        training_config=training,
        rollout_config=rollout,
    ),
)
algorithm = GRPOConfig(
    num_generations=settings["samples"], num_iterations=1, beta=0.0, epsilon=0.2, loss_agg_mode="token-mean"
)
learner = GRPOLearner(rl_cluster=cluster, algo_config=algorithm, reward_fns=reward)


def steps() -> Iterator[dict[str, np.ndarray]]:
    """Yield the prompts of one step after the other; the learner's next request tells what a step took."""
    for line in sys.stdin:
        request = json.loads(line)
        rollout.seed = request["seed"]
        before = jax.tree.map(jnp.copy, nnx.state(cluster.actor_trainer.model, nnx.Param))
        lengths.clear()
        start = time.perf_counter()
        yield {"prompts": np.array([" ".join(map(str, prompt)) for prompt in request["prompts"]])}
        after = jax.block_until_ready(nnx.state(cluster.actor_trainer.model, nnx.Param))
        seconds = time.perf_counter() - start
        moved = max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True))
        print(json.dumps({"seconds": seconds, "lengths": lengths, "moved": moved}), flush=True)


learner.train(steps())
