"""A round's environment: per kind of boards a data, hole and wait ratio. Generates no instance."""

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxlake.kinds import Kind, row_name
from jaxlake.record import Array

MAX_HOLE = 0.5
"""Above it almost no board is solvable: 10 % of 10x10 boards with two agents at 0.5, next to none from 0.6 on."""

FIELDS = ("data", "hole", "wait")
_TOLERANCE = 1e-6
_UNITS = 200  # Drawn ratios are multiples of 1 / 200 = 0.005, the numbers that an engineer's answer can write.


@dataclasses.dataclass(frozen=True)
class LakeConfig:
    """Ratios per kind of boards; the tuples are aligned. The paper's kinds are the sizes 3 to 10.

    Attributes:
      kinds: the kinds, ascending, each a ``Kind``, its name (``"rooms6"``) or a size of random boards with two agents.
      data: share of the instances that are of this kind; at least 0, summing to 1.
      hole: density of the boards in [0, ``MAX_HOLE``]: of random ones the share of the cells that are neither start nor
        goal and are holes, of others what their ``Family`` says.
      wait: share of the instances in which every optimal plan waits, in [0, 1].
    """

    kinds: tuple[Kind, ...]
    data: tuple[float, ...]
    hole: tuple[float, ...]
    wait: tuple[float, ...]

    if TYPE_CHECKING:  # what is given may be less plain than what is kept

        def __init__(
            self, kinds: Sequence[Kind | str | int], data: Sequence[float], hole: Sequence[float], wait: Sequence[float]
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(map(Kind.of, self.kinds)))
        for field in FIELDS:  # NumPy's numbers become Python's, as JSON and ``==`` know them
            object.__setattr__(self, field, tuple(np.asarray(getattr(self, field), float).tolist()))
        named = ", ".join(map(str, self.kinds))
        if not self.kinds or list(self.kinds) != sorted(set(self.kinds)):
            raise ValueError(f"kinds = ({named}) must be different kinds in ascending order, at least one")
        for field, most in zip(FIELDS, (1 + _TOLERANCE, MAX_HOLE, 1.0), strict=True):
            for kind, value in zip(self.kinds, getattr(self, field), strict=True):
                if not 0 <= value <= most:
                    raise ValueError(f"{field} of {kind.words} = {value} must be from 0 to {most:g}")
        if abs(sum(self.data) - 1) > _TOLERANCE:
            raise ValueError(f"data sums to {sum(self.data):g} over kinds {named}: it must sum to 1")

    @staticmethod
    def uniform(kinds: Sequence[Kind | str | int], hole: float, wait: float) -> "LakeConfig":
        """Return a config with the same share of data and the same ratios for every kind."""
        count = max(len(kinds), 1)
        return LakeConfig(kinds, (1 / count,) * count, (hole,) * count, (wait,) * count)

    @staticmethod
    def random(kinds: Sequence[Kind | str | int], key: Array, concentration: float = 1.0) -> "LakeConfig":
        """Draw data ~ Dirichlet(concentration), hole ~ U[0, MAX_HOLE] and wait ~ U[0, 1], all multiples of 0.005."""
        data_key, hole_key, wait_key = jax.random.split(key, 3)
        data = np.asarray(
            jax.random.dirichlet(data_key, np.full(len(kinds), concentration, np.float32), dtype=np.float32)
        )
        hole = np.asarray(jax.random.uniform(hole_key, (len(kinds),), np.float32, maxval=MAX_HOLE))
        wait = np.asarray(jax.random.uniform(wait_key, (len(kinds),), np.float32))
        return LakeConfig(
            kinds=kinds,
            data=tuple(units / _UNITS for units in _largest_remainder(data.tolist(), _UNITS)),
            hole=tuple(round(value * _UNITS) / _UNITS for value in hole.tolist()),
            wait=tuple(round(value * _UNITS) / _UNITS for value in wait.tolist()),
        )

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return ``{"3": {"data": .., "hole": .., "wait": ..}, ...}`` in ascending order of kind."""
        rows = zip(self.kinds, self.data, self.hole, self.wait, strict=True)
        return {str(kind): dict(zip(FIELDS, values, strict=True)) for kind, *values in rows}

    @staticmethod
    def from_dict(entries: Mapping[str, Mapping[str, float]], kind_of: Callable[[Any], Kind] = Kind.of) -> "LakeConfig":
        """Invert ``to_dict``, whose sizes YAML reads as numbers; ValueError for an entry of other fields."""
        for kind, entry in entries.items():
            if set(entry) != set(FIELDS):
                raise ValueError(
                    f"entry of {kind_of(kind).words} = {entry!r} must be a mapping with {', '.join(FIELDS)}"
                )
        ordered = sorted(entries, key=kind_of)
        data, hole, wait = (tuple(entries[kind][field] for kind in ordered) for field in FIELDS)
        return LakeConfig([kind_of(kind) for kind in ordered], data, hole, wait)


def project(raw: Mapping[str, Any], previous: LakeConfig) -> tuple[LakeConfig, tuple[str, ...]]:
    """Move a proposal onto the legal space; idempotent, and a legal config stays exactly as it is.

    The paper names the projection and not its rule; the rule is ours. A value that is missing or not a finite number is
    the previous round's, and so is a kind that is missing, but for its data: it has none if one of the others is given
    some, since data says how all boards are shared. Hole and wait are clipped; data is clipped at 0 and rescaled to sum
    to 1, or the previous round's where nothing is left of it; kinds that ``previous`` does not have are dropped.

    Args:
      raw: entries by kind, as ``LakeConfig.to_dict`` writes them, possibly broken in any way.
      previous: the config whose kinds the result has.

    Returns:
      The legal config, and each repair in words.
    """
    raw = {str(kind): entry for kind, entry in raw.items()}
    repairs: list[str] = []
    columns: dict[str, list[float]] = {field: [] for field in FIELDS}
    named: list[Any] = [entry for kind in previous.kinds if isinstance(entry := raw.get(str(kind)), Mapping)]
    given: list[Any] = [entry.get("data") for entry in named]
    shares_data = any(_is_number(data) and data > 0 for data in given)
    for kind in previous.kinds:
        kept = previous.to_dict()[str(kind)]
        entry = raw.get(str(kind))
        if not isinstance(entry, Mapping):
            if not shares_data:
                repairs.append(f"{kind.words} is missing: kept from the previous round")
            entry = kept | ({"data": 0.0} if shares_data else {})
        for field in FIELDS:
            value: Any = entry.get(field)
            if not _is_number(value):
                repairs.append(f"{field} of {kind.words} is not a finite number: kept {kept[field]:g}")
                value = kept[field]
            most = {"data": math.inf, "hole": MAX_HOLE, "wait": 1.0}[field]
            legal = min(max(value, 0.0), most)
            if legal != value:
                repairs.append(f"{field} of {kind.words} was {value:g}: clipped to {legal:g}")
            columns[field].append(float(legal))
    word = row_name(previous.kinds)
    if unknown := len(set(raw) - set(map(str, previous.kinds))):
        repairs.append(f"{unknown} unknown {word}{'s' * (unknown > 1)} dropped")

    data, largest = columns["data"], max(columns["data"])
    if largest == 0:
        repairs.append(f"data is zero for every {word}: kept from the previous round")
        data = list(previous.data)
    elif abs(sum(data) - 1) > _TOLERANCE:
        repairs.append(f"data summed to {sum(data):g}: rescaled to 1")
        shares = [value / largest for value in data]  # By the largest first, so that 1e308 does not overflow the sum.
        data = [share / sum(shares) for share in shares]
    return LakeConfig(previous.kinds, tuple(data), tuple(columns["hole"]), tuple(columns["wait"])), tuple(repairs)


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite number, and no bool; 10 ** 400 is none, as no float holds it."""
    return isinstance(value, (int, float)) and type(value) is not bool and abs(value) <= sys.float_info.max


def counts(config: LakeConfig, total: int) -> tuple[int, ...]:
    """Instances per kind by largest remainder (the earlier kind where remainders tie); sums to ``total`` exactly."""
    return tuple(_largest_remainder(config.data, total))


def _largest_remainder(shares: list[float] | tuple[float, ...], total: int) -> list[int]:
    exact = [share / sum(shares) * total for share in shares]
    whole = [math.floor(value + 1e-9) for value in exact]  # 0.29 * 100 is 28.999999999999996.
    by_remainder = sorted(range(len(exact)), key=lambda index: whole[index] - exact[index])
    for index in by_remainder[: total - sum(whole)]:
        whole[index] += 1
    return whole
