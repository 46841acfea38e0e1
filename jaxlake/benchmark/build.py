"""Draws and solves the fixed sets anew, the same bit for bit each time; reads none of their files.

Which candidates a search leaves undecided is part of what a set is: given an account's, a later and better solver makes
the same set.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlake.fixed_sets import pack
from jaxlake.generate.candidates import Shape, fingerprints
from jaxlake.generate.quotas import holes_on
from jaxlake.generate.search import Found, Quotas, first_boards
from jaxlake.solve import solve
from jaxlake.types import MAX_SIZE, Objective

HOLE_PERCENTS = (10, 20, 30, 40, 50)
_BUDGET = 1 << 18
"""Candidates for a group: the boards that have agents, size and hole ratio in common."""


class Recipe(NamedTuple):
    """The recipe of a fixed set.

    Attributes:
      seed: of its key.
      sizes: board sides by number of agents.
      wait_percents: a subset for each, with that share of instances that need a wait.
      share: instances of a group in each subset.
    """

    seed: int
    sizes: dict[int, range]
    wait_percents: tuple[int, ...]
    share: int

    def waits(self, index: int, odd: int) -> np.ndarray:
        """Instances that need a wait in each subset of the group with hole ratio number ``index``.

        Rounded so that a subset's total over the hole ratios is within a half of its share: of 50 at .25 it is 12 in an
        even cell and 13 in an odd one, two or three for each hole ratio.
        """
        exact = np.array(self.wait_percents) * self.share
        return (exact * (index + 1) + 50 * odd) // 100 - (exact * index + 50 * odd) // 100


RECIPES = {
    "test": Recipe(
        seed=260617682, sizes={3: range(3, 11), 4: range(4, 11), 5: range(5, 11)}, wait_percents=(25, 50, 75), share=10
    ),
    "validation": Recipe(seed=2, sizes={2: range(3, 11)}, wait_percents=(50,), share=20),
}


def build(
    recipe: Recipe,
    on_group: Callable[[Mapping[str, Any]], None] = lambda row: None,
    account: Mapping[str, Any] | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A set's arrays as ``fixed_sets.pack`` has them, and the account of every group.

    Args:
      recipe: how the set is made.
      on_group: gets each group's account as it comes.
      account: of an earlier build, whose undecided candidates are left out again; None decides anew.
    """
    dropped = {} if account is None else {_name(row): row["undecided"] for row in account["groups"]}
    parts: list[dict[str, np.ndarray]] = []
    groups: list[dict[str, Any]] = []
    for arrays, row in _groups(recipe, dropped):
        parts.extend([] if arrays is None else [arrays])
        groups.append(row)
        on_group(row)
    arrays = {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}
    return pack(arrays), {"instances": len(arrays["size"]), "groups": groups}


def _name(row: Mapping[str, Any]) -> tuple[int, int, float]:
    return row["agents"], row["size"], row["hole_ratio"]


def _groups(
    recipe: Recipe, dropped: Mapping[tuple[int, int, float], Collection[int]]
) -> Iterator[tuple[dict[str, np.ndarray] | None, dict[str, Any]]]:
    for num_agents, sizes in recipe.sizes.items():
        for size in sizes:
            # Few small boards are different, and two ratios can mean the same number of holes.
            known: set[bytes] = set()
            for index, percent in enumerate(HOLE_PERCENTS):
                key = jax.random.key(recipe.seed)
                for number in (num_agents, size, percent):
                    key = jax.random.fold_in(key, number)
                shape = Shape(size, num_agents, holes_on(size, num_agents, percent / 100), MAX_SIZE, max(recipe.sizes))
                waits = recipe.waits(index, (size + num_agents) % 2)
                quotas = Quotas(recipe.share * len(waits), int(waits.sum()))
                skipped = dropped.get((num_agents, size, percent / 100), ())
                found, account = first_boards(shape, key, quotas, known, _BUDGET, skipped)
                arrays, realised = None, [0] * len(waits)
                if found is not None:
                    known.update(fingerprints(found.instances))
                    subset = _subsets(found.needs_wait, waits, recipe.share)
                    arrays = _columns(found, subset, recipe) | {"hole_percent": np.full(len(subset), percent)}
                    realised = [int(np.sum(found.needs_wait[subset == number])) for number in range(len(waits))]
                yield (
                    arrays,
                    {
                        "agents": num_agents,
                        "size": size,
                        "hole_ratio": percent / 100,
                        "holes": shape.holes,
                        **account._asdict(),
                        "undecided": list(account.undecided),
                        "requested": quotas.total,
                        "realised": 0 if found is None else len(found.numbers),
                        "requested_waits": waits.tolist(),
                        "realised_waits": realised,
                    },
                )


def _subsets(needs_wait: np.ndarray, waits: np.ndarray, share: int) -> np.ndarray:
    """The subset's number for each instance, int ``[n]``; a lack is spread over the subsets in proportion."""
    subset = np.zeros(len(needs_wait), int)
    room = waits
    for kind in (True, False):
        indices = np.flatnonzero(needs_wait == kind)
        ends = len(indices) * np.cumsum(room) // max(room.sum(), 1)
        subset[indices] = np.searchsorted(ends, np.arange(len(indices)), side="right")
        room = share - np.bincount(subset[indices], minlength=len(waits))
    return subset


def _columns(found: Found, subset: np.ndarray, recipe: Recipe) -> dict[str, Any]:
    """What is stored of a group, subset after subset and in each in the order of the candidates' numbers."""
    order = np.argsort(subset, kind="stable")
    instances = found.instances[order]
    place = np.arange(len(order)) - np.searchsorted(subset[order], subset[order])
    return {
        **{field: getattr(instances, field) for field in ("size", "num_agents", "holes", "starts", "goals")},
        "optimum": found.solutions.cost[order],
        "lower_bound": found.solutions.lower_bound[order],
        "makespan": solve(instances, Objective.MAKESPAN).cost,
        "needs_wait": found.needs_wait[order],
        "wait_percent": np.array(recipe.wait_percents)[subset[order]],
        "serial": recipe.share * subset[order] + place,
    }
