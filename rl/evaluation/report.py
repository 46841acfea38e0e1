"""The tables of an evaluation, for a terminal and as Markdown, with the paper's figures beside ours."""

import textwrap
from collections.abc import Sequence

from jaxlake.benchmark import FAILURES, PublishedRow, published
from rl.evaluation.scoring import Evaluation, Line
from rl.report.shares import Share
from rl.report.table import WIDTH, Table

NOTE = (
    'In brackets 95 % intervals by Wilson, over boards. A mean counts every size the same (the paper\'s "Sum"). '
    "Optimal | valid: of the valid answers, those that are optimal."
)
OURS = "this model"


def to_text(evaluation: Evaluation) -> str:
    """Write what the user sees at the end."""
    tables = [_by_size(evaluation, agents) for agents in evaluation.agents] + _together(evaluation)
    tables += _chances(evaluation, [line for line in evaluation.whole if line.size is None]) + _failures(evaluation)
    if _comparable(evaluation):
        tables.append(_beside_sums(evaluation))
    facts = (textwrap.fill(fact, WIDTH) for fact in _facts(evaluation))
    return "\n\n".join([*facts, *(table.to_text() for table in tables)])


def to_markdown(evaluation: Evaluation) -> str:
    """Write the whole report."""
    tables = [_by_size(evaluation, agents) for agents in evaluation.agents] + _together(evaluation)
    tables += _chances(evaluation, evaluation.lines)
    for agents in evaluation.agents:
        tables += _by_wait_and_size(evaluation, agents)
    tables += _failures(evaluation)
    if _comparable(evaluation):
        tables += [_beside(evaluation, agents) for agents in evaluation.agents]
        tables.append(_beside_contexts(evaluation))
    about = "\n".join(f"- {name}: {value}" for name, value in evaluation.about.items())
    title = f"# {evaluation.about['model']} on the {evaluation.about['suite']} suite"
    sections = [title, *_facts(evaluation), NOTE, *(table.to_markdown() for table in tables), "## Settings", about]
    return "\n\n".join(sections) + "\n"


def _facts(evaluation: Evaluation) -> list[str]:
    """Say how the figures came about, and what is wrong with them, a paragraph each."""
    about, scores = evaluation.about, evaluation.scores
    asked, missing = len(scores.benchmark), len(scores.benchmark) * evaluation.samples - int(scores.answers.sum())
    how = "greedy" if about["temperature"] == 0 else f"sampled at temperature {about['temperature']:g}"
    if about["temperature"]:
        how += f", top-k {about['top_k']}" * (about["top_k"] > 0) + f", top-p {about['top_p']:g}" * (about["top_p"] < 1)
    answers = "one answer" if evaluation.samples == 1 else f"{evaluation.samples} answers"
    objective = scores.objective.value.replace("_", " ")
    of = f"{asked:,} of {scores.benchmark.account['instances']:,} boards"
    facts = [f"{about['suite']} suite, {of}, {answers} each, {how}; optimal by {objective}"]
    if missing:
        facts.append(f"{missing:,} answers are missing and count as invalid.")
    if evaluation.lengths.truncated:
        facts.append(
            f"{evaluation.lengths.truncated:.1f} % of the answers were cut off at text.max_new_tokens = "
            f"{about['max_new_tokens']:,}; with more room some of them may be valid."
        )
    return facts


def _by_size(evaluation: Evaluation, agents: int) -> Table:
    """Show sizes and their mean, then the means of the wait subsets."""
    lines = [line for line in evaluation.lines if line.agents == agents]
    whole = [line for line in lines if line.whole]
    waits = [line for line in lines if not line.whole and line.size is None]
    return _figures(f"{agents} agents", whole + waits)


def _together(evaluation: Evaluation) -> list[Table]:
    """Show all numbers of agents, where there are several."""
    lines = sorted((line for line in evaluation.lines if line.agents is None), key=lambda line: not line.whole)
    return [_figures("All agents, mean over agents and sizes", lines)] if lines else []


def _figures(title: str, lines: Sequence[Line]) -> Table:
    rows = []
    for line in lines:
        name = _side(line.size) if line.whole else f"wait {_wait(line.wait)}"
        shares = (line.valid, line.optimal, line.optimal_given_valid)
        lengths = (line.lengths.mean, line.lengths.p90, line.lengths.truncated)
        rows.append((name, f"{line.boards:,}", *map(_share, shares), *map(_number, lengths)))
    return Table(title, ("", "boards", "valid %", "optimal %", "optimal | valid %", "tokens", "p90", "cut off %"), rows)


def _by_wait_and_size(evaluation: Evaluation, agents: int) -> list[Table]:
    """Show valid and optimal, a row for each wait subset; nothing where there is one subset."""
    lines = {(line.wait, line.size): line for line in evaluation.lines if line.agents == agents}
    subsets = list(dict.fromkeys(wait for wait, _ in lines))
    sizes = [line.size for line in lines.values() if line.whole]
    if len(subsets) < 2:
        return []
    tables = []
    for name in ("valid", "optimal"):
        rows = []
        for wait in subsets:
            own = [getattr(lines[wait, size], name) if (wait, size) in lines else None for size in sizes]
            rows.append((_wait(wait), *map(_share, own)))
        tables.append(Table(f"{agents} agents by wait subset, {name} %", ("wait", *map(_side, sizes)), rows))
    return tables


def _chances(evaluation: Evaluation, lines: Sequence[Line]) -> list[Table]:
    """Show pass@k of these lines; nothing for one answer to a board."""
    if evaluation.samples == 1:
        return []
    rows = []
    for line in lines:
        pairs = (f"{valid:.1f} ({optimal:.1f})" for valid, optimal in line.at.values())
        rows.append(("all" if line.agents is None else str(line.agents), _wait(line.wait), _side(line.size), *pairs))
    note = "Chance in % that of k answers one is valid (optimal); unbiased, by Chen et al. 2021."
    return [Table("pass@k", ("agents", "wait", "size", *(f"pass@{k}" for k in lines[0].at)), rows, note)]


def _failures(evaluation: Evaluation) -> list[Table]:
    counted = evaluation.scores.to_json()["failures"]
    rows = [(name.replace("_", " "), *(f"{row[name]:,}" for row in counted)) for name in FAILURES]
    header = ("", *(f"{row['agents']} agents" for row in counted))
    return [Table("Invalid answers by the first check that fails", header, rows)]


def _comparable(evaluation: Evaluation) -> bool:
    """Say whether the paper has figures for this suite: it has none for boards with two agents."""
    return evaluation.agents == sorted({row.num_agents for row in published().rows})


def _beside(evaluation: Evaluation, agents: int) -> Table:
    """Set a number of agents beside the paper: valid / optimal of each size, ours first."""
    lines = {line.size: line for line in evaluation.whole if line.agents == agents}
    theirs = [row for row in published().rows if row.num_agents == agents]
    sizes = list(theirs[0].by_size)
    rows = [(OURS, *(_pair(lines.get(size)) for size in sizes), _pair(lines[None]))]
    rows += [(row.model, *(_printed(row.by_size[size]) for size in sizes), _printed(row.mean)) for row in theirs]
    misprints = [text for text in published().misprints if f"{agents} agents" in text]
    note = f"Published: {published().source}." + "".join(f" Misprint: {text}." for text in misprints)
    header = ("valid / optimal %", *map(_side, sizes), "Sum")
    return Table(f"{agents} agents beside the published", header, rows, note)


def _beside_sums(evaluation: Evaluation) -> Table:
    """Set all numbers of agents beside the paper at once, the means over sizes alone."""
    by_model: dict[str, dict[int, PublishedRow]] = {}
    for row in published().rows:
        by_model.setdefault(row.model, {})[row.num_agents] = row
    lines = {line.agents: line for line in evaluation.whole if line.size is None}
    rows = [(OURS, *(_pair(lines[n]) for n in evaluation.agents))]
    rows += [(model, *(_printed(own[n].mean) for n in evaluation.agents)) for model, own in by_model.items()]
    header = ("valid / optimal %", *(f"{n} agents" for n in evaluation.agents))
    return Table("Mean over sizes beside the published", header, rows, f"Published: {published().source}.")


def _beside_contexts(evaluation: Evaluation) -> Table:
    contexts = published().contexts
    subsets = list(next(iter(contexts.values())))
    lines = {line.wait: line for line in evaluation.lines if line.agents is None}
    rows = [(OURS, *("-" if wait not in lines else f"{lines[wait].valid.percent[0]:.1f}" for wait in subsets))]
    rows += [(name, *(f"{by_wait[wait]:.1f}" for wait in subsets)) for name, by_wait in contexts.items()]
    header = ("valid %", *(f"wait {wait:.2f}" for wait in subsets))
    return Table("Mean over agents and sizes beside the paper's six contexts of the engineer", header, rows)


def _wait(wait: float | None) -> str:
    return "all" if wait is None else f"{wait:.2f}"


def _side(size: int | None) -> str:
    return "mean" if size is None else f"{size}x{size}"


def _share(share: Share | None) -> str:
    return "-" if share is None else share.text(digits=1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _pair(line: Line | None) -> str:
    return "-" if line is None else _printed((line.valid.percent[0], line.optimal.percent[0]))


def _printed(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.2f} / {pair[1]:.2f}"  # as the paper has it
