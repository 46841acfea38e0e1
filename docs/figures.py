"""Reads the figures that several pages quote from runs, and writes them into the pages.

    python docs/figures.py                                              # write the pages from docs/figures.yaml
    python docs/figures.py first=runs/turns turns=runs/compare-turns    # read runs first, and draw their pictures anew

A page marks a quoted figure: ``<!--=turns.checkpoint.end-->16.6``. A mark on a line of its own stands for the block of
code or the table below it. `tests/test_figures.py` holds that pages and ``figures.yaml`` agree.
"""

import dataclasses
import datetime
import itertools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "figures.yaml"
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FIGURE = re.compile(r"<!--=([\w.]+)-->([-+]?\d(?:[\d,.]*\d)?)( \[[^\]]*\])?")
BLOCK = re.compile(r"^<!--=([\w.]+)-->\n(```.*?^```|(?:^\|[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
WORDS = {
    "checkpoint": "its own designs",
    "base": "its frozen copy's designs",
    "checkpoint_renamed": "its own designs, every kind under another name",
    "checkpoint_shuffled": "its own designs from shuffled evidence",
    "fixed_random": "a fixed random environment",
    "uniform": "equal shares of all kinds",
    "targets_only": "the target kinds alone",
    "frontier": "the rule that it was taught",
    "adarft": "a rule that knows the order of difficulty",
    "learnability": "a rule: data by p (1 - p)",
}
"""Engineers in words, for pages and pictures."""
HEADLINE = ("checkpoint", "adarft", "checkpoint_shuffled", "fixed_random", "targets_only")
"""Engineers of the picture on README."""


def main(arguments: list[str]) -> None:
    figures = load()
    for name, path in (argument.split("=", 1) for argument in arguments):
        figures[name] = origin() | READERS[name](Path(path))
    FILE.write_text(HEAD + yaml.dump(figures, Dumper=_Dumper, sort_keys=False, width=1000), encoding="utf-8")
    for page in PAGES:
        page.write_text(render(page.read_text(encoding="utf-8"), figures), encoding="utf-8")


HEAD = "# What several pages quote, written by docs/figures.py from runs. Percentages, unless a name says otherwise.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def load() -> dict[str, Any]:
    """Return the figures by section; a section has the commit, the processor and the JAX that they are from."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8")) or {} if FILE.exists() else {}


def render(page: str, figures: Mapping[str, Any]) -> str:
    """Return a page with what it quotes as it is in the figures."""

    def figure(match: re.Match[str]) -> str:
        return f"<!--={match[1]}-->{look_up(figures, match[1])}"

    def block(match: re.Match[str]) -> str:
        text = look_up(figures, match[1]).rstrip("\n")
        return f"<!--={match[1]}-->\n" + (f"```\n{text}\n```" if match[2].startswith("```") else f"{text}\n")

    return BLOCK.sub(block, FIGURE.sub(figure, page))


def look_up(figures: Any, name: str) -> str:
    """Return a figure by its dotted name as a page has it; KeyError names one that there is not."""
    for part in name.split("."):
        if part not in figures:
            raise KeyError(f"docs/figures.yaml has no {name}")
        figures = figures[part]
    return str(figures)


def origin() -> dict[str, str]:
    """Return where figures are from."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    return {
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "processor": f"{named[1] if named else platform.processor()}, {len(os.sched_getaffinity(0))} cores",
        "jax": version("jax"),
    }


def read_run(path: Path) -> dict[str, Any]:
    """Read a run of the first command; write its pictures and an animated board that it solves."""
    from jaxlake import render as boards
    from rl.report import pictures, style, tables
    from rl.report import run as runs
    from rl.run import samples

    run = runs.read(path)
    sampled = [100 * stage.evidence.sampled_valid for stage in run.stages]
    greedy = [100 * stage.valid_share for stage in run.stages]
    last = run.stages[-1]
    solved = [one for one in last.samples if all(one["checks"].values())]
    shown = max(solved, key=lambda one: (len(one["instance"]["starts"]), one["instance"]["size"]))
    moving = boards.animate(samples.instance_of(shown), samples.plan_of(shown))
    (ROOT / "docs" / "_static" / "solved.svg").write_text(moving, encoding="utf-8")
    wanted = {name: pictures.PICTURES[name] for name in ("learning.png", "kinds.png")}
    for name, picture in style.draw(wanted, run).items():
        (ROOT / "docs" / "_static" / f"first-{name}").write_bytes(picture.png)
    timings = [json.loads(line) for line in (path / "timings.jsonl").read_text(encoding="utf-8").splitlines()]
    seconds = (path / "report" / "report.html").stat().st_mtime - (path / "config.yaml").stat().st_mtime
    return {
        "about": f"python -m rl.train, seed {run.settings['seed']}",
        "minutes": f"{seconds / 60:.1f}",
        "memory_gb": f"{max(row['memory_gb'] for row in timings):.1f}",
        "boards": last.evidence.n,
        "rounds": len(run.rounds),
        "sampled": f"{sampled[-1]:.1f}",
        "half_interval": f"{196 * last.evidence.sampled_se:.1f}",
        "greedy": f"{greedy[-1]:.1f}",
        "sampled_by_round": " ".join(f"{x:.1f}" for x in sampled[1:]),
        "tables": tables.table_text(dataclasses.replace(run, stages=run.stages[:7], rounds=run.rounds[:6])),
        "output": "\n".join(_output(path, run, sampled, greedy)),
    }


def _output(path: Path, run: Any, sampled: list[float], greedy: list[float]) -> Iterator[str]:
    """Yield lines that the command printed: the first, a round with its reading and design, the last."""
    design = next(past.index for past in run.rounds if past.index >= 3)

    def validation(i: int) -> str:
        evidence, name = run.stages[i].evidence, run.stages[i].name
        half = 196 * evidence.sampled_se
        shares = f"{greedy[i]:.1f}% greedy, {sampled[i]:.1f}% sampled (+- {half:.1f}%)"
        return f"{name}: valid {shares} of {evidence.n} validation boards"

    proposal = json.loads((path / "rounds" / str(design) / "proposal.json").read_text(encoding="utf-8"))
    read = (path / "rounds" / str(design) / "context.md").read_text(encoding="utf-8").split("\n")
    yield validation(0)
    yield "..."
    yield validation(design)
    yield f"round {design}: reads {'; '.join(read[:4])}; ...; {read[-2]}"
    yield f"round {design}: the policy designs"
    yield proposal["thinking"]
    yield json.dumps(proposal["parsed"], separators=(",", ":")).replace("},", "},\n ")
    yield "..."
    yield validation(len(run.stages) - 1)


def read_comparison(path: Path) -> dict[str, Any]:
    """Read a comparison of engineers on the player of the first command, its seeds that all have; draw the claim."""
    from rl.report import comparison as comparisons

    result = comparisons.read(path)
    curves = {
        name: {seed: 100 * np.array(run.curve) for seed, run in runs.items()} for name, runs in result.runs.items()
    }
    seeds = sorted(set.intersection(*(set(own) for own in curves.values())))
    curves = {name: {seed: own[seed] for seed in seeds} for name, own in curves.items()}
    _headline({name: np.array(list(own.values())) for name, own in curves.items()})
    rounds = len(next(iter(curves[result.baseline].values())))
    sections: dict[str, Any] = {"about": "python -m rl.compare --config configs/compare/turns.yaml"}
    for name in curves:
        runs = [_failures(path / "arms" / name / f"seed{seed}")[-1] for seed in seeds]
        shares = zip(FAILURES.values(), np.mean(runs, axis=0), strict=True)
        sections[f"{name}_fails"] = {words.split()[-1]: f"{share:.0f}" for words, share in shares}
    return sections | {
        f"rounds{count}": _ends({name: {seed: x[:count] for seed, x in own.items()} for name, own in curves.items()})
        for count in sorted({min(6, rounds), rounds})
    }


def _ends(curves: Mapping[str, Mapping[int, np.ndarray]]) -> dict[str, Any]:
    """Return the end and the area of each engineer, and the differences of pairs with their intervals."""
    measures = {"end": lambda curve: curve[-1], "area": lambda curve: curve[1:].mean()}
    found: dict[str, Any] = {"seeds": len(next(iter(curves.values())))}
    for name, own in curves.items():
        found[name] = {measure: f"{np.mean([of(x) for x in own.values()]):.1f}" for measure, of in measures.items()}
        found[name]["deviation"] = f"{np.std([x[-1] for x in own.values()], ddof=1):.1f}"
    for ours, theirs in itertools.permutations(curves, 2):
        if ours != "checkpoint" and theirs not in ("fixed_random", "checkpoint_shuffled"):
            continue
        for measure, of in measures.items():
            pairs = np.array([of(curves[ours][seed]) - of(curves[theirs][seed]) for seed in curves[ours]])
            found[ours][f"{measure}_less_{theirs}"] = _paired(pairs)
    order = sorted(curves, key=lambda name: -np.mean([curve[-1] for curve in curves[name].values()]))
    title = f"end, above {WORDS['fixed_random']} [95 % t]"
    lines = [f"| boards from | end % | area % | {title} | area, above it |", "|---|---:|---:|---:|---:|"]
    for name in order:
        against = [found[name].get(f"{measure}_less_fixed_random", "") for measure in measures]
        lines.append(
            f"| {WORDS[name]} (`{name}`) | {found[name]['end']} | {found[name]['area']} | {' | '.join(against)} |"
        )
    return found | {"table": "\n".join(lines)}


def _paired(differences: np.ndarray) -> str:
    """Write a mean difference with Student's 95 % interval over the seeds, and what could have been detected."""
    from rl.judge.statistics import seed_interval

    found = seed_interval(differences)
    if found.t_low is None:
        return f"{found.mean:+.1f}"
    return f"{found.mean:+.1f} [{found.t_low:+.1f} {found.t_high:+.1f}]"


def _headline(curves: Mapping[str, np.ndarray]) -> None:
    """Draw the validations of some engineers, mean over the seeds with its interval, with their names in words."""
    from matplotlib.figure import Figure

    from rl.judge.statistics import t_interval
    from rl.report import style

    figure = Figure(figsize=(8.2, 3.4), dpi=style.DPI)
    axes = figure.subplots()
    colours = (style.BLUE, style.GREEN, style.VERMILION, style.GREY, style.PURPLE)
    shown = {name: (curves[name], colour) for name, colour in zip(HEADLINE, colours, strict=True) if name in curves}
    top = 1.3 * max(own.mean(axis=0).max() for own, _ in shown.values())
    for name, (own, colour) in sorted(shown.items(), key=lambda item: -item[1][0][:, -1].mean()):
        mean, rounds = own.mean(axis=0), range(own.shape[1])
        axes.plot(rounds, mean, "o-", color=colour, markersize=3, label=f"{mean[-1]:.0f} %: {WORDS[name]}")
        if len(own) > 1:
            axes.fill_between(rounds, *np.clip([t_interval(x) for x in own.T], 0, top).T, color=colour, alpha=0.15)
    axes.set(xlabel="after round", ylabel="boards solved, %", ylim=(0, top), xticks=list(rounds))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelcolor="linecolor")
    figure.subplots_adjust(0.07, 0.14, 0.52, 0.97)
    figure.savefig(ROOT / "docs" / "study" / "headline.png", metadata={"Software": None})


def read_horizon(path: Path) -> dict[str, Any]:
    """Read the long comparison by GRPO, and the one by PPO in ``<path>-ppo`` beside it; draw both in one picture.

    Above, the share of boards solved by who designs them; below, by which check greedy plays fail with its own designs.
    """
    from matplotlib.figure import Figure

    from rl.report import comparison as comparisons
    from rl.report import style

    figure = Figure(figsize=(10.6, 5.6), dpi=style.DPI)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    found: dict[str, Any] = {"about": "python -m rl.compare --config configs/compare/horizon.yaml"}
    for column, (learner, folder) in enumerate({"GRPO": path, "PPO": path.with_name(f"{path.name}-ppo")}.items()):
        result, (above, below) = comparisons.read(folder), panels[:, column]
        section = found[learner.lower()] = {"seeds": min(map(len, result.runs.values()))}
        colours = (style.BLUE, style.GREEN, style.GREY, style.PURPLE)
        for name, colour in zip(("checkpoint", "adarft", "fixed_random", "uniform"), colours, strict=True):
            curves = 100 * np.array([run.curve for run in result.runs[name].values()], float)
            above.plot(curves.mean(axis=0), color=colour, label=WORDS[name])
            above.plot(curves.T, color=colour, linewidth=0.5, alpha=0.4)
            ends = {f"after{count}": curves[:, count - 1] for count in (6, 10, 20, 30) if count <= curves.shape[1]}
            section[name] = {key: f"{x.mean():.1f} [{x.min():.1f} {x.max():.1f}]" for key, x in ends.items()}
        shares = np.mean([_failures(run) for run in sorted((folder / "arms" / "checkpoint").glob("seed*"))], axis=0)
        for (check, words), share in zip(FAILURES.items(), shares.T, strict=True):
            below.plot(share, color=style.CHECK_COLOURS[check], label=words)
            section[f"fails_{words.split()[-1]}"] = f"{share[-1]:.0f}"
        above.set_title(learner)
        below.set_xlabel("after round")
    panels[0, 0].set(ylabel="boards solved, %", ylim=(0, None))
    panels[1, 0].set(ylabel="greedy plays that fail, %", ylim=(0, None))
    panels[0, 1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    panels[1, 1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    figure.subplots_adjust(0.06, 0.1, 0.68, 0.94, wspace=0.08, hspace=0.12)
    figure.savefig(ROOT / "docs" / "study" / "horizon.png", metadata={"Software": None})
    return found


FAILURES = {"hole_free": "in a hole", "conflict_free": "in a conflict", "goal_reached": "out of steps"}


def _failures(run: Path) -> list[list[float]]:
    """Return for each round the percentages of greedy plays that fail by each check of `FAILURES`."""
    paths = sorted((run / "rounds").glob("*/evidence.json"), key=lambda path: int(path.parent.name))
    by_round = [json.loads(path.read_text(encoding="utf-8"))["by_kind"] for path in paths]
    plays = sum(row["n"] for row in by_round[0])
    return [[100 * sum(row["first_failures"][c] for row in rows) / plays for c in FAILURES] for rows in by_round]


READERS = {"first": read_run, "turns": read_comparison, "horizon": read_horizon}
"""What reads the runs of a section of the file."""

if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(sys.argv[1:])
