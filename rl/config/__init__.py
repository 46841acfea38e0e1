"""The configuration of a run: typed, validated, read from YAML files with dotted overrides; no key is unknown."""

from rl.config.errors import ConfigError, RunError, refuse_difference
from rl.config.fields import FREE, ROUNDING, decisive, flat, keys, origin, provenance, sections, words
from rl.config.loading import SHIPPED, Values, build, load, merge, override, parse, read, validate
from rl.config.origins import as_override
from rl.config.sections import (
    Config,
    EngineerSection,
    LoRASection,
    MeshSection,
    ModelSection,
    NetworkSection,
    PPOSection,
    StudentSection,
    TextSection,
    TrackingSection,
)
from rl.config.training import GRPOSection, OptimizerFields, RewardSection, WarmStartSection
from rl.config.types import Count, Section
