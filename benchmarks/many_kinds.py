"""Can a designer that reads names beat tables and regressions, where kinds are
many and looks are few?

774 kinds of boards: family, side, agents, hole ratio and wait ratio. Two
thirds are there; before round 7 half of these give way to the last third,
whose names were never shown and are made of known words. A designer looks at
20 kinds a round (16 plays each, its only evidence), then names the kinds that
the lab's network trains on, nearest to half solved first. The measure is the
valid share on boards with four and five agents.

  random     looks and designs at random
  table      knows the kinds that it looked at
  pooled     neighbours in the known order of difficulty share their looks
  ridge      a regression on features of kinds, by Thompson draws
  gp         a Gaussian process on the same features
  network    a network on the same features, taught on states of other seeds
             and trained on the looks as they come
  reader     the shipped language model, taught and trained alike, from words
  permuted   the same, but each kind under another kind's name
  oracle     nearest to half by true shares
  branches   the best of all designs above, by a round of training on each

examples:
  python benchmarks/many_kinds.py --seeds 20
      a minute and a half a seed on two cores, and five for the teaching
  python benchmarks/many_kinds.py --quick
      one seed of three rounds, nothing taught
"""

import argparse
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from side_by_side import fail, write_rows

from engineer.engineers.features import features, posterior
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.files import write_whole
from jaxlake.generate import pool
from jaxlake.kinds import Family, read_kinds
from jaxlake.types import Instance
from jaxlake.verify import verify
from rl import config as config_
from rl.command import shipped
from rl.config import Config, ModelSection
from rl.judge.statistics import seed_interval
from rl.model.decoder import token_positions
from rl.model.policy import SHIPPED_MODEL, Policy
from rl.students.player import NetworkPlayer
from rl.students.player.learner import Learner
from rl.students.player.play import play
from rl.students.player.ppo import train_round

ROUNDS, REPLACED, LOOKS, LOOKED, TRAINED = 12, 6, 20, 16, 64
"""Rounds, the first one with other kinds, kinds a look has and boards of each, and boards of a kind to train on."""
NEAREST = 16
"""Kinds that a design has; data is 1 / rank."""
HELD_OUT = 0.2
"""Largest mean error of the taught model on kinds and seeds that it was not taught; beyond it no run begins."""
TEACHING, TESTING = (100, 101, 102), 103
"""Seeds whose states are taught, and the one that tests what was."""
WAITS, EDGE = (0.0, 0.25, 0.5), 0.02
"""Wait ratios of kinds, and the distance from 0 and 1 at which a share is taken, so that its logit is finite."""
STEPS, UPDATES, BATCH, RATE = 600, 20, 32, 1e-3
"""Steps of the teaching, steps on the looks after each round, kinds of a step, and the rate of what is taught."""

Inputs = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""``(levels [n], kinds [n]) -> [n, ...]``: what a taught model takes."""


class Cells:
    """All kinds with their ratios, and boards of each.

    Attributes:
      words: the name of each kind.
      features: float ``[cells, n]``, as `engineer.engineers.features` has them, and hole and wait ratio.
      difficulty: float ``[cells]``, in sides of a board; a tenth of holes counts as half a side.
      last: bool ``[cells]``, the third that comes before round `REPLACED`.
      half: bool ``[cells]``, the third that it replaces.
      looks, boards: `LOOKED` boards of each kind to look at and `TRAINED` to train on, with their least costs.
    """

    def __init__(self) -> None:
        kinds = read_kinds(["3-10", "4-10x3", "4-10x4", "5-10x5"])
        kinds += read_kinds(f"{family.value}5-7{more}" for family in self._walled() for more in ("", "x3"))
        ratios = {True: (0.0, 0.1, 0.2, 0.3, 0.4, 0.5), False: (0.1, 0.3, 0.5)}
        self.all = [(k, hole, wait) for k in kinds for hole in ratios[k.family is Family.RANDOM] for wait in WAITS]
        self.words = [
            f"{kind.family.value} {kind.size}, {kind.num_agents} agents, holes {hole:.0%}, wait {wait:.0%}"
            for kind, hole, wait in self.all
        ]
        ratio = np.array([[hole / MAX_HOLE, wait] for _, hole, wait in self.all])
        self.features = np.column_stack([features([kind for kind, *_ in self.all]), ratio])
        self.difficulty = np.array([kind.difficulty + 5 * hole for kind, hole, _ in self.all])
        part = np.random.default_rng(0).permutation(len(self.all)) % 3
        self.half, self.last = part == 1, part == 2
        self.looks, self.boards = self._draw(LOOKED, True), self._draw(TRAINED, False)
        is_target = [k.num_agents >= 4 and hole in (0.1, 0.2, 0.3) and wait == 0.25 for k, hole, wait in self.all]
        self.target = np.flatnonzero(is_target)

    @staticmethod
    def _walled() -> list[Family]:
        return [family for family in Family if family not in (Family.RANDOM, Family.BAYS)]  # bays: nothing gains any

    def _draw(self, count: int, validation: bool) -> tuple[Instance, np.ndarray]:
        parts = []
        for number, (kind, hole, wait) in enumerate(self.all):
            lake = LakeConfig(kinds=(kind,), data=(1.0,), hole=(hole,), wait=(wait,))
            key = jax.random.key(number)
            drawn = pool.draw(lake, key, count, validation=validation, max_size=10, max_agents=5)
            parts.append((drawn.instances, np.asarray(drawn.solutions.cost)))
        return jax.tree.map(lambda *x: np.stack(x), *parts)

    def present(self, number: int) -> np.ndarray:
        """Return the places of the kinds that there are after so many rounds."""
        return np.flatnonzero(~self.last if number < REPLACED else ~self.half)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed of three rounds, nothing taught")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="seeds 0 to N - 1 (default: 20)")
    parser.add_argument("--out", type=Path, default=Path("runs/many-kinds"), metavar="DIR", help="what is done is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    if options.seeds < 1:
        fail(f"--seeds {options.seeds}: must be at least 1")

    cells, options.out = Cells(), options.out / ("quick" if options.quick else "whole")
    options.out.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[], Predictor]] = {
        "random": lambda: Predictor(cells),
        "table": lambda: Table(cells),
        "pooled": lambda: Pooled(cells),
        "ridge": lambda: Ridge(cells),
        "gp": lambda: Process(cells),
    }
    if not options.quick:
        taught = teach(cells, options.out)
        makers |= {name: functools.partial(Taught, cells, *model) for name, model in taught.items()}
    done = []
    for seed in range(1 if options.quick else options.seeds):
        file = options.out / f"seed{seed}.json"
        if not file.exists():
            write_whole(file, json.dumps(run(cells, makers, seed, 3 if options.quick else ROUNDS)).encode())
        done.append(json.loads(file.read_text(encoding="utf-8")))
        print(f"seed {seed}: " + ", ".join(f"{name} {shares[-1]:.1%}" for name, shares in done[-1]["valid"].items()))
    write_rows(report(done), options.json)


def report(done: Sequence[dict]) -> list[dict]:
    """Print and return each designer's end, area and error, and what the reader has above it over the seeds."""
    one = "reader" if "reader" in done[0]["valid"] else "table"
    print(f"\n{'':9} {'end %':>6} {'area %':>6}   {one + ' less it, end':<34} {'area':<34} error on new names")
    rows = []
    for name in done[0]["valid"]:
        pairs = [[of_seed["valid"][who] for who in (one, name)] for of_seed in done]
        valid = 100 * np.array(pairs)  # [seeds, 2, rounds]
        less, (peer, ours) = valid[:, 0] - valid[:, 1], (float(valid[:, i, -1].mean()) for i in (0, 1))
        texts = [text(x) if name != one else "" for x in (less[:, -1], less.mean(axis=1))]
        errors = [of_seed["error"][name] for of_seed in done if name in of_seed["error"]]
        error = f"{np.mean(errors):.3f}" if errors else ""
        print(f"{name:9} {ours:6.1f} {valid[:, 1].mean():6.1f}   {texts[0]:<34} {texts[1]:<34} {error}")
        ratio = ours / peer if peer else None
        rows.append({"name": f"{name}: end %", "ours": ours, "peer": peer, "ratio": ratio, "target": None, "met": None})
    return rows


def text(by_seed: np.ndarray, digits: int = 1) -> str:
    """Return the mean over seeds with its 95 % interval, and the smallest difference that it detects."""
    mean = f"{by_seed.mean():+.{digits}f}"
    if len(by_seed) < 3:
        return mean
    found = seed_interval(by_seed)
    return f"{mean} [{found.low:+.{digits}f} {found.high:+.{digits}f}], detects {found.detectable:.{digits}f}"


class Student:
    """Networks of one seed, a lane for each designer."""

    def __init__(self, cells: Cells, seed: int, lanes: int):
        config = config_.load(shipped("lab.yaml"), [f"seed={seed}"])
        player = NetworkPlayer(config)
        self.cells, self.key, self.settings, self.actor = cells, jax.random.key(seed), player.settings, player.actor
        self.count, first = config.rounds.instances, player._first
        self.learner: Learner = jax.tree.map(lambda x: jnp.repeat(x, lanes, axis=0), first)

    def train(self, designs: Sequence[np.ndarray], number: int) -> None:
        """Train each lane on the kinds of its design; a kind's data is 1 / rank."""
        self.learner = self._trained(self.learner, designs, number)

    def _trained(self, learner: Learner, designs: Sequence[np.ndarray], number: int) -> Learner:
        rng, places = np.random.default_rng([int(jax.random.key_data(self.key)[-1]), number]), []
        for design in designs:
            weights = 1 / (1 + np.arange(len(design)))
            cell = design[
                np.searchsorted(np.cumsum(weights / weights.sum()), (np.arange(self.count) + 0.5) / self.count)
            ]
            places.append((cell, rng.integers(0, TRAINED, self.count)))
        levels, optima = jax.tree.map(lambda x: np.stack([x[place] for place in places]), self.cells.boards)
        keys = jnp.repeat(jax.random.fold_in(self.key, number)[None], len(designs), axis=0)
        return train_round(self.actor, self.settings, None, learner, levels, optima, keys)[0]

    def branch(self, lane: int, designs: Sequence[np.ndarray], number: int) -> int:
        """Return which design is best for a lane after a round, by the target and a tenth of everything."""
        learner = jax.tree.map(lambda x: jnp.repeat(x[lane : lane + 1], len(designs), axis=0), self.learner)
        after, everything = self._trained(learner, designs, number + 1000), np.arange(0, len(self.cells.all), 3)
        parts = (np.broadcast_to(part, (len(designs), len(part))) for part in (self.cells.target, everything))
        target, other = (self._shares(after.parameters, part, number, 4).mean(axis=1) for part in parts)
        return int(np.argmax(target + 0.1 * other))

    def target(self, number: int) -> np.ndarray:
        """Return each lane's valid share on the target."""
        lanes = len(jax.tree.leaves(self.learner)[0])
        return self.shares(np.tile(self.cells.target, (lanes, 1)), number, 8).mean(axis=1)

    def shares(self, cells: np.ndarray, number: int, boards: int, first: int = 0) -> np.ndarray:
        """Return the valid shares of lanes, from the `first` one on, on their kinds ``[lanes, n]``."""
        parameters = jax.tree.map(lambda x: x[first : first + len(cells)], self.learner.parameters)
        return self._shares(parameters, cells, number, boards)

    def _shares(self, parameters: Any, cells: np.ndarray, number: int, boards: int) -> np.ndarray:
        places = np.broadcast_to(cells[..., None], (*cells.shape, boards)), np.arange(boards)
        levels, optima = jax.tree.map(lambda x: x[places].reshape(len(cells), -1, *x.shape[2:]), self.cells.looks)
        keys = jnp.repeat(jax.random.fold_in(self.key, 2000 + number)[None], len(cells), axis=0)
        plans, _ = play(self.actor, None, parameters, levels, keys, False)
        valid = np.asarray(verify(levels, plans, optima).valid)
        return valid.reshape(*cells.shape, boards).mean(axis=2)


class Predictor:
    """What a designer knows of the kinds' valid shares; this one knows nothing, and so looks and designs at random.

    Attributes:
      seen: the looks: round, kind, valid share.
      level: mean share of the latest looks at random kinds.
    """

    def __init__(self, cells: Cells):
        self.cells, self.seen, self.level = cells, list[tuple[int, int, float]](), 0.0

    def observe(self, number: int, looked: np.ndarray, shares: np.ndarray) -> None:
        """Take in the looks after a round, those at random kinds last."""
        self.level = float(shares[LOOKS // 2 :].mean())
        self.seen += [(number, int(cell), float(share)) for cell, share in zip(looked, shares, strict=True)]

    def predict(self, number: int) -> np.ndarray:
        """Return each kind's expected logit, float ``[cells]``; NaN where nothing is known."""
        return np.full(len(self.cells.all), np.nan)

    def draw(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """Return the logits to design by: those of `predict`, or a draw where it is known how uncertain they are."""
        return self.predict(number)

    def nearest(self, number: int, present: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return so many of the kinds that are there, nearest to half solved first; those not known last, at random."""
        far = np.nan_to_num(np.abs(self.draw(number, rng)[present]), nan=np.inf)
        return present[np.lexsort([rng.random(len(far)), far])[:count]]

    def look_at(self, number: int, present: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the kinds of the next looks: half of them nearest to half solved, half at random."""
        near = self.nearest(number, present, rng, LOOKS // 2)
        return np.concatenate([near, rng.choice(np.setdiff1d(present, near), LOOKS - len(near), replace=False)])

    @property
    def recent(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rounds, kinds and logits of the looks of the last four rounds."""
        rows = [row for row in self.seen if row[0] > self.seen[-1][0] - 4]
        when, cell, share = np.array(rows).T if rows else np.zeros((3, 0))
        return when, cell.astype(int), logits(share)


class Table(Predictor):
    """The latest look at each kind."""

    def predict(self, number: int) -> np.ndarray:
        logit = super().predict(number)
        for _, cell, share in self.seen:
            logit[cell] = logits(share)
        return logit


class Pooled(Predictor):
    """Looks at neighbours in the known order of difficulty, a side's distance having 1 / e of the weight."""

    def predict(self, number: int) -> np.ndarray:
        when, cell, logit = self.recent
        if not len(cell):
            return super().predict(number)
        gap = np.abs(self.cells.difficulty[:, None] - self.cells.difficulty[cell])
        weight = np.exp(-gap - 0.5 * (number - when)) + 1e-12
        return weight @ logit / weight.sum(axis=1)


class Ridge(Predictor):
    """A ridge regression of logits on features and the round, with Thompson draws."""

    def _fit(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        when, cell, logit = self.recent
        asked = np.column_stack([self.cells.features, np.zeros(len(self.cells.all))])
        return asked, *posterior(np.column_stack([self.cells.features[cell], when - number]), logit)

    def predict(self, number: int) -> np.ndarray:
        asked, mean, _ = self._fit(number)
        return asked @ mean

    def draw(self, number: int, rng: np.random.Generator) -> np.ndarray:
        asked, mean, root = self._fit(number)
        return asked @ (mean + root @ rng.standard_normal(len(mean)))


class Process(Predictor):
    """A Gaussian process on features and a quarter of the round, about the looks' mean, with Thompson draws."""

    def _fit(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        when, cell, logit = self.recent
        x = self.cells.features
        old, new = np.column_stack([x[cell], when / 4]), np.column_stack([x, np.full(len(x), number / 4)])

        def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            square = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
            return 4 * np.exp(-0.5 * square)

        solved, center = np.linalg.solve(kernel(old, old) + 0.5 * np.eye(len(old)), kernel(old, new)), logit.mean()
        return center + (logit - center) @ solved, kernel(new, new) - kernel(new, old) @ solved

    def predict(self, number: int) -> np.ndarray:
        return self._fit(number)[0] if self.seen else super().predict(number)

    def draw(self, number: int, rng: np.random.Generator) -> np.ndarray:
        if not self.seen:
            return super().draw(number, rng)
        mean, spread = self._fit(number)
        return mean + np.linalg.cholesky(spread + 1e-6 * np.eye(len(mean))) @ rng.standard_normal(len(mean))


@dataclasses.dataclass(frozen=True)
class Model:
    """A function that is taught to predict shares: ``logits(parameters, inputs [n, ...]) -> [n]``."""

    logits: Callable[[Any, jax.Array], jax.Array]

    @functools.cached_property
    def optimizer(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(RATE))

    @functools.partial(jax.jit, static_argnums=0)
    def predict(self, parameters: Any, inputs: jax.Array) -> jax.Array:
        return self.logits(parameters, inputs)

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
    def step(self, parameters: Any, state: Any, inputs: jax.Array, shares: jax.Array) -> tuple[Any, Any]:
        """Make a step on the cross-entropy of shares."""

        def loss(parameters: Any) -> jax.Array:
            return optax.sigmoid_binary_cross_entropy(self.logits(parameters, inputs), shares).mean()

        updates, state = self.optimizer.update(jax.grad(loss)(parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state


class Taught(Predictor):
    """A taught model, which is trained on the looks as they come: half of a batch is of the latest round.

    Args:
      inputs: ``(levels [n], kinds [n]) -> [n, ...]``, as the model takes them: it is told how good the student is.
      shuffled: show each kind under another kind's name.
    """

    def __init__(self, cells: Cells, model: Model, parameters: Any, inputs: Inputs, shuffled: bool):
        super().__init__(cells)
        self.model, self.inputs, self.parameters = model, inputs, jax.tree.map(jnp.copy, parameters)
        self.state, self.levels = model.optimizer.init(self.parameters), list[float]()
        places = np.arange(len(cells.all))
        self.names = np.random.default_rng(1).permutation(places) if shuffled else places

    def observe(self, number: int, looked: np.ndarray, shares: np.ndarray) -> None:
        super().observe(number, looked, shares)
        self.levels += [self.level] * len(looked)
        when, cell, share = np.array(self.seen).T
        latest, rng = np.flatnonzero(when == number), np.random.default_rng(number)
        for _ in range(UPDATES):
            rows = np.concatenate([rng.choice(part, BATCH // 2) for part in (latest, np.arange(len(when)))])
            inputs = self.inputs(np.array(self.levels)[rows], self.names[cell[rows].astype(int)])
            self.parameters, self.state = self.model.step(self.parameters, self.state, inputs, share[rows])

    def predict(self, number: int) -> np.ndarray:
        inputs = self.inputs(np.full(len(self.names), self.level), self.names)
        return np.asarray(self.model.predict(self.parameters, inputs))


def logits(share: Any) -> Any:
    """Return logits of shares, which are kept from 0 and 1."""
    clipped = np.clip(share, EDGE, 1 - EDGE)
    return np.log(clipped / (1 - clipped))


def teach(cells: Cells, out: Path) -> dict[str, tuple[Model, Any, Inputs, bool]]:
    """Teach both models true shares of states of other seeds, without the names of the last third, and test them."""
    file = out / "states.npz"
    if not file.exists():
        partial = file.with_stem("partial")
        np.savez(partial, **{str(seed): truths(cells, seed) for seed in (*TEACHING, TESTING)})  # type: ignore[arg-type]
        partial.rename(file)
    with np.load(file) as states:
        taught, tested = np.concatenate([states[str(seed)] for seed in TEACHING]), states[str(TESTING)]
    read, parameters, tokens = reader()
    shown = tokens([f"{level}% valid: {words}. " for level in range(0, 101, 5) for words in cells.words])
    shown = shown.reshape(-1, len(cells.words), shown.shape[-1])

    def by_features(parameters: Any, x: jax.Array) -> jax.Array:
        for w, b in parameters[:-1]:
            x = jnp.tanh(x @ w + b)
        return (x @ parameters[-1][0] + parameters[-1][1])[..., 0]

    x = (cells.features - cells.features.mean(axis=0)) / (cells.features.std(axis=0) + 1e-6)
    sizes, make = (x.shape[1] + 1, 128, 128, 1), jax.nn.initializers.lecun_normal()
    layers = [
        (make(jax.random.key(i), (n, m), jnp.float32), jnp.zeros(m))
        for i, (n, m) in enumerate(itertools.pairwise(sizes))
    ]
    asked: dict[str, tuple[Model, Any, Inputs]] = {
        "network": (Model(by_features), layers, lambda level, cell: np.column_stack([x[cell], level])),
        "reader": (read, parameters, lambda level, cell: shown[np.round(20 * level).astype(int), cell]),
    }
    models: dict[str, tuple[Model, Any, Inputs, bool]] = {}
    for name, (model, first, inputs) in asked.items():
        learned, state, rng = jax.tree.map(jnp.copy, first), model.optimizer.init(first), np.random.default_rng(0)
        known, unseen, error = np.flatnonzero(~cells.last), np.flatnonzero(cells.last), []
        for _ in range(STEPS):
            row, cell = rng.integers(0, len(taught), 256), rng.choice(known, 256)
            learned, state = model.step(
                learned, state, inputs(_level(taught, rng, known)[row], cell), taught[row, cell]
            )
        for guessed, shares in zip(_level(tested, rng, known), tested, strict=True):
            p = jax.nn.sigmoid(model.predict(learned, inputs(np.full(len(unseen), guessed), unseen)))
            error.append(np.abs(np.asarray(p) - shares[unseen]).mean())
        constant = np.abs(tested[:, unseen] - taught.mean()).mean()
        print(f"{name}: mean error {np.mean(error):.3f} on names and a seed not taught; of a constant {constant:.3f}")
        if np.mean(error) > HELD_OUT:
            fail(f"{name}: its error must be at most {HELD_OUT}")
        models[name] = model, learned, inputs, False
    return models | {"permuted": (*models["reader"][:3], True)}


def reader() -> tuple[Model, Any, Callable[..., np.ndarray]]:
    """Return the shipped language model, its parameters, and what makes int ``[texts, width]`` of texts.

    Its logit is that of the word "valid" to follow a text, less that of "hole": it knows both.
    """
    source = Config(model=ModelSection(path=str(SHIPPED_MODEL), shape=None))
    policy, parameters = Policy.create(source, jax.random.key(0))
    valid, hole = (policy.tokenizer.encode(word)[-1] for word in ("valid", "hole"))

    def tokens(texts: Sequence[str], width: int | None = None) -> np.ndarray:
        rows = [policy.tokenizer.encode(text) for text in texts]
        width = width or max(map(len, rows))
        return np.array([row + [-1] * (width - len(row)) for row in rows])

    def logits(parameters: Any, tokens: jax.Array) -> jax.Array:
        present = tokens >= 0
        model = nnx.merge(policy.graph, parameters)
        hidden = model(jnp.maximum(tokens, 0), token_positions(present), present)
        last = jnp.take_along_axis(hidden, jnp.sum(present, axis=1)[:, None, None] - 1, axis=1)[:, 0]
        return (last @ (model.head[valid] - model.head[hole])).astype(jnp.float32)

    return Model(logits), parameters, tokens


def _level(shares: np.ndarray, rng: np.random.Generator, kinds: np.ndarray) -> np.ndarray:
    """Return how good the student is in each state, as a designer knows it from half of its looks."""
    return shares[:, rng.choice(kinds, LOOKS // 2)].mean(axis=1)


def truths(cells: Cells, seed: int) -> np.ndarray:
    """Return the valid shares of all kinds after each round of three runs with a seed, ``[3 * rounds, cells]``."""
    designers: list[Predictor] = [Predictor(cells), Table(cells), Ridge(cells)]
    student, rng, rows = Student(cells, seed, len(designers)), np.random.default_rng(seed), []
    for number in range(ROUNDS):
        student.train(design(student, designers, number, rng), number)
        rows += [student.shares(np.tile(np.arange(len(cells.all)), (len(designers), 1)), number, 8)]
    return np.concatenate(rows)


def design(student: Student, designers: Sequence[Predictor], number: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Let each designer look and design; its lane of the student has its number."""
    present = student.cells.present(number)
    looked = np.stack([one.look_at(number, present, rng) for one in designers])
    shares = student.shares(looked, number, LOOKED)
    for one, cell, share in zip(designers, looked, shares, strict=True):
        one.observe(number, cell, share)
    known = [
        len(set(present) & {cell for _, cell, _ in one.seen}) if isinstance(one, Table) else NEAREST
        for one in designers
    ]
    return [one.nearest(number, present, rng, min(NEAREST, n)) for one, n in zip(designers, known, strict=True)]


def run(cells: Cells, makers: dict[str, Callable[[], Predictor]], seed: int, rounds: int) -> dict:
    """Let all designers train from one network; return valid shares by round, and errors on names never shown."""
    rng, designers = np.random.default_rng(seed), {name: make() for name, make in makers.items()}
    names, new = [*designers, "oracle", "branches"], np.flatnonzero(cells.last)
    student, valid, errors = Student(cells, seed, len(names)), [], dict[str, float]()
    for number in range(rounds):
        if number == REPLACED:
            true = student.shares(np.tile(new, (len(designers), 1)), number, 8)
            for one, share, name in zip(designers.values(), true, designers, strict=True):
                guess = one.predict(number)[new]
                if np.isfinite(guess).any():
                    errors[name] = float(np.nanmean(np.abs(1 / (1 + np.exp(-guess)) - share)))
        designs, present = design(student, list(designers.values()), number, rng), cells.present(number)
        true = student.shares(present[None], number, 8, first=len(designers))[0]
        designs.append(present[np.lexsort([rng.random(len(true)), np.abs(true - 0.5)])[:NEAREST]])
        designs.append(designs[student.branch(len(designs), designs, number)])
        student.train(designs, number)
        valid.append(student.target(number))
    return {"valid": dict(zip(names, np.array(valid).T.tolist(), strict=True)), "error": errors}


if __name__ == "__main__":
    main()
