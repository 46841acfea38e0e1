"""The command ``python -m jaxlake.score``: tables of the scores of answers in plain text. Knows no model."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxlake import lifelong, pibt
from jaxlake.arguments import seed_key
from jaxlake.benchmark import SETS, load, load_maps, score
from jaxlake.benchmark.external_maps import AGENTS_HELP, MAPS_HELP, read_maps, warn_skipped
from jaxlake.benchmark.scoring import MEASURES, mean_and_error
from jaxlake.commands import command_parser, local_path, mistakes_in_one_line
from jaxlake.files import Record, lines, read_json, read_parts, write_whole
from jaxlake.levels import pad, stack
from jaxlake.rules import GoalRule
from jaxlake.table import Table
from jaxlake.text import answer
from jaxlake.types import MAX_ANSWER_STEPS, LifelongInstance, Objective

_EPILOG = """\
examples:
  python -m jaxlake.score answers.jsonl
  python -m jaxlake.score answers.jsonl --set families --json scores.json
  python -m jaxlake.score answers.jsonl --maps scenarios.yaml --planner pibt
  python -m jaxlake.score --maps scenarios.yaml --agents 8 16 --planner pibt
  python -m jaxlake.score --maps scenarios.yaml --lifelong 1000 --planner pibt
  python -m jaxlake.score --maps problem.json --lifelong 1000 --planner pibt

The file has a JSON object a line; several lines with one id are samples:

  {"id": "3ag_4x4_hr0.2_007", "answer": "0:(0,0)(0,1)..."}

Ids, boards and prompts come from python -m jaxlake.benchmark export lake, with
the same --maps for scenarios of other projects.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = command_parser(
        "jaxlake.score",
        "Scores a model's answers to a fixed set of boards, or to scenarios of other\n"
        "projects: valid and optimal per number of agents, board size and need of waits\n"
        "or family. Of scenarios also success and costs over their lower bounds.",
        _EPILOG,
    )
    parser.add_argument("answers", nargs="?", type=local_path, help="file of JSON lines with id and answer")
    boards = parser.add_mutually_exclusive_group()
    boards.add_argument("--set", choices=SETS, default="test", help="fixed set of the boards (default: test)")
    boards.add_argument("--maps", type=local_path, metavar="FILE", help=MAPS_HELP)
    parser.add_argument("--agents", type=int, nargs="+", metavar="N", help=AGENTS_HELP)
    parser.add_argument("--planner", choices=["pibt"], help="adds a row of this planner's plans; needs no answers")
    parser.add_argument(
        "--lifelong",
        type=int,
        metavar="STEPS",
        help="lets the planner play so many steps in which who arrives gets another goal: goals reached a step; "
        "--maps may then be a problem (.json) of the League of Robot Runners, whose tasks are the goals",
    )
    parser.add_argument("--max-steps", type=int, default=MAX_ANSWER_STEPS, help="of a plan (default: %(default)s)")
    parser.add_argument(
        "--objective",
        choices=[objective.value for objective in Objective],
        default="sum_of_costs",
        help="cost that an optimal plan minimises (default: sum_of_costs)",
    )
    parser.add_argument("--json", type=local_path, metavar="FILE", help="file for the figures")
    options = parser.parse_args(arguments)
    with mistakes_in_one_line(parser, needs="pip install pyyaml, which scenarios in YAML need"):
        if not (options.answers or options.planner):
            raise ValueError("there is nothing to score: give a file of answers, or --planner pibt")
        if options.agents and not options.maps:
            raise ValueError("--agents needs --maps")
        if options.lifelong is not None and (options.answers or not options.planner):
            raise ValueError("--lifelong lets a planner play: give --planner pibt, and no file of answers")
        figures, tables = (_judge if options.lifelong is None else _play)(options)
        if options.json:
            write_whole(options.json, (json.dumps(figures, indent=1) + "\n").encode())
    print("\n\n".join(tables))
    return 0


def _judge(options: argparse.Namespace) -> tuple[Record, list[str]]:
    """Return the figures and tables of answers and planners."""
    answers: dict[str, Mapping[str, str | Sequence[str]]] = {}
    if options.answers:
        answers["answers"] = read_answers(options.answers)
    benchmark = load_maps(options.maps, options.agents) if options.maps else load(options.set)
    warn_skipped(benchmark.name, benchmark.account.get("left_out", {}))
    if options.planner:
        plans = pibt.plan(benchmark.instances, seed_key(0), max_steps=options.max_steps)
        side = benchmark.instances.max_size
        answers["pibt"] = {key: answer(plan, side) for key, plan in zip(benchmark.ids, plans, strict=True)}
    judged = {"objective": options.objective, "max_steps": options.max_steps}
    scores = {name: score(each, benchmark, **judged) for name, each in answers.items()}
    figures = scores["answers"].to_json() if options.answers else {}
    tables = [scores["answers"].to_text()] if options.answers else []
    if options.maps or options.planner:
        figures["measures"] = {name: each.measures() for name, each in scores.items()}
        note = "Costs of the solved boards over their bounds: the sum of the agents' shortest paths, and the longest."
        title = f"{benchmark.name} set, measures of the field"
        tables.append(_measures_table(figures["measures"], title, MEASURES, note))
    return figures, tables


def _play(options: argparse.Namespace) -> tuple[Record, list[str]]:
    """Return the figures and the table of lifelong play; a planner needs no plan or optimum of the boards."""
    if options.maps:
        name, boards = options.maps.stem, read_maps(options.maps, options.agents, lifelong=True)
    else:
        benchmark = load(options.set)
        name, boards = benchmark.name, dict(zip(benchmark.ids, benchmark.instances, strict=True))
    by_agents: dict[int, list[LifelongInstance]] = {}
    left_out, side = [], max(board.max_size for board in boards.values())
    have_lists = {isinstance(board, LifelongInstance) for board in boards.values()}
    if len(have_lists) > 1:
        raise ValueError(f"{name}: some scenarios have sequences of goals and others a goal for each agent")
    goals = GoalRule.LISTED if have_lists == {True} else GoalRule.DRAWN
    for title, board in boards.items():
        agents = int(board.num_agents)
        try:
            board = pad(board, side, agents)  # to one side: each other one compiles anew
            own = board if isinstance(board, LifelongInstance) else lifelong.board(board)
        except ValueError as fault:
            left_out.append(f"{title} ({fault})")
        else:
            by_agents.setdefault(agents, []).append(own)
    warn_skipped(name, {"unplayable": left_out})
    if not by_agents:
        raise ValueError(f"{name}: no board can be played, as {left_out[0]}")
    rows = []
    for agents, part in sorted(by_agents.items()):
        reached = pibt.play(stack(part), seed_key(0), options.lifelong, goals)
        mean, error = mean_and_error(reached.sum(axis=1) / options.lifelong)
        rows.append({"agents": agents, "boards": len(part), "throughput": mean, "throughput_se": error})
    figures = {"steps": options.lifelong, "throughput": {"pibt": rows}}
    note = "Throughput: goals that all agents of a board reach, a step."
    title = f"{name} set, {options.lifelong:,} lifelong steps"
    return figures, [_measures_table(figures["throughput"], title, ("throughput",), note)]


def _measures_table(measures: Mapping[str, Sequence[Record]], title: str, columns: Sequence[str], note: str) -> str:
    rows = [(who, row) for who, part in measures.items() for row in part]
    body = [
        (
            f"{who}, {row['agents'] or 'all'} agents",
            f"{row['boards']:,}",
            *("-" if row[key] is None else f"{row[key]:.3f}±{row[f'{key}_se']:.3f}" for key in columns),
        )
        for who, row in rows
    ]
    return Table(title, ("", "boards", *(key.replace("_", " ") for key in columns)), body, note).to_text(width=100)


def read_answers(path: Path) -> dict[str, list[str]]:
    """Return the answers of a file by id, in its order."""

    def read(line: str) -> Record:
        entry = read_json(line)
        if not (isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("id", "answer"))):
            raise ValueError("it must be an object with the texts id and answer")
        return entry

    answers: dict[str, list[str]] = {}
    for entry in read_parts(path, lines, read, "answer"):
        answers.setdefault(entry["id"], []).append(entry["answer"])
    return answers


if __name__ == "__main__":
    sys.exit(main())
