"""The types of settings and their bounds, and the base of all sections; the settings themselves are in `sections`."""

from typing import Annotated, Any

import pydantic
from pydantic import AfterValidator, Field

from engineer import RULES, modules
from jaxlake.config import MAX_HOLE
from jaxlake.kinds import Kind, read_kinds
from rl.config.choices import Optimizer


def _known_rule(name: str) -> str:
    if name not in RULES:
        raise ValueError(f"must be one of {', '.join(RULES)}")
    return name


def _known_modules(context: str) -> str:
    modules(context)
    return context


def _read_kinds(values: Any) -> tuple[Kind, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise ValueError("must be a list of kinds of boards, at least one, such as [3-6, rooms6, corridor8x3]")
    for kind in (kinds := read_kinds(values)):
        if not kind.is_exact:
            raise ValueError(f"{kind} is too large: training needs optima, which reach sides of 10 with 5 agents")
    return kinds


def _labels(kinds: tuple[Kind, ...]) -> tuple[int | str, ...]:
    return tuple(kind.label for kind in kinds)


Kinds = Annotated[tuple[Kind, ...], pydantic.PlainValidator(_read_kinds), pydantic.PlainSerializer(_labels)]
"""Kinds of boards, given in any order as sizes, names and ranges (``3-6``, ``rooms5-8x3``), kept in ascending order."""

Count = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
WarmupSteps = Annotated[int, Field(ge=0, description="number of first updates, in which the rate rises from 0")]
WeightDecay = Annotated[Ratio, Field(description="weight decay of matrices; norms have none")]
PeakRate = Annotated[Rate, Field(description="highest learning rate")]
Temperature = Annotated[float, Field(ge=1e-3)]
TopP = Annotated[Rate, Field(description="joint probability of the likeliest tokens to draw from; 1: all tokens")]
TopK = Annotated[int, Field(ge=0, description="number of likeliest tokens to draw from; 0: all")]
REFERENCE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
"""``module:function``, a function of the user's own, see `rl.config.extensions`."""

Own = Annotated[str, Field(pattern=f"^{REFERENCE}$")]
OptimizerName = Annotated[
    Optimizer | Own, Field(description="optimizer; muon: for the layers' matrices, with adamw for the rest")
]
RuleName = Annotated[str, AfterValidator(_known_rule)]
ContextName = Annotated[str, AfterValidator(_known_modules)]
Holes = Annotated[
    tuple[Annotated[float, Field(ge=0, le=MAX_HOLE)], ...],
    Field(
        min_length=1,
        description=f"hole ratios, with an equal share of the boards each; above {MAX_HOLE} hardly any is solvable",
    ),
]


def once_each(what: str) -> AfterValidator:
    """Return a validator of tuples that refuses repeats of `what` they hold."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(values)) < len(values):
            raise ValueError(f"must hold each {what} at most once")
        return values

    return AfterValidator(check)


class Section(pydantic.BaseModel):
    """A part of the configuration: frozen, nothing unknown, finite numbers."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
