"""Reads the figures that several pages quote from runs, and writes them into the pages.

    python docs/figures.py                                              # write the pages from docs/figures.yaml
    python docs/figures.py first=runs/turns turns=runs/compare-turns    # read runs first, and draw their pictures anew
    python docs/figures.py pretrained=runs/compare-smollm2 machine="one NVIDIA H200"    # runs that were made elsewhere

A page marks a quoted figure: ``<!--=turns.checkpoint.end-->16.6``. A mark on a line of its own stands for the block of
code or the table below it. `tests/test_figures.py` holds that pages and ``figures.yaml`` agree.
"""

import dataclasses
import datetime
import functools
import itertools
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # rl and engineer are not installed

from engineer.context import FAILURES  # noqa: E402
from jaxlake import render as boards  # noqa: E402
from rl.judge.validation import summary  # noqa: E402
from rl.lab.statistics import t_interval  # noqa: E402
from rl.report import comparison as comparisons  # noqa: E402
from rl.report import pictures, samples, style, tables  # noqa: E402
from rl.report import run as runs  # noqa: E402
from rl.report.comparison.findings import MEASURES  # noqa: E402

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
HORIZON = ("checkpoint", "adarft", "fixed_random", "uniform")
"""Engineers of the long comparison."""


def main(arguments: list[str]) -> None:
    figures = load()
    given = dict(argument.split("=", 1) for argument in arguments)
    machine = given.pop("machine", None) or this_machine()
    for name, path in given.items():
        figures[name] = origin() | {"machine": machine} | READERS[name](Path(path))
    FILE.write_text(HEAD + yaml.dump(figures, Dumper=_Dumper, sort_keys=False, width=1000), encoding="utf-8")
    for page in PAGES:
        page.write_text(render(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    _save("regimes.png", _regimes, _read_regimes((ROOT / "docs" / "study" / "README.md").read_text(encoding="utf-8")))


HEAD = "# What several pages quote, written by docs/figures.py from runs. Percentages, unless a name says otherwise.\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def load() -> dict[str, Any]:
    """Return the figures by section; a section has the commit that read it and the machine that ran it."""
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
    """Return which commit reads figures, and when."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    return {"commit": commit, "date": datetime.date.today().isoformat()}


def this_machine() -> str:
    """Return the processor, its cores and the release of JAX."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    named = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    return f"{named[1] if named else platform.processor()}, {cores} cores, JAX {version('jax')}"


def read_run(path: Path) -> dict[str, Any]:
    """Read a run of the first command; write its pictures and an animated board that it solves."""
    run = runs.read(path)
    sampled = [100 * stage.evidence.sampled_valid for stage in run.stages]
    last = run.stages[-1]
    solved = [one for one in last.samples if all(one["checks"].values())]
    shown = max(solved, key=lambda one: (len(one["instance"]["starts"]), one["instance"]["size"]))
    moving = boards.animate(samples.instance_of(shown), samples.plan_of(shown))
    (ROOT / "docs" / "_static" / "solved.svg").write_text(moving, encoding="utf-8")
    wanted = {name: pictures.PICTURES[name] for name in ("learning.png", "kinds.png")}
    for name, picture in style.draw(wanted, run).items():
        (ROOT / "docs" / "_static" / f"first-{name}").write_bytes(picture)
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
        "greedy": f"{100 * last.evidence.valid / last.evidence.n:.1f}",
        "sampled_by_round": " ".join(f"{x:.1f}" for x in sampled[1:]),
        "tables": tables.table_text(dataclasses.replace(run, stages=run.stages[:7], rounds=run.rounds[:6])),
        "output": "\n".join(_output(run)),
    }


def _output(run: Any) -> Iterator[str]:
    """Yield lines that the command printed: the first, a round with its reading and design, the last."""
    design = next(past for past in run.rounds if past.index >= 3)
    read = design.context.splitlines()

    def validation(stage: Any) -> str:
        return f"{stage.name}: {summary(stage.evidence)}"

    yield validation(run.stages[0])
    yield "..."
    yield validation(run.stage(f"round {design.index - 1}"))
    yield f"{design.name}: reads {'; '.join(read[:4])}; ...; {read[-1]}"
    yield f"{design.name}: the policy designs"
    yield design.proposal["thinking"]
    yield json.dumps(design.proposal["parsed"], separators=(",", ":")).replace("},", "},\n ")
    yield "..."
    yield validation(run.stages[-1])


def read_comparison(config: str, picture: str, path: Path) -> dict[str, Any]:
    """Read a comparison of engineers by a player's curves, its seeds that all have; draw the claim.

    Args:
      config: the name of its file in ``configs/compare``.
      picture: the name in ``docs/study``.
    """
    result = comparisons.read(path)
    curves = {
        name: {seed: 100 * np.array(run.curve) for seed, run in runs.items()} for name, runs in result.runs.items()
    }
    seeds = sorted(set.intersection(*(set(own) for own in curves.values())))
    curves = {name: {seed: own[seed] for seed in seeds} for name, own in curves.items()}
    _save(picture, _headline, {name: np.array(list(own.values())) for name, own in curves.items()})
    rounds = len(next(iter(curves[result.baseline].values())))
    sections: dict[str, Any] = {"about": f"python -m rl.compare --config configs/compare/{config}.yaml"}
    for name in curves:
        sections[name] = _last(_failures([path / "arms" / name / f"seed{seed}" for seed in seeds]))
    return sections | {
        f"rounds{count}": _ends({name: {seed: x[:count] for seed, x in own.items()} for name, own in curves.items()})
        for count in sorted({min(6, rounds), rounds})
    }


def _ends(curves: Mapping[str, Mapping[int, np.ndarray]]) -> dict[str, Any]:
    """Return the end and the area of each engineer, and the differences of pairs with their intervals."""
    found: dict[str, Any] = {"seeds": len(next(iter(curves.values())))}
    for name, own in curves.items():
        found[name] = {measure: f"{np.mean([of(x) for x in own.values()]):.1f}" for measure, of in MEASURES.items()}
        found[name]["deviation"] = f"{np.std([x[-1] for x in own.values()], ddof=1):.1f}"
    for ours, theirs in itertools.permutations(curves, 2):
        if ours != "checkpoint" and theirs not in ("fixed_random", "checkpoint_shuffled"):
            continue
        for measure, of in MEASURES.items():
            pairs = np.array([of(curves[ours][seed]) - of(curves[theirs][seed]) for seed in curves[ours]])
            found[ours][f"{measure}_less_{theirs}"] = _paired(pairs)
    order = sorted(curves, key=lambda name: -np.mean([curve[-1] for curve in curves[name].values()]))
    title = f"end, above {WORDS['fixed_random']} [95 % t]"
    lines = [f"| boards from | end % | area % | {title} | area, above it |", "|---|---:|---:|---:|---:|"]
    for name in order:
        against = [found[name].get(f"{measure}_less_fixed_random", "") for measure in MEASURES]
        lines.append(
            f"| {WORDS[name]} (`{name}`) | {found[name]['end']} | {found[name]['area']} | {' | '.join(against)} |"
        )
    return found | {"table": "\n".join(lines)}


def _paired(differences: np.ndarray) -> str:
    """Write a mean difference with Student's 95 % interval over the seeds."""
    low, high = t_interval(differences)
    return f"{differences.mean():+.1f}" + ("" if low is None else f" [{low:+.1f} {high:+.1f}]")


def _headline(curves: Mapping[str, np.ndarray]) -> Figure:
    """Draw the validations of some engineers, mean over the seeds, with their names in words.

    Around it the interval of the mean, or every seed where they are too few for one that says something.
    """
    figure = Figure(figsize=(8.2, 3.4))
    axes = figure.subplots()
    colours = (style.BLUE, style.GREEN, style.VERMILION, style.GREY, style.PURPLE)
    shown = {name: (curves[name], colour) for name, colour in zip(HEADLINE, colours, strict=True) if name in curves}
    top = 1.3 * max(own.mean(axis=0).max() for own, _ in shown.values())
    for name, (own, colour) in sorted(shown.items(), key=lambda item: -item[1][0][:, -1].mean()):
        mean, rounds = own.mean(axis=0), range(own.shape[1])
        axes.plot(rounds, mean, "o-", color=colour, markersize=3, label=f"{mean[-1]:.0f} %: {WORDS[name]}")
        if len(own) < 5:
            axes.plot(rounds, own.T, color=colour, linewidth=0.5, alpha=0.5)
        else:
            axes.fill_between(rounds, *np.clip([t_interval(x) for x in own.T], 0, top).T, color=colour, alpha=0.15)
    axes.set(xlabel="after round", ylabel="boards solved, %", ylim=(0, top), xticks=list(rounds))
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), labelcolor="linecolor")
    figure.subplots_adjust(0.07, 0.14, 0.52, 0.97)
    return figure


def _save(name: str, drawing: Callable[[Any], Any], subject: Any) -> None:
    """Write a picture of the study as reports draw theirs."""
    (ROOT / "docs" / "study" / name).write_bytes(style.draw({name: drawing}, subject)[name])


def read_horizon(path: Path) -> dict[str, Any]:
    """Read the long comparison by GRPO, and the one by PPO in ``<path>-ppo`` if there is one; draw both in one picture.

    Only seeds count that all engineers have.
    """
    folders = {"GRPO": path, "PPO": path.with_name(f"{path.name}-ppo")}
    found: dict[str, Any] = {"about": "python -m rl.compare --config configs/compare/horizon.yaml"}
    drawn = {}
    for learner, folder in folders.items():
        finished = comparisons.read(folder).runs if folder.exists() else {}
        seeds = sorted(set.intersection(*(set(finished.get(name, ())) for name in HORIZON)))
        if seeds:
            curves = {name: 100 * np.array([finished[name][seed].curve for seed in seeds], float) for name in HORIZON}
            fails = _failures([folder / "arms" / "checkpoint" / f"seed{seed}" for seed in seeds])
            found[learner.lower()] = {"seeds": len(seeds)} | _at_rounds(curves) | _last(fails)
            drawn[learner] = curves, fails
    _save("horizon.png", _horizon, drawn)
    return found


def _at_rounds(curves: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write by engineer the mean over the seeds after some rounds, with the least and the largest; and a table."""
    counts = [count for count in (6, 10, 20, 30) if count <= next(iter(curves.values())).shape[1]]
    rows = {
        name: {
            f"after{count}": f"{x.mean():.1f} [{x.min():.1f} {x.max():.1f}]"
            for count, x in zip(counts, own.T[[c - 1 for c in counts]], strict=True)
        }
        for name, own in curves.items()
    }
    lines = [
        f"| boards from | {' | '.join(f'after {count} rounds' for count in counts)} |",
        "|---" * (1 + len(counts)) + "|",
    ]
    lines += [f"| {WORDS[name]} (`{name}`) | {' | '.join(row.values())} |" for name, row in rows.items()]
    return rows | {"table": "\n".join(lines)}


def _horizon(drawn: Mapping[str, Any]) -> Figure:
    """Draw a column for each learner.

    Above, the share of boards solved by who designs them; below, by which check greedy plays fail with its own designs.
    """
    figure = Figure(figsize=(10.6 if len(drawn) > 1 else 7.4, 5.6))
    panels = figure.subplots(2, len(drawn), sharex=True, sharey="row", squeeze=False)
    colours = (style.BLUE, style.GREEN, style.GREY, style.PURPLE)
    for (above, below), (learner, (curves, fails)) in zip(panels.T, drawn.items(), strict=True):
        for (name, own), colour in zip(curves.items(), colours, strict=True):
            above.plot(own.mean(axis=0), color=colour, label=WORDS[name])
            above.plot(own.T, color=colour, linewidth=0.5, alpha=0.4)
        for check, share in fails.items():
            below.plot(share, color=style.CHECK_COLOURS[check], label=FAILURES[check])
        above.set_title(learner)
        below.set_xlabel("after round")
    for row, words in zip(panels, ("boards solved, %", "greedy plays that fail, %"), strict=True):
        row[0].set(ylabel=words, ylim=(0, None))
        row[-1].legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.subplots_adjust(0.075, 0.1, 0.68 if len(drawn) > 1 else 0.6, 0.94, wspace=0.08, hspace=0.12)
    return figure


Regimes = tuple[list[str], list[tuple[str, list[tuple[float, ...] | None]]]]
"""The study's table: the heads of its columns; names of the regimes with mean, low and high of each cell, or None."""


def _read_regimes(page: str) -> Regimes:
    """Read the first table of the second study."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", page, re.MULTILINE)
    ]
    rows = rows[: next((i for i, row in enumerate(rows) if len(row) != len(rows[0])), len(rows))]
    regimes = []
    for name, *cells in rows[2:]:
        words = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", name)
        numbers = [re.search(r"([-+][\d.]+) \[([-+][\d.]+) ([-+][\d.]+)\]", cell) for cell in cells]
        regimes.append((words, [tuple(map(float, found.groups())) if found else None for found in numbers]))
    return rows[0][1:], regimes


def _regimes(table: Regimes) -> Figure:
    """Draw a panel for each column: means and intervals by regime. A span beyond the panel ends at its edge."""
    heads, regimes = table
    figure = Figure(figsize=(10.6, 3.8))
    panels = figure.subplots(1, len(heads), sharey=True)
    for column, (axes, head) in enumerate(zip(panels, heads, strict=True)):
        for place, (_, cells) in enumerate(regimes):
            if (cell := cells[column]) is not None:
                mean, low, high = cell
                colour = style.BLUE if low > 0 else style.VERMILION if high < 0 else style.GREY
                axes.plot([low, high], [place, place], color=colour, linewidth=2)
                axes.plot(mean, place, "o", color=colour)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(title=head, xlim=(-12, 24), xlabel="points")
        axes.grid(visible=True, axis="x")
    panels[0].set_yticks(range(len(regimes)), [words for words, _ in regimes])
    panels[0].invert_yaxis()
    figure.subplots_adjust(0.29, 0.13, 0.99, 0.92, wspace=0.08)
    return figure


FAILED = ("hole_free", "conflict_free", "goal_reached")
"""The checks that a play can fail."""


def _failures(folders: Sequence[Path]) -> dict[str, np.ndarray]:
    """Return by check the percentages of greedy plays that fail it first, float ``[rounds]``, mean over the runs."""
    stages = [[stage for stage in runs.read(folder).stages if stage.name.startswith("round")] for folder in folders]
    shares = {
        check: [[100 * one.evidence.first_failures[check] / one.evidence.n for one in run] for run in stages]
        for check in FAILED
    }
    return {check: np.mean(by_run, axis=0) for check, by_run in shares.items()}


def _last(fails: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Write by failure its share after the last round."""
    return {f"fails_{FAILURES[check]}": f"{share[-1]:.0f}" for check, share in fails.items()}


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "first": read_run,
    "turns": functools.partial(read_comparison, "turns", "headline.png"),
    "pretrained": functools.partial(read_comparison, "smollm2", "pretrained.png"),
    "horizon": read_horizon,
}
"""What reads the runs of a section of the file."""

if __name__ == "__main__":
    main(sys.argv[1:])
