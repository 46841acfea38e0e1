"""Does it help to know what the target is? Late states of the lab of families,
a round of training on each family, and judges of what will help.

A network learns for six rounds by `adarft`. From that state two branches are
trained for a round on each design: the rule's next one, and each family's boards
with two agents, with three and with both. Each branch is measured on boards of
every kind, so that a state serves every target. Printed for each target family
and number of agents: what the rule that is blind to the target gains, what the
target's own family gains above it, and the rank correlation over the families'
designs, within a state, between the gain and what a judge says of it:

  again     one branch's with the other's; the others are with the mean of both,
            and perfect is what would follow its true gain
  family    1 for the target's own family, else 0
  p (1 - p) of the design's boards
  reader    the shipped language model, taught with the other target families
            to rank designs, told the target, its share and its main failure in
            words. First it is taught to say whether the two families are the
            same one; in all that it is taught the families exchange their names
  renamed   the same, told another target family's name
  blind     taught and told without the failure
  asked     a pretrained model (--model), asked in words how useful one family is
            for another, from 1 to 5: times p (1 - p)

examples:
  python benchmarks/named_target.py --seeds 12
      some two minutes a seed of a core, and fifteen for the teaching
  python benchmarks/named_target.py --model models/smollm2
      also the judge that is asked; docs/policy.md says how to get the model
  python benchmarks/named_target.py --quick
      one seed with a few designs, nothing taught
"""

import argparse
import contextlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from many_kinds import reader, text
from side_by_side import fail, write_rows

from engineer.context import main_failure
from engineer.engineers.rules import valid_shares
from jaxlake.config import LakeConfig
from jaxlake.files import write_whole
from jaxlake.kinds import Family, Kind, read_kinds
from rl import config as config_
from rl.command import shipped
from rl.config import Config, ConfigError, ModelSection
from rl.config.choices import Dtype
from rl.judge.statistics import spearman
from rl.lab.branches import BranchTrainer
from rl.lab.designs import BranchPlan, Design, deduplicate, rule_designs
from rl.loop.rounds import execute, past_rounds
from rl.model.decoder import token_positions
from rl.model.policy import Policy
from rl.run.directory import RunDirectory
from rl.run.signals import Stop
from rl.run.tracking import Display
from rl.students import PlayerStudent, create

FAMILIES = (Family.ROOMS, Family.WAREHOUSE, Family.MAZE, Family.CROSSING, Family.CORRIDOR)
"""Families of targets. Bays are left out: nothing gains any there."""
REPEATS, SAMPLES = 2, 2
FIRST, STEPS, BATCH, EXCHANGED, WIDTH = 600, 200, 128, 8, 48
"""Updates on whether two names are one, updates on gains, examples of each, exchanges of the families' names, and room
for a text in tokens."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed with a few designs, nothing taught")
    parser.add_argument("--seeds", type=int, default=12, metavar="N", help="seeds 0 to N - 1 (default: 12)")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/named-target"), metavar="DIR", help="what is done is kept"
    )
    parser.add_argument("--model", type=Path, metavar="DIR", help="a pretrained model that is asked, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    if options.seeds < 1:
        fail(f"--seeds {options.seeds}: must be at least 1")
    try:
        useful = ask(options.model) if options.model else None
    except ConfigError as error:
        fail(error)
    out = options.out / ("quick" if options.quick else "whole")
    out.mkdir(parents=True, exist_ok=True)
    states = []
    for seed in range(1 if options.quick else options.seeds):
        file = out / f"gains{seed}.json"
        if not file.exists():
            write_whole(file, json.dumps(measure(out / f"seed{seed}", seed, options.quick)).encode())
        states.append(json.loads(file.read_text(encoding="utf-8")))
    write_rows(report(states, not options.quick, useful), options.json)


def measure(folder: Path, seed: int, quick: bool) -> dict:
    """Train a state, and return its table and the valid shares by kind before and after each branch."""
    small = ["rounds.count=1", "validation.instances=72"] if quick else []
    config = config_.load(shipped("lab-families.yaml"), [f"seed={seed}", "validation.samples=1", *small])
    with contextlib.closing(RunDirectory(folder, config)) as directory, Display() as display:
        execute(config, directory, display, Stop())
        student = create(config)
        assert isinstance(student, PlayerStudent)  # as the lab's are
        student.restore(directory, display)
        history = past_rounds(student.state.progress)
        blind = [design for design in rule_designs(history, seed) if design.origin == "adarft"]
        designs = deduplicate([*blind, *family_designs(config.lake.kinds, (2,) if quick else (2, 3))])
        plan = BranchPlan(str(folder), student.state.progress.round, tuple(designs), REPEATS, config.student.updates)
        trainer, branches = BranchTrainer(student, plan, SAMPLES), []
        for first in range(0, len(designs), 6):
            some = designs[first : first + 6]
            for design, gains in zip(some, trainer.train(some), strict=True):
                shares = [{str(kind): [row.before, row.after] for kind, row in gain.by_kind.items()} for gain in gains]
                branches.append({"origin": design.origin, "by_kind": shares})
    shares = valid_shares(history[-1].evidence, config.lake.kinds, history, unknown=0.0)
    failures = {row.kind.family.value: main_failure(row) for row in history[-1].evidence.by_kind}
    return {
        "p": {str(kind): share for kind, share in zip(config.lake.kinds, shares.tolist(), strict=True)},
        "failures": failures,
        "branches": branches,
    }


def family_designs(kinds: Sequence[Kind], numbers: Sequence[int]) -> list[Design]:
    """Return designs of one family's boards with each number of agents and with all; no board has a side below 5."""
    shared, designs = LakeConfig.uniform(kinds, 0.25, 0.25), []
    for family in Family:
        for agents in dict.fromkeys([*((number,) for number in numbers), tuple(numbers)]):
            data = np.array([k.family is family and k.num_agents in agents and k.size >= 5 for k in kinds], float)
            if data.any():
                config = LakeConfig(shared.kinds, tuple((data / data.sum()).tolist()), shared.hole, shared.wait)
                designs.append(Design(f"{family.value}:{''.join(map(str, agents))}", config))
    return designs


def kinds_of(origin: str) -> list[str]:
    """Return the kinds of a family's design, and of a target."""
    family, _, agents = origin.partition(":")
    return [str(k) for n in agents for k in read_kinds([f"{'' if family == 'random' else family}5-7x{n}"])]


class Gains:
    """The gains of one target from the families' designs.

    Attributes:
      values: points, float ``[seeds, designs, repeats]``.
      designs: their origins.
      blind: those of `adarft`, ``[seeds]``.
    """

    def __init__(self, states: Sequence[dict], target: str):
        kinds = [kind for kind in kinds_of(target) if kind in states[0]["branches"][0]["by_kind"][0]]

        def points(branch: dict) -> list[float]:
            return [100 * float(np.mean([shares[k][1] - shares[k][0] for k in kinds])) for shares in branch["by_kind"]]

        found = [
            {name: points(branch) for branch in state["branches"] for name in branch["origin"].split(", ")}
            for state in states
        ]
        self.designs = [name for name in found[0] if ":" in name]
        self.values = np.array([[of_state[name] for name in self.designs] for of_state in found])
        self.blind = np.array([np.mean(of_state["adarft"]) for of_state in found])


def report(states: Sequence[dict], taught: bool, useful: dict[tuple[str, str], float] | None) -> list[dict]:
    """Print what a target's own family gains above the rule that is blind to it, and how well judges rank designs."""
    targets = [f"{family.value}:{agents}" for family in FAMILIES for agents in (2, 3)]
    gains = {target: Gains(states, target) for target in targets}
    said = judge(states, gains, useful) if taught else {}
    rows = []
    for target, found in gains.items():
        own = found.designs.index(f"{target.partition(':')[0]}:2")  # boards with two agents: they teach the others too
        less = found.values[:, own].mean(axis=1) - found.blind
        print(f"\n{target}: adarft {found.blind.mean():+.1f}; its family with two agents, above it {text(less)}")
        scores = {"again": found.values[..., 1]} | {name: of[target] for name, of in said.items()}
        for name, score in scores.items():
            against = found.values[..., 0] if name == "again" else found.values.mean(axis=-1)
            found_by_seed = np.nan_to_num(spearman(against, score))
            print(f"  {name:10} rank correlation {text(found_by_seed, 2)}")
            if name == "again":  # Spearman and Brown: the reliability of the mean of two is 2 r / (1 + r)
                r = max(0.0, float(found_by_seed.mean()))
                print(f"  {'perfect':10} rank correlation {(2 * r / (1 + r)) ** 0.5:+.2f}")
        ours, peer = float(found.values[:, own].mean()), float(found.blind.mean())
        row = {"name": f"{target}: points of its own family and of adarft", "ours": ours, "peer": peer}
        rows.append(row | {"ratio": ours / peer if peer else None, "target": None, "met": None})
    return rows


def judge(
    states: Sequence[dict], gains: dict[str, Gains], useful: dict[tuple[str, str], float] | None
) -> dict[str, dict[str, np.ndarray]]:
    """Return what each judge says of each target's designs, ``[seeds, designs]``; see the top.

    A reader is taught by the ranks of designs within states and targets, from 0 to 1, with the other families' targets.
    """
    designs = next(iter(gains.values())).designs
    same = {target: np.array([name.split(":")[0] == target.split(":")[0] for name in designs]) for target in gains}
    p = np.array(
        [
            [np.mean([state["p"][kind] for kind in kinds_of(name) if kind in state["p"]]) for name in designs]
            for state in states
        ]
    )
    said = {
        "family": {target: np.tile(own.astype(float), (len(states), 1)) for target, own in same.items()},
        "p (1 - p)": dict.fromkeys(gains, p * (1 - p)),
    }
    if useful:
        said["asked"] = {
            target: np.array([useful[target.split(":")[0], name.split(":")[0]] for name in designs]) * p * (1 - p)
            for target in gains
        }
    model, first, tokens = reader()

    def write(target: str, named: dict[str, str], failure: bool, target_named: str | None = None) -> np.ndarray:
        """Return the texts of all states and designs, in tokens; families have these names."""
        family, agents = target.split(":")
        head, words = f"target {target_named or named[family]}, {agents} agents", []
        for state, shares in zip(states, p, strict=True):
            valid = np.mean([state["p"][kind] for kind in kinds_of(target) if kind in state["p"]])
            fails = f", fails by {state['failures'][family]}" if failure else ""
            for name, share in zip(designs, shares, strict=True):
                trained, numbers = name.split(":")
                train = f"train {named[trained]}, {numbers} agents, {share:.0%} valid: "
                words.append(f"{head}, {valid:.0%} valid{fails}. {train}")
        return tokens(words, WIDTH)

    families = [family.value for family in Family]
    plain = dict(zip(families, families, strict=True))
    rng = np.random.default_rng(0)
    exchanged = [dict(zip(families, rng.permutation(families), strict=True)) for _ in range(EXCHANGED)]
    order = {
        target: np.argsort(np.argsort(found.values.mean(axis=-1), axis=1), axis=1) for target, found in gains.items()
    }

    def teach(parameters: Any, x: np.ndarray, y: np.ndarray, steps: int) -> Any:
        """Return the parameters after so many steps on texts and shares."""
        parameters = jax.tree.map(jnp.copy, parameters)
        state = model.optimizer.init(parameters)
        for _ in range(steps):
            rows = rng.integers(0, len(x), BATCH)
            parameters, state = model.step(parameters, state, x[rows], y[rows].astype(np.float32))
        return parameters

    written = {
        t: [np.concatenate([write(t, named, fails) for named in exchanged]) for fails in (False, True)] for t in gains
    }
    every = np.concatenate([parts[1] for parts in written.values()])
    first = teach(first, every, np.concatenate([np.tile(same[t], len(states) * EXCHANGED) for t in gains]), FIRST)
    for failure, family in itertools.product((True, False), FAMILIES):
        held = [target for target in gains if target.startswith(family.value)]
        others = [target for target in gains if target not in held]
        x = np.concatenate([written[target][failure] for target in others])
        y = np.concatenate([np.tile(order[target].ravel() / (len(designs) - 1), EXCHANGED) for target in others])
        learned = teach(first, x, y, STEPS)
        wrong = FAMILIES[(FAMILIES.index(family) + 1) % len(FAMILIES)].value
        for target in held:
            shown_as = {"reader": write(target, plain, True), "renamed": write(target, plain, True, wrong)}
            for name, shown in (shown_as if failure else {"blind": write(target, plain, False)}).items():
                logit = np.asarray(model.predict(learned, shown)).reshape(len(states), len(designs))
                said.setdefault(name, {})[target] = logit
    return said


WORDS = {
    Family.RANDOM: "open ground with holes",
    Family.ROOMS: "rooms with doors",
    Family.MAZE: "a maze of passages",
    Family.WAREHOUSE: "a warehouse with aisles",
    Family.CROSSING: "a crossing of roads",
    Family.BAYS: "a road with passing bays",
    Family.CORRIDOR: "a corridor with one lane",
}


def ask(folder: Path) -> dict[tuple[str, str], float]:
    """Return how useful a model says that boards of one family are for another, by target and family: 1 to 5.

    It is the mean of the digits by their probabilities after the question; printed with a line for each target.
    """
    source = Config(model=ModelSection(path=str(folder), shape=None, dtype=Dtype.FLOAT32))
    policy, parameters = Policy.create(source, jax.random.key(0))
    encode, model, useful = policy.tokenizer.encode, nnx.merge(policy.graph, parameters), dict[tuple[str, str], float]()
    digits = np.array([encode(str(digit))[-1] for digit in range(1, 6)])
    print(f"\n{'useful for':12}", " ".join(f"{family.value:>9}" for family in WORDS))
    for target, its in WORDS.items():
        for family, theirs in WORDS.items():
            question = f"Robots must learn to cross {its}. How useful is it to practise on {theirs}?"
            text = encode(f"{question} Answer with a number from 1 (useless) to 5 (most useful). Answer: ")
            present = jnp.ones((1, len(text)), bool)
            last = model(jnp.array([text]), token_positions(present), present)[0, -1]
            useful[target.value, family.value] = float(jax.nn.softmax(model.head[digits] @ last) @ np.arange(1.0, 6.0))
        print(f"{target.value:12}", " ".join(f"{useful[target.value, family.value]:9.2f}" for family in WORDS))
    return useful


if __name__ == "__main__":
    main()
