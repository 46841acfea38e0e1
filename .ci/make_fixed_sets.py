"""Draws and solves the package's fixed sets and stocks anew, the same bit for bit each time; an hour of a core.

    python .ci/make_fixed_sets.py check            # status 1 if the package's are not the same
    python .ci/make_fixed_sets.py build FOLDER     # writes the package's files

Which candidates a search leaves undecided is part of what a set is: given an account's, a later and better solver makes
the same set.
"""

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxlake.arguments import seed_key
from jaxlake.fixed_sets import POOLS, SETS, content_hash, load
from jaxlake.generate.candidates import BLOCK, Shape, fingerprints, fixed_fingerprints
from jaxlake.generate.search import Found, Quotas, first_boards
from jaxlake.kinds import Family, Kind
from jaxlake.solve import solve
from jaxlake.types import ABSENT, MAX_SIZE, Instance, Objective

HOLE_PERCENTS = (10, 20, 30, 40, 50)
_FIELDS: dict[str, Any] = {
    "size": np.uint8,
    "num_agents": np.uint8,
    "holes": np.uint8,
    "starts": np.int8,
    "goals": np.int8,
    "optimum": np.int16,
    "lower_bound": np.int16,
    "makespan": np.int16,
    "needs_wait": np.bool_,
    "hole_percent": np.uint8,
    "wait_percent": np.uint8,
    "serial": np.uint8,
    "family": "<U9",
}
"""The arrays of a set's file, ``[n, ...]`` each; ``holes`` is packed 8 cells to a byte, cells are of a 10x10 board.

A set of random boards alone has no ``family``, one without wait subsets no ``wait_percent``.
"""
_INSTANCE = tuple(field.name for field in dataclasses.fields(Instance))


class Recipe(NamedTuple):
    """The recipe of a fixed set.

    Attributes:
      seed: the key's seed.
      kinds: kinds of boards.
      share: instances of a group in each subset, and in all without subsets.
      wait_percents: a subset for each, with that share of instances that need a wait; none where waits are as they
        come.
      hole_percents: densities of the boards.
      step: candidates of a group that are searched at a time, see ``first_boards``; a block of bays takes 10 to 40 s.
      budget: candidates of a group: the boards that have family, agents, size and hole ratio in common.
      training: the boards are to be trained on: none is in a fixed set, and they are not solved for their makespan.
    """

    seed: int
    kinds: tuple[Kind, ...]
    share: int
    wait_percents: tuple[int, ...] = ()
    hole_percents: tuple[int, ...] = HOLE_PERCENTS
    step: int = BLOCK
    budget: int = 1 << 18
    training: bool = False

    @property
    def families(self) -> set[Family]:
        """Return the families of the kinds."""
        return {kind.family for kind in self.kinds}

    def waits(self, index: int, odd: int) -> np.ndarray:
        """Return how many instances need a wait in each subset of the group with hole ratio number ``index``.

        Rounded so that a subset's total over the hole ratios is within a half of its share: of 50 at .25 it is 12 in an
        even cell and 13 in an odd one, two or three for each hole ratio.
        """
        exact = np.array(self.wait_percents, int) * self.share
        return (exact * (index + 1) + 50 * odd) // 100 - (exact * index + 50 * odd) // 100


def _kinds(families: Iterable[Family], sizes: Mapping[int, range]) -> tuple[Kind, ...]:
    """Return every family with every number of agents at its sizes."""
    return tuple(Kind(family, size, agents) for family in families for agents in sizes for size in sizes[agents])


_LAID_OUT = (Family.ROOMS, Family.MAZE, Family.WAREHOUSE, Family.CROSSING, Family.BAYS, Family.CORRIDOR)
"""Families of the sets beside random boards; a new family is in none of them, so the sets stay as they are."""
_WITHOUT_BAYS = tuple(family for family in _LAID_OUT if family is not Family.BAYS)
RECIPES = {
    "test": Recipe(
        seed=260617682,
        kinds=_kinds([Family.RANDOM], {3: range(3, 11), 4: range(4, 11), 5: range(5, 11)}),
        share=10,
        wait_percents=(25, 50, 75),
    ),
    "validation": Recipe(seed=2, kinds=_kinds([Family.RANDOM], {2: range(3, 11)}), share=20, wait_percents=(50,)),
    "families": Recipe(
        seed=17,
        kinds=(
            *_kinds((Family.RANDOM, *_LAID_OUT), {2: range(5, 11), 3: range(5, 11)}),
            *_kinds((Family.RANDOM, *_WITHOUT_BAYS), {4: range(5, 11), 5: range(6, 11)}),
        ),
        share=5,
        hole_percents=(10, 30, 50),
        step=5,
    ),
    "pool": Recipe(
        seed=18,
        kinds=_kinds([Family.RANDOM], {2: range(3, 11), 3: range(4, 11), 4: range(4, 11), 5: range(5, 11)}),
        share=128,
        wait_percents=(25,),
        hole_percents=(0, *HOLE_PERCENTS),
        budget=1 << 11,
        training=True,
    ),
    "pool_families": Recipe(
        seed=19,
        kinds=(
            *_kinds(_LAID_OUT, {2: range(5, 8)}),
            *_kinds(_WITHOUT_BAYS, {3: range(5, 8)}),
        ),
        share=64,
        wait_percents=(25,),
        hole_percents=(10, 30, 50),
        step=16,
        budget=1 << 9,
        training=True,
    ),
}
"""The recipes of the sets.

In ``families`` waits are as they come. Its densities leave out 0, at which random, rooms, maze and warehouse are the
empty board. Its bays have at most three agents: with four the solver leaves 40 to 80 % of 8x8 boards undecided and
takes 13 to 53 s for five others, with five 93 % of 6x6 boards at density .1.
"""


def build(recipe: Recipe, account: Mapping[str, Any] | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return a set's arrays as ``pack`` has them, and the account of every group.

    Args:
      recipe: the set's recipe.
      account: account of an earlier build, whose undecided candidates are left out again; None decides anew.
    """
    dropped = {} if account is None else {_name(row): row["undecided"] for row in account["groups"]}
    parts: list[dict[str, np.ndarray]] = []
    groups: list[dict[str, Any]] = []
    for arrays, row in _groups(recipe, dropped):
        parts.extend([] if arrays is None else [arrays])
        groups.append(row)
    arrays = {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}
    instances = Instance(**{field: arrays[field] for field in _INSTANCE})
    # Of all groups at once: where few boards are hard, the solver's later stages cost as much as for many.
    unknown = np.full(len(instances), ABSENT)
    arrays["makespan"] = unknown if recipe.training else np.asarray(solve(instances, Objective.MAKESPAN).cost)
    return pack(arrays), {"instances": len(arrays["size"]), "groups": groups}


def group_key(recipe: Recipe, kind: Kind, percent: int) -> jax.Array:
    """Return a group's key; for random boards it depends on agents, size and hole ratio alone."""
    family = () if kind.family is Family.RANDOM else (list(Family).index(kind.family),)
    key = seed_key(recipe.seed)
    for number in (kind.num_agents, kind.size, percent, *family):
        key = jax.random.fold_in(key, number)
    return key


def _name(row: Mapping[str, Any]) -> tuple[str, int, int, float]:
    return row.get("family", Family.RANDOM.value), row["agents"], row["size"], row["hole_ratio"]


def _groups(
    recipe: Recipe, dropped: Mapping[tuple[str, int, int, float], Collection[int]]
) -> Iterator[tuple[dict[str, np.ndarray] | None, dict[str, Any]]]:
    # Few small boards are different, and two ratios can mean the same number of holes.
    known = set(fixed_fingerprints() if recipe.training else ())
    max_agents = max(kind.num_agents for kind in recipe.kinds)
    for kind, (index, percent) in itertools.product(recipe.kinds, enumerate(recipe.hole_percents)):
        shape = Shape(kind, percent / 100, MAX_SIZE, max_agents)
        group: dict[str, Any] = {"agents": kind.num_agents, "size": kind.size, "hole_ratio": percent / 100}
        group |= {"family": kind.family.value} if len(recipe.families) > 1 else {"holes": shape.holes}
        waits = recipe.waits(index, (kind.size + kind.num_agents) % 2)
        subsets = max(len(waits), 1)
        quotas = Quotas(recipe.share * subsets, int(waits.sum()) if len(waits) else None)
        key, skipped = group_key(recipe, kind, percent), dropped.get(_name(group), ())
        found, account = first_boards(shape, key, quotas, known, recipe.budget, skipped, recipe.step)
        arrays, realised = None, [0] * subsets
        if found is not None:
            known.update(fingerprints(found.instances))
            subset = _subsets(found.needs_wait, waits, recipe.share)
            arrays = _columns(found, subset, recipe) | {"hole_percent": np.full(len(subset), percent)}
            if len(recipe.families) > 1:
                arrays["family"] = np.full(len(subset), kind.family.value)
            realised = [int(np.sum(found.needs_wait[subset == number])) for number in range(subsets)]
        yield (
            arrays,
            {
                **group,
                **account._asdict(),
                "undecided": list(account.undecided),
                "requested": quotas.total,
                "realised": 0 if found is None else len(found),
                "requested_waits": waits.tolist(),
                "realised_waits": realised,
            },
        )


def _subsets(needs_wait: np.ndarray, waits: np.ndarray, share: int) -> np.ndarray:
    """Return the subset's number for each instance, int ``[n]``; a lack is spread over the subsets in proportion."""
    subset = np.zeros(len(needs_wait), int)
    if not len(waits):
        return subset
    room = waits
    for kind in (True, False):
        indices = np.flatnonzero(needs_wait == kind)
        ends = len(indices) * np.cumsum(room) // max(room.sum(), 1)
        subset[indices] = np.searchsorted(ends, np.arange(len(indices)), side="right")
        room = share - np.bincount(subset[indices], minlength=len(waits))
    return subset


def _columns(found: Found, subset: np.ndarray, recipe: Recipe) -> dict[str, Any]:
    """Return the stored columns of a group, subset after subset, in each in the order of the candidates' numbers."""
    order = np.argsort(subset, kind="stable")
    instances = found.instances[order]
    place = np.arange(len(order)) - np.searchsorted(subset[order], subset[order])
    columns = {
        **{field: getattr(instances, field) for field in _INSTANCE},
        "optimum": found.solutions.cost[order],
        "lower_bound": found.solutions.lower_bound[order],
        "needs_wait": found.needs_wait[order],
        "serial": recipe.share * subset[order] + place,
    }
    if recipe.wait_percents:
        columns["wait_percent"] = np.array(recipe.wait_percents)[subset[order]]
    return columns


def pack(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the stored arrays from columns ``[n, ...]`` named as in ``_FIELDS``, holes as bool ``[n, cells]``."""
    packed = {**columns, "holes": np.packbits(columns["holes"], axis=1)}
    return {name: np.ascontiguousarray(packed[name], dtype) for name, dtype in _FIELDS.items() if name in packed}


def store(sets: Mapping[str, tuple[dict[str, np.ndarray], dict[str, Any]]], folder: Path) -> None:
    """Write sets, each given as ``(arrays of pack, account)``, and their manifest into a folder."""
    manifest = {}
    for name, (arrays, account) in sets.items():
        fields: dict[str, Any] = arrays  # not of arrays alone: NumPy 2.1 has an option among the names of the fields
        np.savez_compressed(folder / f"{name}.npz", **fields)
        manifest[name] = {"sha256": content_hash(arrays), **account}
    (folder / "manifest.json").write_text(_json(manifest), encoding="utf-8")


def _json(manifest: Mapping[str, Any]) -> str:
    """One line for each group, so that a changed build can be read off a diff."""
    parts = []
    for name, account in manifest.items():
        rows = ",\n   ".join(json.dumps(row) for row in account["groups"])
        head = json.dumps({key: value for key, value in account.items() if key != "groups"})[1:-1]
        parts.append(f' "{name}": {{{head},\n  "groups": [\n   {rows}\n  ]}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _build(folder: Path) -> int:
    """Draw all sets into a folder, which is made before the work, not after it."""
    folder.mkdir(parents=True, exist_ok=True)
    store({name: _built(name) for name in (*SETS, *POOLS)}, folder)
    return 0


def _check() -> int:
    """Return 0 if the sets drawn anew, without the boards that were undecided at first, are those of the files."""
    shipped = {name: load(name).account for name in (*SETS, *POOLS)}
    differing = [name for name in shipped if content_hash(_built(name, shipped[name])[0]) != shipped[name]["sha256"]]
    for name in shipped:
        print(f"{name}: {'differs' if name in differing else 'the same'}")
    return 1 if differing else 0


def _built(name: str, account: Mapping[str, Any] | None = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Build a set and print its time."""
    began = time.perf_counter()
    built = build(RECIPES[name], account)
    print(f"{name}: {built[1]['instances']:,} instances in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return built


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    commands.add_parser("build").add_argument("folder", type=Path)
    options = parser.parse_args()
    return _check() if options.command == "check" else _build(options.folder)


if __name__ == "__main__":
    sys.exit(main())
