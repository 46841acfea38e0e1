"""The tables of an evaluation, for a terminal of 80 columns and as Markdown, the paper's figures beside ours."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence

from jaxlake.benchmark import FAILURES, PublishedRow, published
from rl.evaluation.tables import Evaluation, Line, Share
from rl.report import tables as tables_
from rl.report.tables import WIDTH

NOTE = (
    'In brackets 95 % intervals by Wilson, over boards. A mean counts every size the same (the paper\'s "Sum"). '
    "Optimal | valid: of the valid answers, those that are optimal."
)
OURS = "this model"


@dataclasses.dataclass(frozen=True)
class Table:
    """A title over rows of text, the first of them the header; `note` stands below."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""

    def to_text(self) -> str:
        """In aligned columns, the first to the left."""
        header, *rows = map(tuple, self.rows)
        table = tables_.as_text(tables_.Table(self.title, header, tuple(rows)))
        return "\n".join([table, *([textwrap.fill(self.note, WIDTH)] if self.note else [])])

    def to_markdown(self) -> str:
        """As a section of its own."""
        header, *rows = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in self.rows)
        lines = [f"## {self.title}", "", header, "|---" + "|---:" * (len(self.rows[0]) - 1) + "|", *rows]
        return "\n".join([*lines, *(["", self.note] if self.note else [])])


def to_text(evaluation: Evaluation) -> str:
    """What the user sees at the end."""
    tables = [_by_size(evaluation, agents) for agents in evaluation.agents]
    tables += _together(evaluation)
    tables += _chances(evaluation, [line for line in evaluation.whole if line.size is None]) + _failures(evaluation)
    if _comparable(evaluation):
        tables.append(_beside_sums(evaluation))
    facts = (textwrap.fill(fact, WIDTH) for fact in _facts(evaluation))
    return "\n\n".join([*facts, *(table.to_text() for table in tables)])


def to_markdown(evaluation: Evaluation) -> str:
    """The whole report."""
    tables = [_by_size(evaluation, agents) for agents in evaluation.agents]
    tables += _together(evaluation) + _chances(evaluation, evaluation.lines)
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
    """How the figures came about, and what is wrong with them, a paragraph each."""
    about, scores = evaluation.about, evaluation.scores
    asked, missing = len(scores.benchmark), len(scores.benchmark) * evaluation.samples - int(scores.answers.sum())
    how = "greedy" if about["temperature"] == 0 else f"sampled at temperature {about['temperature']:g}"
    if about["temperature"]:
        how += f", top-k {about['top_k']}" * (about["top_k"] > 0) + f", top-p {about['top_p']:g}" * (about["top_p"] < 1)
    answers = "one answer" if evaluation.samples == 1 else f"{evaluation.samples} answers"
    objective = scores.objective.value.replace("_", " ")
    of = f"{asked:,} of {scores.benchmark.account['instances']:,} boards"
    found = [f"{about['suite']} suite, {of}, {answers} each, {how}; optimal by {objective}"]
    if missing:
        found.append(f"{missing:,} answers are missing and count as invalid.")
    if evaluation.lengths.truncated:
        found.append(
            f"{evaluation.lengths.truncated:.1f} % of the answers were cut off at text.max_new_tokens = "
            f"{about['max_new_tokens']:,}; with more room some of them may be valid."
        )
    return found


def _by_size(evaluation: Evaluation, agents: int) -> Table:
    """Sizes and their mean, then the means of the wait subsets."""
    lines = [line for line in evaluation.whole if line.agents == agents]
    waits = [line for line in evaluation.lines if line.agents == agents and line.size is None and line not in lines]
    return _figures(f"{agents} agents", [(_side(line.size), line) for line in lines] + _by_wait(waits))


def _together(evaluation: Evaluation) -> list[Table]:
    """All numbers of agents, where there are several."""
    lines = [line for line in evaluation.lines if line.agents is None]
    whole = [("mean", line) for line in lines if line in evaluation.whole]
    waits = _by_wait([line for line in lines if line not in evaluation.whole])
    return [_figures("All agents, mean over agents and sizes", whole + waits)] if lines else []


def _by_wait(lines: Sequence[Line]) -> list[tuple[str, Line]]:
    return [(f"wait {line.wait_subset:.2f}", line) for line in lines]


def _figures(title: str, lines: Sequence[tuple[str, Line]]) -> Table:
    rows = [["", "boards", "valid %", "optimal %", "optimal | valid %", "tokens", "p90", "cut off %"]]
    for name, line in lines:
        shares = (line.valid, line.optimal, line.optimal_given_valid)
        lengths = (line.lengths.mean, line.lengths.p90, line.lengths.truncated)
        rows.append([name, f"{line.instances:,}", *map(_share, shares), *map(_number, lengths)])
    return Table(title, rows)


def _by_wait_and_size(evaluation: Evaluation, agents: int) -> list[Table]:
    """Valid and optimal, a row for each wait subset; nothing where there is one subset."""
    lines = [line for line in evaluation.lines if line.agents == agents]
    subsets = sorted({line.wait_subset for line in lines if line.wait_subset is not None})
    if len(subsets) < 2:
        return []
    sizes = _sizes(lines)
    tables = []
    for what in ("valid", "optimal"):
        rows = [["wait", *map(_side, sizes)]]
        for subset in (*subsets, None):
            here = {line.size: getattr(line, what) for line in lines if line.wait_subset == subset}
            rows.append(["all" if subset is None else f"{subset:.2f}", *(_share(here.get(size)) for size in sizes)])
        tables.append(Table(f"{agents} agents by wait subset, {what} %", rows))
    return tables


def _chances(evaluation: Evaluation, lines: Sequence[Line]) -> list[Table]:
    """pass@k of these lines; nothing for one answer to a board."""
    if evaluation.samples == 1:
        return []
    rows = [["agents", "wait", "size", *(f"pass@{k}" for k in lines[0].at)]]
    for line in lines:
        pairs = (f"{valid:.1f} ({optimal:.1f})" for valid, optimal in line.at.values())
        rows.append(["all" if line.agents is None else str(line.agents), _wait(line), _side(line.size), *pairs])
    note = "Chance in % that of k answers one is valid (optimal); unbiased, by Chen et al. 2021."
    return [Table("pass@k", rows, note)]


def _failures(evaluation: Evaluation) -> list[Table]:
    counted = evaluation.scores.to_json()["failures"]
    rows = [["", *(f"{row['agents']} agents" for row in counted)]]
    for name in FAILURES:
        rows.append([name.replace("_", " "), *(f"{row[name]:,}" for row in counted)])
    return [Table("Invalid answers by the first check that fails", rows)]


def _comparable(evaluation: Evaluation) -> bool:
    """Whether the paper has figures for this suite: it has none for boards with two agents."""
    return evaluation.agents == sorted({row.num_agents for row in published().rows})


def _beside(evaluation: Evaluation, agents: int) -> Table:
    """A number of agents: valid / optimal of each size, ours first."""
    lines = {line.size: line for line in evaluation.whole if line.agents == agents}
    theirs = [row for row in published().rows if row.num_agents == agents]
    sizes = list(theirs[0].by_size)
    rows = [["valid / optimal %", *map(_side, sizes), "Sum"]]
    rows.append([OURS, *(_pair(lines.get(size)) for size in sizes), _pair(lines[None])])
    for row in theirs:
        rows.append([row.model, *(_printed(row.by_size[size]) for size in sizes), _printed(row.mean)])
    misprints = [text for text in published().misprints if f"{agents} agents" in text]
    note = f"Published: {published().source}." + "".join(f" Misprint: {text}." for text in misprints)
    return Table(f"{agents} agents beside the published", rows, note)


def _beside_sums(evaluation: Evaluation) -> Table:
    """All numbers of agents at once, the means over sizes alone."""
    by_model: dict[str, dict[int, PublishedRow]] = {}
    for row in published().rows:
        by_model.setdefault(row.model, {})[row.num_agents] = row
    ours = (_pair(next(x for x in evaluation.whole if (x.agents, x.size) == (n, None))) for n in evaluation.agents)
    rows = [["valid / optimal %", *(f"{n} agents" for n in evaluation.agents)], [OURS, *ours]]
    for model, tables in by_model.items():
        rows.append([model, *(_printed(tables[n].mean) for n in evaluation.agents)])
    return Table("Mean over sizes beside the published", rows, f"Published: {published().source}.")


def _beside_contexts(evaluation: Evaluation) -> Table:
    contexts: Mapping[str, Mapping[float, float]] = published().contexts
    subsets = list(next(iter(contexts.values())))
    lines = {line.wait_subset: line for line in evaluation.lines if line.agents is None}
    ours = ["-" if subset not in lines else f"{lines[subset].valid.percent:.1f}" for subset in subsets]
    rows = [["valid %", *(f"wait {subset:.2f}" for subset in subsets)], [OURS, *ours]]
    rows += [[name, *(f"{by_wait[subset]:.1f}" for subset in subsets)] for name, by_wait in contexts.items()]
    return Table("Mean over agents and sizes beside the paper's six contexts of the engineer", rows)


def _sizes(lines: Sequence[Line]) -> list[int | None]:
    """Ascending, the mean last."""
    return [*sorted({line.size for line in lines if line.size is not None}), None]


def _wait(line: Line) -> str:
    return "all" if line.wait_subset is None else f"{line.wait_subset:.2f}"


def _side(size: int | None) -> str:
    return "mean" if size is None else f"{size}x{size}"


def _share(share: Share | None) -> str:
    return "-" if share is None else f"{share.percent:.1f} [{share.low:.0f}-{share.high:.0f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _pair(line: Line | None) -> str:
    return "-" if line is None else _printed((line.valid.percent, line.optimal.percent))


def _printed(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.2f} / {pair[1]:.2f}"  # as the paper has it
