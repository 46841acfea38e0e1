"""Batched generation with a KV cache: finished rows are refilled from a queue; knows tokens, not what they mean.

Two compiled programs do the work. `admit` prefills prompts and puts their keys and values into rows that are free, once
a prompt and copied to all of its samples. `decode` runs all rows until enough of them are free again. The host only
moves prompts in and answers out.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np
from flax import nnx

from jaxlake.record import Array, Record, record
from rl import distributed
from rl.config import ConfigError, RunError
from rl.model.sampler.draw import SamplingParams
from rl.model.sampler.programs import Arrivals, SamplerSpec, abstract, programs
from rl.model.sampler.schedule import Schedule
from rl.model.sharding import local_rows, shard_batch

STEPS_PER_CALL = 128
"""Tokens after which `decode` gives the host a word, for progress and to be interrupted: 0.6 s of a 4 B model."""

Guide = Callable[[int | None], np.ndarray]
"""From the token that came (None before the first) to those that may come next, bool ``[V]``."""

WHOLE = SamplingParams()
"""The model's distribution as it is."""


@record
class Rollout(Record):
    """Answers as numpy arrays; the samples of a prompt lie side by side.

    Attributes:
      tokens: int32 ``[B, T]``; values where `mask` is False are padding.
      mask: bool ``[B, T]``, True for each token of the answer, the stop token included.
      forced: bool ``[B, T]``, tokens of the mask that the sampler wrote to close a thought: no choice of the model's.
      logprobs: float32 ``[B, T]`` of the tokens in the whole distribution, under the temperature used (greedy:
        under temperature 1).
      truncated: bool ``[B]``, no stop token came in time.
    """

    tokens: Array
    mask: Array
    forced: Array
    logprobs: Array
    truncated: Array


@dataclasses.dataclass(frozen=True)
class Sampler(SamplerSpec):
    """Generator of a model's answers to prompts, `rows` at a time; equal ones share their compiled programs.

    Tokens of a request depend on the key and the request's number alone: not on the rows, nor on which of them it got
    and beside whom, nor on the mesh. Nothing is cut out of the vocabulary, rows of the embedding that have no token
    included: the trainer's softmax has them too.
    """

    @property
    def shards(self) -> int:
        """Number of parts of the batch that live on devices of their own."""
        return self.mesh.shape["fsdp"]

    def generate(
        self,
        parameters: nnx.State,
        prompts: Sequence[Sequence[int]],
        key: jax.Array,
        *,
        samples: int = 1,
        sampling: SamplingParams = WHOLE,
        guide: Guide | None = None,
        first_request: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Rollout:
        """Sample `samples` answers to each prompt.

        Args:
          parameters: parameters in the layout of `sharding.for_rollout`.
          prompts: tokens of each, at least one. Of several processes, each brings equally many of its own.
          key: threefry key of the tokens, the same on all processes.
          guide: the tokens that may come, of one answer to one prompt; not with a cap on thoughts (`thinking`).
          first_request: number of the first answer; None counts on from process to process.
          progress: called with the number of finished answers whenever the host has its say; may raise.

        Returns:
          ``[len(prompts) * samples, max_new_tokens]``, of this process's prompts. RunError if a number is not finite.
        """
        total = len(prompts) * samples
        if first_request is None:
            first_request = jax.process_index() * total
        bucket = self._bucket(prompts)
        width = self.width(samples)
        owners = [device.process_index for device in self.mesh.devices[:, 0]]
        schedule = Schedule(owners, width, len(prompts), samples)
        tokens = np.zeros((total, self.max_new_tokens), np.int32)
        logprobs = np.zeros(tokens.shape, np.float32)
        count = np.zeros(total, np.int32)
        allowed = None if guide is None else guide(None)
        compiled = programs(self)
        words = np.asarray(jax.random.key_data(key))
        call = functools.partial(
            compiled.decode, parameters, key=words, sampling=sampling, truncated=sampling.truncated
        )
        state = compiled.empty()
        while schedule.active:
            while schedule.ready:
                arrivals = arrange(schedule.admit(), width, schedule.batch, prompts, bucket, first_request)
                state = compiled.admit(parameters, state, shard_batch(arrivals, self.mesh))
            state, done = call(
                state,
                allowed=None if allowed is None else self._masks(allowed, schedule.local),
                need=schedule.need,
                steps=np.int32(STEPS_PER_CALL if guide is None else 1),
            )
            if guide is not None:
                (token,) = local_rows(state.last)[schedule.local >= 0].tolist()
                allowed = allowed if token in self.stop_ids else guide(token)
            rows, requests = schedule.release(np.asarray(done))
            if len(rows):
                count[requests] = local_rows(state.count)[rows]
                tokens[requests] = local_rows(state.tokens)[rows]
                logprobs[requests] = local_rows(state.logprobs)[rows]
            if progress is not None:
                progress(int((count > 0).sum()))
        ended = np.isin(tokens[np.arange(total), count - 1], self.stop_ids)
        mask = np.arange(self.max_new_tokens) < count[:, None]
        if distributed.agree(not np.isfinite(logprobs[mask]).all()):
            raise RunError(
                "the model's log-probabilities are NaN or infinite, so no token can be drawn: its parameters are not "
                f"finite, or too large for student.model.dtype = {np.dtype(self.config.dtype)}"
            )
        forced = self.thinking.forced(tokens, mask) if self.thinking else np.zeros_like(mask)
        return Rollout(tokens=tokens, mask=mask, forced=forced, logprobs=logprobs, truncated=~ended)

    def lower(self, parameters: nnx.State) -> jax.stages.Lowered:
        """Lower the program of a token of all rows, from shapes with `sharding.rollout_shardings` alone."""
        return programs(self).decode.lower(
            parameters,
            abstract(self),
            key=np.zeros(2, np.uint32),
            sampling=WHOLE,
            truncated=False,
            allowed=None,
            need=np.zeros(self.shards, np.int32),
            steps=np.int32(STEPS_PER_CALL),
        )

    def width(self, samples: int) -> int:
        """Return the number of rows of a shard; ConfigError if the answers to one prompt do not fit into them."""
        width, rest = divmod(self.rows, self.shards)
        if samples > width or rest:
            raise ConfigError(
                f"student.sampler.rows = {self.rows}: must be at least {samples * self.shards}, as the {samples} "
                f"answers to a prompt are generated on one shard, and a multiple of mesh.fsdp = {self.shards}"
            )
        return width

    def _masks(self, allowed: np.ndarray, requests: np.ndarray) -> jax.Array:
        """Return bool ``[B, V]``: `allowed` for the row of the one request; the other rows may write anything."""
        return shard_batch(np.where(requests[:, None] >= 0, allowed, True), self.mesh)

    def _bucket(self, prompts: Sequence[Sequence[int]]) -> int:
        """Return the length to which prompts are padded on all processes: a power of two, so that few programs serve
        all, or the most."""
        longest = int(distributed.all_gather(np.array([max(map(len, prompts), default=1)], np.int32)).max())
        return min(self.max_prompt_tokens, max(64, 1 << (longest - 1).bit_length()))


def arrange(
    entering: Sequence[Sequence[tuple[int, np.ndarray]]],
    width: int,
    batch: int,
    prompts: Sequence[Sequence[int]],
    bucket: int,
    first_request: int,
) -> Arrivals:
    """Arrange what `Schedule.admit` lets in for shards of `width` rows, `batch` prompts of `bucket` tokens."""
    arrivals = Arrivals(
        prompts=np.zeros((len(entering), batch, bucket), np.int32),
        sizes=np.zeros((len(entering), batch), np.int32),
        source=np.full((len(entering), width), -1, np.int32),
        lengths=np.ones((len(entering), width), np.int32),
        last=np.zeros((len(entering), width), np.int32),
        requests=np.zeros((len(entering), width), np.uint32),
    )
    for shard, groups in enumerate(entering):
        for place, (prompt, rows) in enumerate(groups):
            *prefix, last = prompts[prompt]
            arrivals.prompts[shard, place, : len(prefix)] = prefix
            arrivals.sizes[shard, place] = len(prefix)
            arrivals.source[shard, rows] = place
            arrivals.lengths[shard, rows] = len(prefix) + 1
            arrivals.last[shard, rows] = last
            arrivals.requests[shard, rows] = first_request + prompt * len(rows) + np.arange(len(rows))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), arrivals)
