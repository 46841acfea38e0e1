"""The configuration of a run: typed, validated, read from YAML with dotted overrides; unknown keys are refused."""

from rl.config.errors import ConfigError, RunError
from rl.config.loading import SHIPPED, keys, load, override, read, validate
from rl.config.sections import (
    REFERENCE,
    Config,
    Count,
    GRPOSection,
    ModelSection,
    OptimizerFields,
    Own,
    RewardSection,
    Section,
    TextSection,
    TrackingSection,
    WarmStartSection,
)

__all__ = [
    "REFERENCE",
    "SHIPPED",
    "Config",
    "ConfigError",
    "Count",
    "GRPOSection",
    "ModelSection",
    "OptimizerFields",
    "Own",
    "RewardSection",
    "RunError",
    "Section",
    "TextSection",
    "TrackingSection",
    "WarmStartSection",
    "keys",
    "load",
    "override",
    "read",
    "validate",
]
