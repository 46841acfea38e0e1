"""The tables of an evaluation, for a terminal and as Markdown, with the paper's figures beside ours."""

import textwrap
from collections.abc import Mapping, Sequence

from jaxlake.benchmark import FAILURES, published
from rl.evaluation.record import REFUSED_LATER
from rl.evaluation.scoring import Evaluation, Line
from rl.statistics import Share
from rl.table import WIDTH, Table

NOTE = (
    'In brackets 95 % intervals by Wilson, over boards. A mean counts every size the same (the paper\'s "Sum"). '
    "Optimal | valid: of the valid answers, those that are optimal."
)
OURS, GREEDY = "this model", "this model, greedy"
_PAIR = "valid / optimal %"


def to_text(evaluation: Evaluation) -> str:
    """Write what the user sees at the end."""
    tables = _by_family(evaluation)
    if not tables:
        tables = [table for agents in (*evaluation.agents, None) for table in _by_size(evaluation, agents)]
    tables += _chances(evaluation, [line for line in evaluation.whole if line.size is None])
    tables += _failures(evaluation)
    if _comparable(evaluation):
        tables.append(_beside_sums(evaluation))
    facts = (textwrap.fill(fact, WIDTH) for fact in _facts(evaluation))
    return "\n\n".join([*facts, *(table.to_text() for table in tables)])


def to_markdown(evaluation: Evaluation) -> str:
    """Write the whole report."""
    tables = _by_family(evaluation)
    tables += [table for agents in (*evaluation.agents, None) for table in _by_size(evaluation, agents)]
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
    if refused := about.get("refused"):
        facts.append(f"The server refused {', '.join(refused)}: there its own defaults hold, whatever is asked for.")
    if later := about.get(REFUSED_LATER):
        facts.append(f"After some answers the server refused {', '.join(later)} too, and used its own defaults.")
    if evaluation.identical:
        facts.append(
            f"All answers to a board are the same, on every board, at temperature {about['temperature']:g}: pass@k is "
            "pass@1. Does the source sample?"
        )
    if cut := evaluation.lengths["truncated"]:
        facts.append(
            f"{cut:.1f} % of the answers were cut off at text.max_new_tokens = "
            f"{about['max_new_tokens']:,}; with more room some of them may be valid."
        )
    if evaluation.greedy:
        sampled, greedy = (_printed(_pair(one.whole[-1])) for one in (evaluation, evaluation.greedy))
        facts.append(f"Valid / optimal %, mean over agents and sizes: {sampled} sampled, {greedy} greedy.")
    return facts


def _by_size(evaluation: Evaluation, agents: int | None) -> list[Table]:
    """Show sizes and their mean, then the means of the wait subsets; nothing for agents that there are not."""
    lines = [line for line in evaluation.lines if line.agents == agents and (line.whole or line.size is None)]
    rows = []
    for line in sorted(lines, key=lambda line: not line.whole):
        name = _side(line.size) if line.whole else f"wait {_wait(line.wait)}"
        shares = (line.valid, line.optimal, line.optimal_given_valid)
        lengths = (line.lengths[name] for name in ("mean", "p90", "truncated"))
        rows.append((name, f"{line.boards:,}", *map(_share, shares), *map(_number, lengths)))
    title = "All agents, mean over agents and sizes" if agents is None else f"{agents} agents"
    header = ("", "boards", "valid %", "optimal %", "optimal | valid %", "tokens", "p90", "cut off %")
    return [Table(title, header, rows)] if rows else []


def _by_wait_and_size(evaluation: Evaluation, agents: int) -> list[Table]:
    """Show valid and optimal, a row for each wait subset; nothing where there is one subset."""
    lines = {(line.wait, line.size): line for line in evaluation.lines if line.agents == agents}
    subsets = {wait: _wait(wait) for wait, _ in lines}
    sizes = {line.size: _side(line.size) for line in lines.values() if line.whole}
    return [
        Table.grid(
            f"{agents} agents by wait subset, {name} %",
            "wait",
            subsets,
            sizes,
            lambda *cell, name=name: _share(getattr(lines.get(cell), name, None)),
        )
        for name in ("valid", "optimal")
        if len(subsets) > 1
    ]


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


def _by_family(evaluation: Evaluation) -> list[Table]:
    """Show valid / optimal of each family, means over sizes; nothing where all boards are of one family."""
    families = sorted(set(evaluation.scores.benchmark.family.tolist()))
    if len(families) == 1:
        return []
    rows = {(row.family, row.num_agents): row.mean for row in evaluation.scores.rows}
    agents = {agents: "all" if agents is None else f"{agents} agents" for _, agents in rows}

    def pair(family: str | None, number: int | None) -> str:
        cell = rows.get((family, number))
        return "-" if cell is None else f"{cell.valid:.0f} / {cell.optimal:.0f}"

    names = {family: family for family in families} | {None: "all"}
    return [Table.grid("By family: valid / optimal %, mean over sizes", "family", names, agents, pair)]


def _failures(evaluation: Evaluation) -> list[Table]:
    """Count the first checks that fail, by number of agents, and by family where there are several."""
    rows, counted = {name: name.replace("_", " ") for name in FAILURES}, evaluation.scores.to_json()
    return [
        Table.grid(title, "", rows, list(columns), lambda name, head, columns=columns: f"{columns[head][name]:,}")
        for title, columns in (
            (
                "Invalid answers by the first check that fails",
                {f"{row['agents']} agents": row for row in counted["failures"]},
            ),
            ("The same by family", {row["family"]: row for row in counted.get("failures_by_family", ())}),
        )
        if columns
    ]


def _comparable(evaluation: Evaluation) -> bool:
    """Say whether the paper has figures for this suite: it has none for boards with two agents."""
    return evaluation.agents == sorted({row.num_agents for row in published().rows})


def _beside(evaluation: Evaluation, agents: int) -> Table:
    """Set a number of agents beside the paper: valid / optimal of each size, ours first."""
    ours = {
        name: {line.size: _pair(line) for line in one.whole if line.agents == agents}
        for name, one in _ours(evaluation).items()
    }
    rows = {row.model: row for row in published().rows if row.num_agents == agents}
    pairs = {model: {**row.by_size, None: row.mean} for model, row in rows.items()}
    printed = {**ours, **pairs}
    columns = {size: _side(size) for size in next(iter(rows.values())).by_size} | {None: "Sum"}
    misprints = [text for text in published().misprints if f"{agents} agents" in text]
    note = f"Published: {published().source}." + "".join(f" Misprint: {text}." for text in misprints)
    title = f"{agents} agents beside the published"
    return Table.grid(
        title, _PAIR, list(printed), columns, lambda model, size: _printed(printed[model].get(size)), note
    )


def _beside_sums(evaluation: Evaluation) -> Table:
    """Set all numbers of agents beside the paper at once, the means over sizes alone."""
    means = {
        (name, line.agents): _pair(line)
        for name, one in _ours(evaluation).items()
        for line in one.whole
        if line.size is None
    }
    means |= {(row.model, row.num_agents): row.mean for row in published().rows}
    return Table.grid(
        "Mean over sizes beside the published",
        _PAIR,
        list(dict.fromkeys(model for model, _ in means)),
        {agents: f"{agents} agents" for agents in evaluation.agents},
        lambda *key: _printed(means[key]),
        f"Published: {published().source}.",
    )


def _ours(evaluation: Evaluation) -> dict[str, Evaluation]:
    """Name the evaluations of this model: sampled or greedy, or both."""
    return {OURS: evaluation} | ({GREEDY: evaluation.greedy} if evaluation.greedy else {})


def _beside_contexts(evaluation: Evaluation) -> Table:
    contexts = published().contexts
    ours = {line.wait: line.valid.percent[0] for line in evaluation.lines if line.agents is None}
    rows: dict[str, Mapping] = {OURS: ours, **contexts}
    return Table.grid(
        "Mean over agents and sizes beside the paper's six contexts of the engineer",
        "valid %",
        list(rows),
        {wait: f"wait {wait:.2f}" for wait in next(iter(contexts.values()))},
        lambda name, wait: f"{rows[name][wait]:.1f}" if wait in rows[name] else "-",
    )


def _wait(wait: float | None) -> str:
    return "all" if wait is None else f"{wait:.2f}"


def _side(size: int | str | None) -> str:
    return "mean" if size is None else f"{size}x{size}" if isinstance(size, int) else size


def _share(share: Share | None) -> str:
    return "-" if share is None else share.text(digits=1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _pair(line: Line) -> tuple[float, float]:
    return line.valid.percent[0], line.optimal.percent[0]


def _printed(pair: tuple[float, float] | None) -> str:
    return "-" if pair is None else f"{pair[0]:.2f} / {pair[1]:.2f}"  # as the paper has it
