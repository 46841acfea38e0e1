"""Kinds of boards: a family, a side and a number of agents, as `6`, `6x3`, `rooms6` or `corridor8x3`. Draws none."""

import dataclasses
import enum
import re
from collections.abc import Iterable
from typing import Any

from jaxlake.arguments import whole_number
from jaxlake.types import MAX_AGENTS, MAX_SIZE

MIN_SIZE = 3
MIN_FAMILY_SIZE = 5
"""Below it a board has no room for two rooms, a shelf or a place to pass."""
LARGEST_SIZE, MOST_AGENTS = 64, 128
"""Limits of kinds; those that can be solved exactly end at ``MAX_SIZE`` and ``MAX_AGENTS``."""


class Family(enum.StrEnum):
    """The layout of a board's cells; the guide explains the density of 0 to .5, with pictures."""

    RANDOM = "random"
    """Independent holes; the density is their share of the cells without start or goal. The paper's boards."""
    ROOMS = "rooms"
    """Rooms of at most 3 x 3 behind walls with doors; twice the density is the share of the other wall."""
    MAZE = "maze"
    """Passages of a spanning tree; twice the density is the share of all other wall."""
    WAREHOUSE = "warehouse"
    """Shelves between aisles one cell wide; twice the density is the share of the shelves."""
    CROSSING = "crossing"
    """Roads that meet, one each way at least; twice the density is the share of the others that is missing."""
    BAYS = "bays"
    """A winding road on which agents must change their order; twice the density is the share of passing places shut."""
    CORRIDOR = "corridor"
    """One lane whose halves change agents; half the cells beside it and twice the density of the others are shut."""


# Of 288 boards with sides of 6 at densities .1, .3, .5 the tiny policy, taught on random ones of 3 to 6, solves 54 % of
# the random ones (5x5 69 %, 4x4 81 %), 57 % of rooms, 50 of warehouse, 44 of maze, 34 of crossing, 2 of corridor, 0 of
# bays. A third agent makes a network that plays start from nothing where two are learnt at once.
_AGENT = 4.0
_HARDER = {
    Family.RANDOM: 0.0,
    Family.ROOMS: 0.0,
    Family.MAZE: 1.0,
    Family.WAREHOUSE: 0.5,
    Family.CROSSING: 1.5,
    Family.BAYS: 5.0,
    Family.CORRIDOR: 4.0,
}
_ORDER = {family: place for place, family in enumerate(Family)}
_RANGE = re.compile(rf"({'|'.join(Family)})?([0-9]{{1,2}})(?:-([0-9]{{1,2}}))?(?:x([0-9]{{1,3}}))?", re.ASCII)


@dataclasses.dataclass(frozen=True, repr=False)
class Kind:
    """A kind of boards: the family, size and number of agents of one row of a configuration.

    Attributes:
      family: a `Family` or its word.
      size: side N of the board, from 3 to 64; of other families than `random` from 5 on.
      num_agents: number of agents, 1 to 128; at most half the cells, on a `corridor` or `crossing` the side less one,
        in the other families five or a sixth of the cells. Optima (`is_exact`) reach sides of 10 with 5 agents.
    """

    family: Family
    size: int
    num_agents: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", Family(self.family))
        least = MIN_SIZE if self.family is Family.RANDOM else MIN_FAMILY_SIZE
        size = whole_number(f"size of {self.family.value} boards", self.size, least, LARGEST_SIZE)
        if self.family is Family.RANDOM:
            most = size**2 // 2
        elif self.family in (Family.CORRIDOR, Family.CROSSING):
            most = size - 1
        else:  # at the highest density a third of the cells is free, and an agent takes two
            most = max(MAX_AGENTS, size**2 // 6)
        most = min(MOST_AGENTS, most)
        agents = whole_number(f"num_agents on {self.family.value} boards of size {size}", self.num_agents, 1, most)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "num_agents", agents)

    def __repr__(self) -> str:
        return f"Kind.of({self.label!r})"

    def __str__(self) -> str:
        return str(self.label)

    def __lt__(self, other: "Kind") -> bool:
        """Order kinds by family, size and agents."""
        return self._place < other._place

    @property
    def difficulty(self) -> float:
        """The kind's difficulty in sides of random boards with two agents: what orders kinds in a curriculum; ours."""
        return self.size + _AGENT * (self.num_agents - 2) + _HARDER[self.family]

    @property
    def is_exact(self) -> bool:
        """Whether the solver reaches the kind's boards, so that they have optima."""
        return self.size <= MAX_SIZE and self.num_agents <= MAX_AGENTS

    @property
    def label(self) -> int | str:
        """The kind as a file names it: the size of random boards with two agents, the paper's; else its name."""
        return self.board if self.num_agents == 2 else f"{self.board}x{self.num_agents}"

    @property
    def board(self) -> int | str:
        """The kind without its number of agents: the size of random boards, ``rooms6`` of others."""
        return self.size if self.family is Family.RANDOM else f"{self.family.value}{self.size}"

    @property
    def words(self) -> str:
        """The kind as a message names it: ``size 6`` of the paper's boards, ``kind rooms6`` of others."""
        return f"{row_name([self])} {self.label}"

    @property
    def _place(self) -> tuple[int, int, int]:
        return _ORDER[self.family], self.size, self.num_agents

    @staticmethod
    def of(value: Any) -> "Kind":
        """Return the kind of a Kind, of its name, or of a size of random boards with two agents; else ValueError."""
        if not isinstance(value, str):
            return value if isinstance(value, Kind) else Kind(Family.RANDOM, value)
        if len(kinds := Kind.range(value)) != 1:
            raise ValueError(f"kind = {value!r} must be a single one")
        return kinds[0]

    @staticmethod
    def range(text: str) -> "tuple[Kind, ...]":
        """Return the kinds that a text (``6``, ``6x3``, ``corridor6-8x3``) names, ascending; ValueError for others."""
        match = _RANGE.fullmatch(text)
        if match is None or int(match[2]) > int(match[3] or match[2]):
            raise ValueError(
                f"kind = {text!r} must be a size with, where it has them, a family before it "
                f"({', '.join(Family)}) and xN for N agents behind it: 6, 6x3, rooms6, corridor8x3"
            )
        family, low, high, agents = match.groups()
        sizes = range(int(low), int(high or low) + 1)
        return tuple(Kind(Family(family or "random"), size, int(agents or 2)) for size in sizes)


def read_kinds(values: Iterable[Any]) -> tuple[Kind, ...]:
    """Return the kinds of values, each for `Kind.of` or a range, ascending and each once; ValueError for others."""
    ranges = (Kind.range(value) if isinstance(value, str) else (Kind.of(value),) for value in values)
    return tuple(sorted({kind for kinds in ranges for kind in kinds}))


def row_name(kinds: Iterable[Kind]) -> str:
    """Return what rows for these kinds are called: ``size`` where sizes say all, as of the paper's, else ``kind``."""
    return "size" if all(isinstance(kind.label, int) for kind in kinds) else "kind"
