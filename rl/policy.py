"""The policy as the loop sees it: instances in, answers and plans out; the caller says which parameters answer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxlake import text
from jaxlake.types import Instance, Plan
from rl.config import Config, ConfigError
from rl.qwen3 import weights
from rl.qwen3.model import Qwen3, Qwen3Config
from rl.qwen3.sharding import make_mesh, shard_batch, shard_parameters
from rl.qwen3.tokenizer import TINY_TOKENIZER, Tokenizer
from rl.sampler import GrammarSampler, Rollout, generate


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Instances put to the model: left-padded tokens int32 ``[n, T0]`` and where they are, bool ``[n, T0]``."""

    instances: Instance
    tokens: np.ndarray
    valid: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray) -> "Prompts":
        """The prompts at `rows`, in that order."""
        return Prompts(jax.tree.map(lambda x: x[rows], self.instances), self.tokens[rows], self.valid[rows])


@dataclasses.dataclass(frozen=True)
class Answers:
    """What the policy wrote, numpy arrays ``[B, ...]``: samples of one prompt side by side."""

    rollout: Rollout
    texts: list[str]
    plans: Plan


@dataclasses.dataclass(frozen=True)
class Policy:
    """The static half of the model with its tokenizer, its text format and the mesh it runs on."""

    graph: nnx.GraphDef[Qwen3]
    shape: Qwen3Config
    tokenizer: Tokenizer
    mesh: Mesh
    config: Config

    @classmethod
    def create(cls, config: Config, seed_key: jax.Array) -> tuple["Policy", nnx.State]:
        """The policy and its first parameters: those of `model.path`, or random ones drawn by `seed_key`.

        Raises:
          ConfigError: if the checkpoint cannot be read, or the mesh does not fit the devices.
        """
        mesh = make_mesh(config.mesh.fsdp, config.mesh.tp)
        dtype = jnp.dtype(config.model.dtype)
        if config.model.path:
            shape = weights.read_config(config.model.path, dtype)
            tokenizer = Tokenizer(config.model.path)
            graph, parameters = weights.load(config.model.path, shape, lambda p: shard_parameters(p, mesh))
        else:
            fields = config.model.model_dump(exclude={"path", "dtype"})
            shape = Qwen3Config(**fields, dtype=dtype)
            tokenizer = Tokenizer(TINY_TOKENIZER)
            graph, parameters = nnx.split(Qwen3(shape, nnx.Rngs(params=seed_key)))
            parameters = shard_parameters(parameters, mesh)
        if len(tokenizer) > shape.vocab_size:
            raise ConfigError(f"model.vocab_size = {shape.vocab_size}: the tokenizer has {len(tokenizer)} tokens")
        return cls(graph=graph, shape=shape, tokenizer=tokenizer, mesh=mesh, config=config), parameters

    def prompts(self, instances: Instance) -> Prompts:
        """Writes and tokenizes the user message of each instance ``[n]``.

        Raises:
          ConfigError: if one does not fit `text.max_prompt_tokens`.
        """
        settings = self.config.text
        instances = jax.tree.map(np.asarray, instances)
        style = text.PromptStyle(settings.style)
        rows = [
            self.tokenizer.chat(text.prompt(row(instances, i), style), thinking=settings.thinking)
            for i in range(len(instances.size))
        ]
        tokens, valid = self.tokenizer.pad_left(rows, settings.max_prompt_tokens, "text.max_prompt_tokens")
        return Prompts(instances, tokens, valid)

    def answer(
        self,
        parameters: nnx.State,
        prompts: Prompts,
        key: jax.Array,
        *,
        samples: int,
        temperature: float,
        max_steps: int,
    ) -> Answers:
        """Samples answers to every prompt and reads the plans out of them."""
        rollout = generate(
            self.graph,
            parameters,
            *shard_batch((prompts.tokens, prompts.valid), self.mesh),
            key,
            np.float32(temperature),
            samples=samples,
            max_new_tokens=self.config.text.max_new_tokens,
            stop_ids=self.tokenizer.stop_ids,
        )
        rollout = jax.tree.map(np.asarray, rollout)
        texts = [
            self.tokenizer.decode(tokens[mask].tolist())
            for tokens, mask in zip(rollout.tokens, rollout.mask, strict=True)
        ]
        lake = prompts.instances
        plans = text.parse_batch(texts, max_size=lake.max_size, max_agents=lake.max_agents, max_steps=max_steps)
        return Answers(rollout, texts, plans)

    def grammar_sampler(self) -> GrammarSampler:
        """The sampler that writes the next configuration: thinks first, then is held to a grammar."""
        settings = self.config.engineer
        return GrammarSampler(
            graph=self.graph,
            tokenizer=self.tokenizer,
            vocabulary=self.shape.vocab_size,
            max_prompt_tokens=settings.max_prompt_tokens,
            max_thinking_tokens=settings.max_thinking_tokens,
            max_answer_tokens=settings.max_answer_tokens,
            temperature=settings.temperature,
        )


def row(batch, index: int):
    """One element of a batched dataclass of arrays."""
    return jax.tree.map(lambda x: x[index], batch)
