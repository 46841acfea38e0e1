"""The types of settings, their bounds and origins, and the base of all sections; the settings themselves are in
`sections` and `students`.
"""

import dataclasses
import functools
from typing import Annotated, Any

import pydantic
import yaml
from pydantic import AfterValidator, Field

from engineer import RULES, modules
from jaxlake.config import MAX_HOLE
from jaxlake.kinds import Kind, read_kinds
from rl.config.choices import Optimizer


@dataclasses.dataclass(frozen=True)
class Origin:
    """Origin of a setting's value, in the `Annotated` of its field; a setting without one has a default of ours."""

    tag: str
    value: Any
    remark: str = ""


paper = functools.partial(Origin, "paper")
"""Marks a setting of which the paper gives the value."""
inferred = functools.partial(Origin, "inferred")
"""Marks a setting whose value follows from what the paper says."""


def _read_kinds(values: Any) -> tuple[Kind, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError("must be a list of kinds of boards, at least one, such as [3-6, rooms6, corridor8x3]")
    for kind in (kinds := read_kinds(values)):
        if not kind.is_exact:
            raise ValueError(f"{kind} is too large: training needs optima, which reach sides of 10 with 5 agents")
    return kinds


Kinds = Annotated[
    tuple[Kind, ...],
    pydantic.PlainValidator(_read_kinds),
    pydantic.PlainSerializer(lambda kinds: tuple(kind.label for kind in kinds), tuple[int | str, ...]),
]
"""Kinds of boards, given in any order as sizes, names and ranges (``3-6``, ``rooms5-8x3``), kept in ascending order."""

Natural = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
GroupSize = Annotated[int, Field(ge=2)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Weight = Annotated[float, Field(ge=0)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
WarmupSteps = Annotated[Natural, Field(description="number of first updates, in which the rate rises from 0")]
WeightDecay = Annotated[Ratio, Field(description="weight decay of matrices; norms have none")]
PeakRate = Annotated[Rate, Field(description="highest learning rate")]
ClipHigh = Annotated[Rate, Field(description="upper clip of the ratio of probabilities, at 1 + clip_high")]
EntropyWeight = Annotated[Weight, Field(description="weight of the bonus on entropy")]
Temperature = Annotated[float, Field(ge=1e-3)]
TopP = Annotated[Rate, Field(description="joint probability of the likeliest tokens to draw from; 1: all tokens")]
TopK = Annotated[Natural, Field(description="number of likeliest tokens to draw from; 0: all")]
Own = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$")]
"""``module:function``, a function of the user's own, see `rl.config.extensions`."""
OptimizerName = Annotated[
    Optimizer | Own, Field(description="optimizer; muon: for the layers' matrices, with adamw for the rest")
]
RuleName = Annotated[str, Field(pattern=f"^({'|'.join(RULES)})$")]
ContextName = Annotated[str, AfterValidator(lambda name: modules(name) and name)]
Holes = Annotated[
    tuple[Annotated[float, Field(ge=0, le=MAX_HOLE)], ...],
    Field(
        min_length=1,
        description=f"hole ratios, with an equal share of the boards each; above {MAX_HOLE} hardly any is solvable",
    ),
]


class Section(pydantic.BaseModel):
    """A part of the configuration: frozen, nothing unknown, finite numbers."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def to_yaml(self) -> str:
        """Return every value as YAML that reads back to an equal section."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
