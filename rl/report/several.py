"""The page on several runs, or on all runs of a comparison with its statistics; a run's own page says more of it."""

from collections.abc import Sequence
from pathlib import Path

from rl.report import card, comparison, html, page, pictures, tables
from rl.report.comparison import Comparison
from rl.report.run import Run, read
from rl.table import Table


def write_several(run_dirs: Sequence[Path], file: Path) -> None:
    """Write the page, and pictures into folders beside it that are called as the runs are.

    Args:
      run_dirs: of runs; one that holds a comparison stands for all of its runs.
      file: the page.

    Raises:
      ValueError: see `rl.report.page.write` and `rl.report.comparison.read`; or two runs have the same name.
      OSError: if the disk does not take it.
    """
    runs, compared = _read_all(run_dirs)
    drawn = {name: pictures.draw_all(run, ["allocation.png"]) for name, run in runs.items()}
    together = {name: comparison.draw_all(one) for name, one in compared.items()}
    blocks = []
    for name, one in compared.items():
        shown = (*map(html.paragraph, comparison.notes(one)), *page.shown(together[name], *together[name]))
        first, *others = map(html.table, comparison.tables(one))
        blocks.append(html.section(f"Engineers of {name} side by side", [first, *shown, *others]))
    blocks.append(html.section("Run by run", [html.table(_side_by_side(runs))]))
    for name, run in runs.items():
        parts = (page.headline(run), page.environments(run, drawn[name], level=3), page.designs(run, level=3))
        blocks.append(html.folded(name, parts))
    folders = {file.parent / name: pngs for name, pngs in (drawn | together).items()}
    title = f"Comparison {', '.join(compared)}" if compared else f"{len(runs)} runs"
    page.save(file, folders, html.document(title, blocks))


def _read_all(run_dirs: Sequence[Path]) -> tuple[dict[str, Run], dict[str, Comparison]]:
    """Read runs and comparisons by name, a comparison's runs with its own name before theirs."""
    runs: list[tuple[str, Run]] = []
    compared = {}
    for path in run_dirs:
        name = path.resolve().name
        if (path / "compare.yaml").exists():
            compared[name] = comparison.read(path)
            for engineer, arms in compared[name].arms.items():
                runs += [(f"{name}/{engineer}/seed{seed}", arm.run) for seed, arm in arms.items()]
        else:
            runs.append((name, read(path)))
    twice = [name for i, (name, _) in enumerate(runs) if name in compared or name in dict(runs[:i])]
    if twice:
        raise ValueError(f"two of the runs are called {twice[0]}: give each a page of its own")
    return dict(runs), compared


def _side_by_side(runs: dict[str, Run]) -> Table:
    """Show the last validation of each run."""
    rows = []
    for name, run in runs.items():
        last = run.stages[-1]
        shares = tables.shares(last)[None]
        cells = (tables.percent(shares.get(name)) for name in ("valid", "optimal", "sampled"))
        engineer = str(run.settings.get("engineer.kind", card.UNKNOWN))
        rows.append((name, engineer, str(run.settings.get("seed", "-")), last.name, *cells))
    header = ("run", "engineer", "seed", "after", "valid %", "optimal %", "sampled valid %")
    return Table("Last validation of each run [95 % interval]", header, tuple(rows))
