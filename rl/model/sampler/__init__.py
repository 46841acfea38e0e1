"""Batched generation with a KV cache and a queue; knows tokens, not what they mean. ``Sampler`` is the way in."""

from rl.model.sampler.batch import Guide, Rollout, Sampler
from rl.model.sampler.draw import SamplingParams
from rl.model.sampler.thinking import ThinkingBudget

__all__ = ["Guide", "Rollout", "Sampler", "SamplingParams", "ThinkingBudget"]
