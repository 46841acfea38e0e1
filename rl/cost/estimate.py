"""The hours that a run would take: its programs' operations and bytes at a device's rates, as often as each runs."""

import dataclasses
import math
from collections.abc import Mapping

from jax.sharding import Mesh

from rl.config import Config
from rl.cost.devices import MATRIX_SHARE, MEMORY_SHARE, Rates
from rl.cost.work import work_of
from rl.sampler.schedule import prompts_at_once


@dataclasses.dataclass(frozen=True)
class ProgramCost:
    """What one run of a program takes, for the longest answers; of a program that decodes, one token of all rows.

    Attributes:
      flops, bytes: on one device. Bytes are the program's arguments, read once, and its new outputs.
      cache: bytes among them of a cache, of which only what is filled is read.
      answers: sequences that go through at once, on all devices; 0 if it is no program that trains on them.
    """

    flops: float
    bytes: float
    cache: float = 0.0
    answers: int = 0


@dataclasses.dataclass(frozen=True)
class Phase:
    """A program of a run, and how often it runs.

    Attributes:
      runs: in the whole run; a token's loop counts a run a token.
      flops, bytes: of one run on one device.
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


def phases(config: Config, mesh: Mesh, costs: Mapping[str, ProgramCost], tokens: int) -> list[Phase]:
    """List the phases of a run whose answers all have `tokens` tokens, in the order of the programs.

    Args:
      costs: of programs, by name as `rl.plan` lists them.
      tokens: at most `text.max_new_tokens`. A gradient of fewer is a smaller share of that of the longest, and a cache
        is filled by the prompt and, on average, half of the answer.
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
    passes = (settings.updates > 1) + (settings.kl_coefficient > 0)
    rehearsals = work.steps // settings.engineer_every if settings.engineer_every else 0
    warm = config.warm_start
    taught = min(warm.engineer_first, warm.steps) + max(warm.steps - warm.engineer_first, 0) // warm.engineer_every
    room = text.max_prompt_tokens + text.max_new_tokens
    runs = {
        "warm start, plans": warm.steps - taught,
        "warm start, engineer": taught,
        "cast": work.steps + 2 * work.validations,
        "prefill": work.steps * calls(settings.prompts, settings.samples),
        "prefill, validation": 2 * work.validations * calls(validation.instances, 1),
        "decode": (work.steps * waves(settings.prompts, settings.samples) + work.validations * validated) * tokens,
        "log-probs": work.steps * passes,
        "gradient": work.steps * settings.iterations,
        "update": work.steps * settings.updates,
        "rehearsal": rehearsals,
    }
    found = []
    for name, each in costs.items():
        micro_batches = math.ceil(work.answers / each.answers) if each.answers else 1
        flops = each.flops * (text.max_prompt_tokens + tokens) / room if each.answers else each.flops
        unfilled = each.cache * (text.max_new_tokens - tokens / 2) / room
        found.append(Phase(name, runs[name] * micro_batches, flops, each.bytes - unfilled))
    return found
