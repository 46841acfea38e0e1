"""Batched generation with a KV cache and a queue; knows tokens, not what they mean. ``Sampler`` is the way in."""

from rl.sampler.batch import Guide, Rollout, Sampler
from rl.sampler.draw import SamplingParams
from rl.sampler.thinking import ThinkingBudget

__all__ = ["Guide", "Rollout", "Sampler", "SamplingParams", "ThinkingBudget"]
