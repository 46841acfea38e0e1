"""The configuration of a run: typed, validated, read from YAML files with dotted overrides; no key is unknown."""

from rl.config.errors import ConfigError, RunError, refuse_difference
from rl.config.fields import ROUNDING, as_override, decisive, flat, keys, origin, sections, settings, words
from rl.config.loading import SHIPPED, Values, build, load, merge, override, read, validate
from rl.config.sections import Config, EngineerSection, MeshSection, RoundsSection, TrackingSection, ValidationSection
from rl.config.students import (
    EngineerExamplesSection,
    LearnSection,
    LoRASection,
    LossFields,
    ModelSection,
    NetworkSection,
    OptimizerFields,
    PlayerSection,
    PlaySection,
    RewardSection,
    StudentSection,
    TextSection,
    TurnLearnSection,
    WarmStartSection,
    WriterSection,
)
from rl.config.types import Count, Section, Seed
