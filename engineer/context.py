"""The user message from which the next configuration is designed: the paper's modules and variants, and one of ours.

The words are the template's (``template.md``), one for every model; what is filled into it, and what is left out when
there is no room for all, is decided here.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, ClassVar

from engineer.evidence import CHECKS, Evidence, KindEvidence, TrainingEvidence, wilson
from engineer.proposal import LIMITS, STEP, number
from jaxlake.config import MAX_HOLE, LakeConfig
from jaxlake.kinds import Family, Kind, row_name

FAILURES = dict(zip(CHECKS, ("parse", "agents", "start", "bounds", "hole", "move", "conflict", "goal"), strict=True))
"""Names of the failures of each check in the tables and in an engineer's thinking."""
RATIONALE_LIMIT = 400
"""Characters of a past round's thinking that S shows: five of the tiny policy's thoughts, a paragraph of Qwen3's."""


class Module(enum.Enum):
    """Parts of a context (paper, section on context design; R is ours)."""

    F = "failure breakdown"
    G = "guideline"
    H = "history of configurations and what followed, without round 0's random one"
    H0 = "history with round 0"
    S = "what the engineer thought when it designed the past rounds"
    T = "training bookkeeping"
    TF = "training bookkeeping with details of the algorithm"
    R = "valid shares of the round's training, kind by kind"


VARIANTS = {
    "V1": "F",
    "V2": "F+G",
    "V3": "F+G+H0",
    "V4": "F+G+H",
    "V5": "F+G+H+S",
    "V6": "F+G+H+T",
    "V6-full": "F+G+H+TF",
}
"""The paper's contexts by name; V6 was its best."""


def modules(name: str) -> tuple[Module, ...]:
    """Return the modules of a context such as ``V6+R`` in order; ValueError for an unknown one, and without F."""
    parts = name.split("+")
    if unknown := [part for part in parts if part not in VARIANTS and part not in Module.__members__]:
        known = ", ".join((*VARIANTS, *Module.__members__))
        raise ValueError(f"context {name!r} has a part {unknown[0]!r}; it must be made of {known}, joined by +")
    included = {Module[module] for part in parts for module in VARIANTS.get(part, part).split("+")}
    if Module.F not in included:
        raise ValueError(f"context {name!r} must have the module F, the failures that every design answers to")
    return tuple(module for module in Module if module in included)


@dataclasses.dataclass(frozen=True)
class Training:
    """Bookkeeping of training: the round designed (from 0), how many there are, epochs in each, and details for TF."""

    round: int
    rounds: int
    epochs_per_round: int
    details: str = ""


@dataclasses.dataclass(frozen=True)
class PastRound:
    """A finished round: its configuration as realised, the validation after it, and the engineer's thoughts, for S."""

    round: int
    config: LakeConfig
    evidence: Evidence
    rationale: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return vars(self) | {"config": self.config.to_dict(), "evidence": self.evidence.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], kind_of: Callable[[Any], Kind] = Kind.of) -> "PastRound":
        """Read what ``to_json`` wrote; ``kind_of`` as of ``Evidence.from_json``."""
        config = LakeConfig.from_dict(values["config"], kind_of)
        evidence = Evidence.from_json(values["evidence"], kind_of)
        return cls(**dict(values) | {"config": config, "evidence": evidence})


_HEADING = re.compile(r"^##(?!#) *(\w*).*\n?", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)(?:: ([^{}]*))?\}")
_CONTROL = re.compile(r"<\|[^<>|]*\|>|</?think>")


@dataclasses.dataclass(frozen=True)
class Template:
    """Words of the sections of a context, by their names and in the order in which they are written."""

    sections: Mapping[str, str]
    NAMES: ClassVar = ("template", "terse")

    @staticmethod
    def shipped(name: str = NAMES[0]) -> "Template":
        """Return a template of the package: ``template`` in sentences or, for small models, the ``terse`` one."""
        return Template.parse(resources.files("engineer").joinpath(f"{name}.md").read_text(encoding="utf-8"))

    @staticmethod
    def parse(text: str) -> "Template":
        """Read the sections of a text in the form of the shipped one; a family's may be missing. Else ValueError."""
        _, *parts = _HEADING.split(text)
        names, bodies = parts[::2], [body.strip() for body in parts[1::2]]
        for name in [*names, *(name for name in _SECTIONS if name not in _FAMILIES)]:
            if name not in _SECTIONS or names.count(name) != 1:
                count, known = names.count(name), ", ".join(_SECTIONS)
                raise ValueError(f"section {name!r} is there {count} times; it must be once, of {known}")
        template, example = Template(dict(zip(names, bodies, strict=True))), _example()
        for name in names:
            template.fill(name, _SECTIONS[name](example))
        return template

    def fill(self, name: str, values: "Values") -> str:
        """Fill in a section; ValueError for a placeholder that is not among the values, or a column not in its rows."""

        def replace(placeholder: re.Match[str]) -> str:
            value = values.get(placeholder[1])
            if isinstance(value, str):
                return value
            columns = (placeholder[2] or _USUAL.get(name, "")).split()
            known = [*values] if value is None else ["|", *value[0]] if value else columns
            if value is None or not {*columns} <= {*known}:
                raise ValueError(f"section {name}: unknown {placeholder[0]}; it must be of: {' '.join(known)}")
            return "\n".join(" ".join(filter(None, (row.get(column, column) for column in columns))) for row in value)

        return _PLACEHOLDER.sub(replace, self.sections[name]).strip()


@dataclasses.dataclass(frozen=True)
class Context:
    """An engineer's user message: which modules it has, in the words of which template."""

    modules: tuple[Module, ...]
    template: Template

    def build(
        self,
        evidence: Evidence,
        history: Sequence[PastRound],
        training: Training,
        fits: Callable[[str], bool] = lambda text: True,
    ) -> str:
        """Write the message.

        Where it does not fit, past rounds are left out, the oldest first and as few as needed, and the message says so.
        A message that does not fit without any is returned nevertheless.

        Args:
          history: the finished rounds in ascending order, at least one; the kinds of the last are to be designed.
          training: stage of the run, for T and TF.
          fits: function that says whether a message has room.
        """
        rounds = tuple(past for past in history if past.round > 0 or Module.H0 in self.modules)
        states = {past.round: {row.kind: row for row in past.evidence.by_kind} for past in history}
        for first in range(len(rounds) + 1):
            kinds, reasons = history[-1].config.kinds, sum(bool(past.rationale) for past in rounds[:first])
            content = _Content(self.modules, evidence, training, kinds, states, rounds[first:])
            notes = {"H": _note("{} older round", first), "S": _note("your reasons for {} older round", reasons)}
            text = self._write(content, notes)
            if fits(text):
                break
        return text

    def _write(self, content: "_Content", notes: Mapping[str, str]) -> str:
        names = {"task", "answer", *("H" if module is Module.H0 else module.name for module in self.modules)}
        names |= {"kinds", *content.families} if content.families else set()
        parts = []
        for name in self.template.sections:
            if name in names:
                values = _SECTIONS[name](content)
                text = self.template.fill(name, values) if values.get("rows", True) else ""
                parts.append("\n".join(filter(None, (text, notes.get(name)))))
        return "\n\n".join(filter(None, parts))


@dataclasses.dataclass(frozen=True)
class _Content:
    """Content of a message.

    Attributes:
      kinds: the kinds to be designed.
      states: validation rows by kind after every round, shown or not.
      rounds: past rounds that H, H0 and S show.
    """

    modules: tuple[Module, ...]
    evidence: Evidence
    training: Training
    kinds: tuple[Kind, ...]
    states: Mapping[int, Mapping[Kind, KindEvidence]]
    rounds: tuple[PastRound, ...]

    @property
    def targets(self) -> tuple[Kind, ...]:
        """The kinds that the policy is validated on."""
        return tuple(row.kind for row in self.evidence.by_kind)

    @property
    def families(self) -> frozenset[str]:
        """The families to be explained; none where sizes say all, as on the paper's boards."""
        kinds = {*self.kinds, *self.targets}
        if self.kinds == self.targets and row_name(kinds) == "size":
            return frozenset()
        return frozenset(kind.family.value for kind in kinds)

    @property
    def row(self) -> str:
        """The word for what a row of a table describes."""
        return "kind" if self.families else "size"


def _example() -> _Content:
    """Return content with a row in each table, by which a template is checked."""
    kind = Kind.of(3)
    row = KindEvidence(kind, 1, 1, 1, dict.fromkeys(CHECKS, 0), dict.fromkeys(CHECKS, 0))
    evidence = Evidence((row,), None, None, 0, 1.0, 0.0, training=TrainingEvidence((row,), ()))
    past = PastRound(0, LakeConfig.uniform((kind,), 0.0, 0.0), evidence)
    return _Content(tuple(Module), evidence, Training(1, 2, 1), (kind,), {0: {kind: row}}, (past,))


Row = Mapping[str, str]
"""Cells of a row of a table by the names of the columns, of which a template may choose."""
Values = Mapping[str, str | Sequence[Row]]
"""Texts and tables by the names of their placeholders."""


def _failure_breakdown(content: _Content) -> Values:
    rows, everything = content.evidence.by_kind, _failure_row("all", content.evidence)
    table = [_failure_row(str(row.kind), row) for row in rows]
    return {"rows": [*table, everything], "ranked": [*_ranked(content), everything], "row": content.row}


def _ranked(content: _Content) -> list[Row]:
    """Return the rows of F and, where R is shown, of R, from the best solved kind to the least; of R without failures.

    A kind that is validated and trained on has its validation's row. Of equal shares the earlier kind comes first.
    """
    trained = content.evidence.training_rows if Module.R in content.modules else {}
    rows = trained | {row.kind: row for row in content.evidence.by_kind}
    order = sorted(rows, key=lambda kind: (-percent(rows[kind].valid_share, 1) if rows[kind].n else 1, kind))
    unknown = dict.fromkeys((*FAILURES.values(), "failure"), "")
    return [{**_failure_row(str(kind), rows[kind]), **({} if kind in content.targets else unknown)} for kind in order]


def _failure_row(name: str, row: KindEvidence | Evidence) -> Row:
    low, high = wilson(row.valid, row.n)
    return {
        "row": name,
        "n": str(row.n),
        "valid": _valid(row),
        "+-": _rate(high - low, 2),
        "optimal": _rate(row.optimal, row.n),
        "sampled": _rate(row.sampled_valid),
        "failure": main_failure(row),
        **{FAILURES[check]: _rate(row.first_failures[check], row.n) for check in CHECKS},
    }


def _trained(content: _Content) -> Values:
    rows = [{"row": str(kind), "valid": _valid(row)} for kind, row in content.evidence.training_rows.items()]
    return {"rows": rows, "row": content.row}


def _history(content: _Content) -> Values:
    states = content.states
    rows = [
        {
            "round": str(past.round),
            "row": str(kind),
            **{name: number(getattr(past.config, name)[i]) for name in LIMITS},
            "before": _valid(states.get(past.round - 1, {}).get(kind)),
            "after": _valid(states[past.round].get(kind)),
            "failure": main_failure(states[past.round].get(kind)),
        }
        for past in content.rounds
        for i, kind in enumerate(past.config.kinds)
        if past.config.data[i]
    ]
    return {"rows": rows, "row": content.row}


def _reasons(content: _Content) -> Values:
    rows = [f"round {past.round}: {_excerpt(past.rationale)}" for past in content.rounds if past.rationale]
    return {"rows": "\n".join(rows)}


def _training(content: _Content) -> Values:
    training = content.training
    return {
        "round": str(training.round),
        "last_round": str(training.rounds - 1),
        "epochs": str(training.epochs_per_round),
        "total_epochs": str(training.rounds * training.epochs_per_round),
    }


def _answer_format(content: _Content) -> Values:
    designed = f"{content.row}s {_names(content.kinds)}"
    return {"first": str(content.kinds[0]), "designed": designed, "max_hole": number(MAX_HOLE), "step": f"{STEP:g}"}


_FAMILIES = [family.value for family in Family]
_SECTIONS: dict[str, Callable[[_Content], Values]] = {
    "task": lambda content: {"each": "kind of boards" if content.families else "size N"},
    "kinds": lambda content: {"designed": _names(content.kinds), "targets": _names(content.targets)},
    **dict.fromkeys(_FAMILIES, lambda content: {}),
    "F": _failure_breakdown,
    "R": _trained,
    "H": _history,
    "S": _reasons,
    "T": _training,
    "TF": lambda content: {**_training(content), "details": content.training.details},
    "G": lambda content: {"row": content.row},
    "answer": _answer_format,
}
"""What fills in each section of a template: the keys of its result are the section's placeholders."""
_USUAL = {
    "F": f"row n valid +- optimal sampled | {' '.join(FAILURES.values())}",
    "R": "row valid",
    "H": "round row data hole wait | before after | failure",
}
"""Columns of a section's table where a template chooses none, as it does in {rows: row sampled}; a bar is a bar."""


def main_failure(row: KindEvidence | Evidence | None) -> str:
    """Return the check that most answers fail first, in percent (``conflict 12``), or ``none``; a dash for None."""
    if row is None:
        return "-"
    if row.valid == row.n:
        return "none"
    check = max(CHECKS, key=lambda name: row.first_failures[name])
    return f"{FAILURES[check]} {percent(row.first_failures[check], row.n)}"


def percent(part: float, whole: float) -> int:
    """Return the nearest whole percentage."""
    return round(100 * part / whole)


def _valid(row: KindEvidence | Evidence | None) -> str:
    return "-" if row is None else _rate(row.valid, row.n)


def _rate(part: float | None, whole: int = 1) -> str:
    """Format a share as a whole percentage; a dash where there is none."""
    return "-" if part is None or whole == 0 else str(percent(part, whole))


def _names(kinds: Iterable[Kind]) -> str:
    return " ".join(map(str, kinds))


def _note(words: str, count: int) -> str:
    """Return what a message says that it lacks."""
    return f"({words.format(count)}{'s' * (count > 1)} left out for room)" if count else ""


def _excerpt(text: str) -> str:
    """Return a text's last whole sentences, without any its last words, in one line of ``RATIONALE_LIMIT`` characters.

    The last ones, as a long thought weighs first and decides in the end.
    """
    line = " ".join(_CONTROL.sub(" ", text).split())  # control tokens would be read as such wherever they stand
    if len(line) <= RATIONALE_LIMIT:
        return line
    if sentence := re.search(r"[.!?] (.+)", line[-RATIONALE_LIMIT - 2 :]):
        return sentence[1]
    tail = line[-RATIONALE_LIMIT:]
    return "... " + (tail.partition(" ")[2] or tail)
