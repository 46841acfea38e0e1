"""The hours that a run would take: its programs' operations and bytes at a device's rates, as often as each runs."""

import dataclasses
import math
from collections.abc import Mapping

from jax.sharding import Mesh

from rl.config import Config
from rl.cost.devices import MATRIX_SHARE, MEMORY_SHARE, Rates
from rl.cost.work import work_of
from rl.qwen3 import sharding
from rl.sampler.schedule import prompts_at_once


@dataclasses.dataclass(frozen=True)
class Phase:
    """A program of a run, and how often it runs.

    Attributes:
      runs: in the whole run; a token's loop counts a run a token.
      flops, bytes: of one run on one device. Bytes are the program's arguments, read once, and its new outputs.
    """

    name: str
    runs: int
    flops: float
    bytes: float

    def seconds(self, rates: Rates) -> float:
        """Return what one run takes at `MATRIX_SHARE` and `MEMORY_SHARE` of the rates, whichever is longer."""
        return max(self.flops / (MATRIX_SHARE * rates.flops), self.bytes / (MEMORY_SHARE * rates.memory))


def hours(phases: list[Phase], rates: Rates) -> float:
    """Return the hours of all phases on devices with these rates."""
    return sum(phase.runs * phase.seconds(rates) for phase in phases) / 3600


def phases(config: Config, mesh: Mesh, programs: Mapping[str, tuple[float, float]], tokens: int) -> list[Phase]:
    """List the phases of a run whose answers all have `tokens` tokens, in the order of the programs.

    Args:
      programs: flops and bytes of one run on a device, by name as `rl.plan` lists them, for the longest answers.
      tokens: at most `text.max_new_tokens`; a gradient of fewer is a smaller share of that of the longest.
    """
    work, settings, text, validation = work_of(config), config.grpo, config.text, config.validation
    shards = mesh.shape["fsdp"]
    width = config.sampler.rows // shards

    def calls(prompts: int, samples: int) -> int:
        """Prefills that admit so many prompts."""
        return math.ceil(prompts / (shards * prompts_at_once(width, samples)))

    def waves(prompts: int, samples: int) -> int:
        """How often all rows are filled with their answers."""
        return math.ceil(prompts / (shards * (width // samples)))

    validated = waves(validation.instances, 1) + waves(validation.instances, validation.samples)
    micro_batches = math.ceil(work.answers / sharding.rows_for(settings.micro_batch, mesh))
    passes = (settings.updates > 1) + (settings.kl_coefficient > 0)
    rehearsals = work.steps // settings.engineer_every if settings.engineer_every else 0
    warm = config.warm_start
    taught = min(warm.engineer_first, warm.steps) + max(warm.steps - warm.engineer_first, 0) // warm.engineer_every
    share = (text.max_prompt_tokens + tokens) / (text.max_prompt_tokens + text.max_new_tokens)
    runs = {
        "warm start, plans": (warm.steps - taught, 1.0),
        "warm start, engineer": (taught, 1.0),
        "cast": (work.steps + 2 * work.validations, 1.0),
        "prefill": (work.steps * calls(settings.prompts, settings.samples), 1.0),
        "prefill, validation": (2 * work.validations * calls(validation.instances, 1), 1.0),
        "decode": ((work.steps * waves(settings.prompts, settings.samples) + work.validations * validated) * tokens, 1),
        "log-probs": (work.steps * micro_batches * passes, share),
        "gradient": (work.steps * micro_batches * settings.iterations, share),
        "update": (work.steps * settings.updates, 1.0),
        "rehearsal": (rehearsals, 1.0),
    }
    return [
        Phase(name, runs[name][0], flops * runs[name][1], size)
        for name, (flops, size) in programs.items()
        if name in runs
    ]
