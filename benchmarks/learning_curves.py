"""What limits learning by reinforcement in the tiny run? Trains variants of it
from shared warm starts, at about the same processor time each.

Every variant goes on from the warm start of its seed, on the same validation
boards, with a uniform environment, so that only what it changes differs. All
but those named exact have outcome's credit and a rate of 3e-4, unless their
name says else; `plain` has the rate of 1e-4. Variants whose steps are dearer
get fewer of them. "Ours" is a variant's gain of greedy validity in points, the
peer's that of `plain`, or of what the variant names. Runs that are finished are kept, and broken ones go on.

The variants of the panel `eight updates` have the losses of `grpo.loss`, with
the bounds that their authors have, at equal steps: two passes over four parts
of a step's answers, as with one update the ratio is 1 and losses are alike.
They are compared with the clipped loss, `updates-8`. `gspo_token` is `gspo`
where all tokens of an answer share its advantage, and is left out.

`hardest` and `target` bracket what design can do: in all rounds but the first
the hardest boards alone, or an equal share of those of the validation.

examples:
  taskset -c 1 python benchmarks/learning_curves.py
      all variants of seed 0, then of seed 1 and 2: two to three minutes a run
  python benchmarks/learning_curves.py --only plain,iterations-2 --seeds 0
      two variants, once
  python benchmarks/learning_curves.py --table
      table and picture of what is finished
  python benchmarks/learning_curves.py --quick
      one variant, a few steps: only that the script works
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from side_by_side import fail, write_rows

from engineer import PastRound
from engineer.evidence import Evidence
from jaxlake.config import LakeConfig
from rl.config import SHIPPED
from rl.judge.statistics import seed_interval
from rl.model.presets import PRESETS
from rl.report.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, draw, panels

ROUNDS = 3
NEAR = 5
"""Steps at either end of a run over which what a step measures is averaged."""
SHAPES = {"1m": {"hidden_size": 144, "intermediate_size": 384}, "2m": {"hidden_size": 216, "intermediate_size": 576}}
"""What differs from the tiny preset; 1.0 and 2.0 million parameters."""
SHORT = ("rounds.instances=12", "grpo.prompts=4", "grpo.samples=2", "validation.instances=16", "validation.samples=2")
SHORT_WARM = ("warm_start.steps=8", "warm_start.instances=500")


@dataclasses.dataclass(frozen=True)
class Warm:
    """A warm start, by the name of its folder: settings besides the 400 steps, and the shape if it is not the tiny."""

    name: str = "base"
    overrides: tuple[str, ...] = ()
    shape: str | None = None


BASE = Warm()
PLAIN = (
    *("grpo.credit=outcome", "reward.kind=paper", "grpo.samples=8", "grpo.schedule=constant"),
    *("grpo.engineer_every=0", "grpo.learning_rate=3e-4", "grpo.warmup_steps=0", "engineer.kind=uniform"),
)
EXACT = (
    "grpo.credit=exact",
    "reward.kind=optimal",
    "grpo.samples=2",
    "grpo.schedule=linear",
    "grpo.learning_rate=5e-4",
)
"""As shipped, but for the rehearsals, the warmup and a rate of 1.2e-3."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """Settings of the rounds to compare.

    Attributes:
      name: of its folders.
      family: the panel of the picture that it is drawn in.
      overrides: besides those of `PLAIN`; later ones win.
      warm: what it goes on from.
      steps: of all rounds together, a multiple of their number: fewer, where a step is dearer.
      prompts: boards a step.
      seeds: only seeds below it are run, for what is long.
      peer: the variant that it is compared with.
    """

    name: str
    family: str
    overrides: tuple[str, ...] = ()
    warm: Warm = BASE
    steps: int = 75
    prompts: int = 24
    seeds: int = 99
    peer: str = "plain"


EIGHT = ("grpo.minibatches=4", "grpo.iterations=2", "grpo.learning_rate=1e-4")


def loss(name: str, *overrides: str) -> Variant:
    """Return a loss at eight updates a step, beside the clipped one."""
    return Variant(name, "eight updates", (*EIGHT, *overrides), steps=30, peer="updates-8")


# In the order in which they are run: what is most likely to matter comes first. With a bonus or a divergence in the
# loss, answers of groups without signal go through the backward pass, too: two thirds of all.
VARIANTS = (
    Variant("plain", "rate", ("grpo.learning_rate=1e-4",)),
    Variant("rate-3e-4", "rate"),
    Variant("rate-1e-3", "rate", ("grpo.learning_rate=1e-3",)),
    Variant("boards-96x2", "use of answers", ("grpo.samples=2",), prompts=96),
    Variant("iterations-2", "use of answers", ("grpo.iterations=2",), steps=42),
    Variant("minibatches-4", "use of answers", ("grpo.minibatches=4",), steps=60),
    Variant("resampling-2", "signal", ("grpo.resampling=2",)),
    Variant("entropy-0.01", "exploration", ("grpo.entropy_coefficient=0.01",), steps=39),
    Variant("kl-0.01", "exploration", ("grpo.kl_coefficient=0.01",), steps=33),
    Variant("warmup-15", "rate", ("grpo.warmup_steps=15",)),
    Variant("centered", "loss", ("grpo.advantage=centered",)),
    Variant("rloo", "loss", ("grpo.advantage=rloo",)),
    Variant("batch-std", "loss", ("grpo.advantage=batch_std",)),
    Variant("reward-optimal", "signal", ("reward.kind=optimal",)),
    Variant("warm-250", "warm start", warm=Warm("250", ("warm_start.steps=250",))),
    Variant("warm-750", "warm start", warm=Warm("750", ("warm_start.steps=750",))),
    Variant("warm-easy", "warm start", warm=Warm("easy", ("warm_start.kinds=[3,4]",))),
    Variant("model-1m", "size and length", warm=Warm("1m", shape="1m"), steps=42),
    Variant("ten-times", "size and length", steps=750, seeds=1),
    Variant("rate-3e-5", "rate", ("grpo.learning_rate=3e-5",)),
    Variant("linear", "rate", ("grpo.schedule=linear",)),
    Variant("boards-48x4", "use of answers", ("grpo.samples=4",), prompts=48),
    Variant("iterations-4", "use of answers", ("grpo.iterations=4",), steps=27),
    Variant("constant-divisor", "loss", ("grpo.aggregation=constant",)),
    Variant("no-upper-clip", "loss", ("grpo.clip_high=1.0",)),
    Variant("temperature-1.5", "exploration", ("grpo.temperature=1.5",)),
    Variant("model-2m", "size and length", warm=Warm("2m", shape="2m"), steps=24),
    loss("updates-8"),
    loss("gspo", "grpo.loss=gspo", "grpo.aggregation=sequence_mean", "grpo.clip_low=3e-4", "grpo.clip_high=4e-4"),
    loss("cispo", "grpo.loss=cispo", "grpo.clip_low=1"),
    loss("dppo", "grpo.loss=dppo"),
    loss("truncated", "grpo.correction=token"),
    loss("icepop", "grpo.correction=icepop"),
    Variant("exact", "exact credit", EXACT, prompts=96),
    Variant("exact-24x8", "exact credit", (*EXACT, "grpo.samples=8")),
    Variant("exact-250", "exact credit", EXACT, warm=Warm("250", ("warm_start.steps=250",)), prompts=96),
    Variant("exact-750", "exact credit", EXACT, warm=Warm("750", ("warm_start.steps=750",)), prompts=96),
    Variant("hardest", "brackets, outcome", ("engineer.kind=engineer.engineers.rules:hardest",), steps=120),
    Variant("target", "brackets, outcome", ("engineer.kind=learning_curves:target",), steps=120),
    Variant(
        "exact-hardest",
        "brackets, exact",
        (*EXACT, "engineer.kind=engineer.engineers.rules:hardest"),
        steps=120,
        prompts=96,
    ),
    Variant("exact-target", "brackets, exact", (*EXACT, "engineer.kind=learning_curves:target"), steps=120, prompts=96),
)
QUICK = Variant("quick", "rate", SHORT, Warm("quick", SHORT_WARM), steps=3, prompts=4)


def target(evidence: Evidence, history: Sequence[PastRound], key: jax.Array) -> LakeConfig:
    """Design as an engineer: an equal share of all kinds, with the validation's mean hole ratio and waits."""
    return LakeConfig.uniform(history[-1].config.kinds, hole=0.3, wait=0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one variant, a few steps")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--only", default="", metavar="NAMES", help="only these variants, with commas between")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once, a core each")
    parser.add_argument("--out", type=Path, default=Path("runs/learning_curves"), metavar="DIR", help="for the runs")
    parser.add_argument("--table", action="store_true", help="train nothing: only what is finished")
    options = parser.parse_args()

    variants = (QUICK,) if options.quick else chosen(options.only)
    seeds = options.seeds[:1] if options.quick else options.seeds
    if not options.table:
        Trainer(options.out).run_all(variants, seeds, options.jobs)
    results = [(variant, read_all(options.out, variant, seeds)) for variant in variants]
    results = [(variant, runs) for variant, runs in results if runs]
    if not results:
        fail(f"{options.out}: no variant is finished; without --table they are trained")
    by_name = {variant.name: variant for variant in VARIANTS}
    rows = [compare(variant, runs, read_all(options.out, by_name[variant.peer], seeds)) for variant, runs in results]
    show(rows)
    picture = options.out / "curves.png"
    picture.write_bytes(draw({"curves": (plot, "")}, results)["curves"].png)
    print(f"\n{picture}")
    write_rows(rows, options.json)


def chosen(only: str) -> tuple[Variant, ...]:
    names = [name for name in only.split(",") if name]
    known = {variant.name: variant for variant in VARIANTS}
    if unknown := [name for name in names if name not in known]:
        fail(f"--only {','.join(unknown)}: must be among {', '.join(known)}")
    return tuple(variant for variant in VARIANTS if not names or variant.name in names)


class Trainer:
    """Starts the runs below a folder, each as a command of its own.

    Beside each run a file has the processor seconds of its commands and whether the last one finished it; what a
    warm start costs is not its variants'.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._locks: dict[Path, threading.Lock] = {}  # two variants may need the same warm start at once

    def run_all(self, variants: Sequence[Variant], seeds: Sequence[int], jobs: int) -> None:
        """Train what is not finished, a whole seed of everything before the next one."""
        (self._out / "warm").mkdir(parents=True, exist_ok=True)
        todo = [(variant, seed) for seed in seeds for variant in variants if seed < variant.seeds]
        for variant, seed in todo:
            self._locks[warm_path(self._out, variant.warm, seed)] = threading.Lock()
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda task: self._train(*task), todo))

    def _train(self, variant: Variant, seed: int) -> None:
        start = warm_path(self._out, variant.warm, seed)
        with self._locks[start]:
            overrides = (
                "warm_start.steps=400",
                "warm_start.engineer_first=0",
                "warm_start.engineer_every=8",
                "warm_start.optimizer=adamw",
                "warm_start.learning_rate=1.5e-3",
                "validation.instances=12",
                "validation.samples=1",
                f"seed={seed}",
            )
            shape = self._shape(variant.warm.shape)
            if not self._command(start, ("--until", "warm_start", *overrides, *shape, *variant.warm.overrides)):
                return
        overrides = (
            *(f"seed={seed}", "warm_start.steps=0", "model.shape=null", f"model.path={start / 'final'}"),
            *(f"rounds.count={ROUNDS}", f"grpo.prompts={variant.prompts}"),
            *(f"rounds.instances={variant.steps // ROUNDS * variant.prompts}", *PLAIN),
            *("validation.instances=400", "validation.samples=8"),
        )
        run = run_path(self._out, variant, seed)
        if self._command(run, (*overrides, *variant.overrides)):
            result = read(run)
            (_, before), *_, (_, after) = result["stages"]
            gains = ", ".join(f"{key} {before[key]:.1f} -> {after[key]:.1f}" for key in ("greedy", "sampled", "pass"))
            print(f"{time.strftime('%H:%M:%S')} {run.name}: {gains}, {result['processor']:.0f} s", flush=True)

    def _shape(self, name: str | None) -> tuple[str, ...]:
        """Write a model's shape as a config.json; return the setting that names it, and no shipped weights with it."""
        folder = self._out / "shapes" / (name or "tiny")
        folder.mkdir(parents=True, exist_ok=True)
        fields = {k: v for k, v in dataclasses.asdict(PRESETS["tiny"]).items() if isinstance(v, int | float | bool)}
        (folder / "config.json").write_text(
            json.dumps({"model_type": "qwen3"} | fields | SHAPES.get(name, {})), encoding="utf-8"
        )
        return (f"model.shape={folder}",)

    def _command(self, run: Path, overrides: Sequence[str]) -> bool:
        """Run `rl.train` unless its run is finished, and note its processor time; return whether it is finished now."""
        note = cost_path(run)
        spent = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {"processor": 0.0, "finished": False}
        if spent["finished"]:
            return True
        settings = {text.split("=")[0]: text for text in overrides}  # the last one wins, and each may be given once
        with run.with_name(run.name + ".log").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rl.train",
                    "--config",
                    str(SHIPPED / "tiny.yaml"),
                    "--run",
                    str(run),
                    *settings.values(),
                ],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": f"{Path(__file__).parent}:{os.environ['PYTHONPATH']}"},  # for `target`
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        spent["processor"] += usage.ru_utime + usage.ru_stime
        # A run that was stopped ends with 0 as well; only a whole one leaves its policy.
        spent["finished"] = process.returncode == 0 and (run / "final" / "config.json").exists()
        note.write_text(json.dumps(spent) + "\n", encoding="utf-8")
        if not spent["finished"]:  # the others are worth having all the same
            print(f"{run}: ended with {process.returncode}, see {log.name}", file=sys.stderr, flush=True)
        return spent["finished"]


def run_path(out: Path, variant: Variant, seed: int) -> Path:
    return out / f"{variant.name}-{seed}"


def warm_path(out: Path, warm: Warm, seed: int) -> Path:
    return out / "warm" / f"{warm.name}-{seed}"


def cost_path(run: Path) -> Path:
    return run.with_name(run.name + ".json")


def read_all(out: Path, variant: Variant, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the finished runs of a variant by seed."""
    runs = {seed: run_path(out, variant, seed) for seed in seeds}
    notes = {seed: cost_path(run) for seed, run in runs.items()}
    return {seed: read(runs[seed]) for seed in seeds if notes[seed].exists() and _finished(notes[seed])}


def _finished(note: Path) -> bool:
    return json.loads(note.read_text(encoding="utf-8"))["finished"]


@functools.cache
def read(run: Path) -> dict[str, Any]:
    """Return a run's validations and what its steps measured.

    Returns:
      `stages`, its validations as (processor seconds, percentages), where the seconds of the whole command are spread
      evenly over the rounds, as these are equally long; what a step measures, over the first and the last steps.
    """
    steps = [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]
    processor = json.loads(cost_path(run).read_text(encoding="utf-8"))["processor"]
    stages = [(0.0, validation(run / "before"))]
    stages += [(processor * (k + 1) / ROUNDS, validation(run / "rounds" / str(k))) for k in range(ROUNDS)]
    ends = {key: (_mean(steps[:NEAR], key), _mean(steps[-NEAR:], key)) for key in ("entropy", "zero_advantage")}
    return {"stages": stages, "processor": processor, "steps": len(steps)} | ends


def _mean(steps: Sequence[Mapping[str, float]], key: str) -> float:
    """NaN where no step has it: a step without any signal computes no update."""
    known = [step[key] for step in steps if step.get(key) is not None]
    return statistics.fmean(known) if known else float("nan")


def validation(folder: Path) -> dict[str, float]:
    """Percentages of boards: solved greedily, by a sampled answer on average, and by one of eight samples at least."""
    evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    counts = ("n", "valid", "optimal", "groups", "all_invalid")
    total = {key: sum(row[key] for row in evidence["by_kind"]) for key in counts}
    return {
        "greedy": 100 * total["valid"] / total["n"],
        "optimal": 100 * total["optimal"] / total["n"],
        "sampled": 100 * evidence["sampled_valid"],
        "pass": 100 * (1 - total["all_invalid"] / total["groups"]),
    }


def gain(run: Mapping[str, Any], key: str) -> float:
    return run["stages"][-1][1][key] - run["stages"][0][1][key]


def compare(variant: Variant, runs: Mapping[int, Mapping[str, Any]], peers: Mapping[int, Mapping[str, Any]]) -> dict:
    """One row: means over the seeds. Met means that more is gained than by the peer on every seed that both have."""
    both = [seed for seed in runs if seed in peers]
    ours, peer = [gain(run, "greedy") for run in runs.values()], [gain(peers[seed], "greedy") for seed in both]
    mine, theirs = statistics.fmean(ours), statistics.fmean(peer) if peer else float("nan")
    less = (
        seed_interval(np.array([gain(runs[s], "sampled") - gain(peers[s], "sampled") for s in both])) if both else None
    )
    row = {
        "name": variant.name,
        "ours": mine,
        "peer": theirs if peer else None,
        "ratio": mine / theirs if peer and theirs else None,
        "target": theirs if peer else None,
        "met": all(gain(runs[s], "greedy") > gain(peers[s], "greedy") for s in both) if both else None,
        "seeds": sorted(runs),
        "spread": max(ours) - min(ours),
        "sampled_less_peer": less and [less.mean, less.t_low, less.t_high],
        "steps": statistics.fmean(run["steps"] for run in runs.values()),
        "processor_seconds": statistics.fmean(run["processor"] for run in runs.values()),
    }
    for key in ("greedy", "sampled", "pass", "optimal"):
        for name, place in (("before", 0), ("after", -1)):
            row[f"{key}_{name}"] = statistics.fmean(run["stages"][place][1][key] for run in runs.values())
    for key in ("entropy", "zero_advantage"):
        for name, place in (("before", 0), ("after", 1)):
            row[f"{key}_{name}"] = statistics.fmean(run[key][place] for run in runs.values())
    return row


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    print("\n% of validation boards before -> after the rounds, means over the seeds; spread: of the gain, max - min")
    print(
        "less peer: the sampled gain less that of plain, or of updates-8, with Student's 95 % interval over the seeds"
    )
    print(
        "entropy with exact credit: up to the wrong token; no signal: groups whose rewards are equal, which it can use"
    )
    print(
        f"{'variant':17} {'seeds':>5} {'greedy':>13} {'gain':>5} {'spread':>6} {'sampled':>13} {'less peer':>17} "
        f"{'one of 8':>13} "
        f"{'entropy':>13} {'no signal %':>11} {'steps':>5} {'processor s':>11}"
    )
    for row in rows:
        greedy, sampled, one = (
            f"{row[f'{key}_before']:5.1f} -> {row[f'{key}_after']:4.1f}" for key in ("greedy", "sampled", "pass")
        )
        mean, low, high = row["sampled_less_peer"] or (None, None, None)
        less = "-" if low is None else f"{mean:+.1f} [{low:+.1f} {high:+.1f}]"
        entropy = f"{row['entropy_before']:.3f}->{row['entropy_after']:.3f}"
        silent = f"{100 * row['zero_advantage_before']:.0f} -> {100 * row['zero_advantage_after']:.0f}"
        print(
            f"{row['name']:17} {len(row['seeds']):>5} {greedy:>13} {row['ours']:+5.1f} {row['spread']:6.1f} "
            f"{sampled:>13} {less:>17} {one:>13} {entropy:>13} {silent:>11} {row['steps']:5.0f} "
            f"{row['processor_seconds']:11.0f}"
        )


def plot(results: Sequence[tuple[Variant, dict[int, dict[str, Any]]]]) -> Any:
    """Points gained, greedy and (dashed) sampled, over processor seconds; a panel a family, with `plain` in grey."""
    families = list(dict.fromkeys(variant.family for variant, _ in results))
    figure, grid = panels(len(families), 2.5, "processor seconds", "points of validity gained", abreast=3, sharex=False)
    colours = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
    for axes, family in zip(grid, families, strict=True):
        members = [(v, runs) for v, runs in results if v.family == family and v.name != "plain"]
        lines = [(v, runs, colours[j % len(colours)]) for j, (v, runs) in enumerate(members)]
        for variant, runs, colour in [*lines, *((v, runs, GREY) for v, runs in results if v.name == "plain")]:
            for key, style, label in (("greedy", "-", variant.name), ("sampled", "--", None)):
                curves = [[(s, values[key]) for s, values in run["stages"]] for run in runs.values()]
                seconds, share = np.mean(curves, axis=0).T
                axes.plot(seconds, share - share[0], style, color=colour, linewidth=1.4, label=label)
        axes.axhline(0, color="black", linewidth=0.6)
        axes.set_title(family)
        axes.legend(fontsize=7, loc="best")
    return figure


if __name__ == "__main__":
    main()
