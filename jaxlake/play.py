"""The command ``python -m jaxlake.play``: a person moves the agents with the keyboard. Adds no rules to ``env``'s."""

import argparse
import contextlib
import dataclasses
import itertools
import os
import re
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxlake import files
from jaxlake.arguments import seed_key
from jaxlake.commands import command_parser, mistakes_in_one_line
from jaxlake.config import LakeConfig
from jaxlake.env import Lake
from jaxlake.generate.candidates import BLOCK, Shape, draw
from jaxlake.kinds import Family, Kind
from jaxlake.solve import solve
from jaxlake.state import Params, State, TimeStep
from jaxlake.text import AnswerFormat, answer
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Action, Instance, Solution, Status, coordinate

_EXAMPLES = """\
examples:
  python -m jaxlake.play --kind 6x3 --seed 1
  python -m jaxlake.play board.txt
  echo 'right down space' | python -m jaxlake.play board.txt

A board in a file is drawn with . free, # hole, a b c ... the starts and
A B C ... the goals of agents 0 1 2 ...

Without a terminal every line is a list of keys, or of up, down, left, right,
wait, tab, space and enter; an empty line is enter. The screen is printed after
each line.
"""
_KEYS = """\
move: arrows, hjkl or wasd   wait: .   agent: 0-{last} or tab   step: space or enter
u undo   r restart   o optimum   n next board   m one at a time: {mode}   q quit"""

_MOVES = {
    Action.UP: ("up", "k", "w"),
    Action.DOWN: ("down", "j", "s"),
    Action.LEFT: ("left", "h", "a"),
    Action.RIGHT: ("right", "l", "d"),
    Action.WAIT: ("wait", "."),
}
_ACTIONS = {key: action for action, keys in _MOVES.items() for key in keys}
_WORDS = ("up", "down", "left", "right", "wait", "tab", "space", "enter")
_ARROWS = str.maketrans("UDLRW", "^v<>.", " ")
_KEY = re.compile("\x1b[\\[O][0-9;]*[A-Za-z~]|[^\x1b]", re.DOTALL)
_ARROW_KEYS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_CONTROLS = {"\t": "tab", " ": "space", "\r": "enter", "\n": "enter", "\x04": "q"}
_COLOURS = (34, 33, 32, 35, 36)
_DRAWN = 64  # Random boards to choose one from: on most of them nobody is in anybody's way.
_DRAWN_OF_FAMILY = 8  # In a corridor somebody always is, and with three agents its boards take up to a second each.
_PLAN_WIDTH = 38  # A board of side 10 takes 34 of 80 columns.

_LAKE = Lake()
_PARAMS = Params(max_steps=np.asarray(10_000, np.int32))  # As long as they like; costs are int16.
_reset, _step = jax.jit(_LAKE.reset), jax.jit(_LAKE.step)


@dataclasses.dataclass(frozen=True)
class Board:
    """A board to play: a title, an instance and its solution, both without batch axes and in numpy."""

    title: str
    instance: Instance
    solution: Solution


class Game:
    """A game on one board: keys in, lines out. Knows neither the terminal nor where boards come from."""

    def __init__(self, board: Board) -> None:
        self.board = board
        # Compiles before the first key is pressed; the result is not used.
        _step(_reset(board.instance, _PARAMS)[0], np.zeros(board.instance.max_agents, np.int32))
        self.one_at_a_time = False
        self.optimum_shown = False
        self._restart()

    @property
    def state(self) -> State:
        """The core's state now."""
        return self._history[-1][0]

    def press(self, key: str) -> None:
        """Does what a key says: a character, or one of up, down, left, right, wait, tab, space and enter."""
        num_agents = int(self.board.instance.num_agents)
        self._message = ""
        if key in _ACTIONS:
            self._move(_ACTIONS[key])
        elif key.isdecimal() and int(key) < num_agents:
            self._selected = int(key)
        elif key == "tab":
            self._selected = (self._selected + 1) % num_agents
        elif key in ("space", "enter"):
            self._execute()
        elif key == "u":
            self._undo()
        elif key == "r":
            self._restart()
        elif key == "o":
            self.optimum_shown = not self.optimum_shown
        elif key == "m":
            self.one_at_a_time = not self.one_at_a_time
            self._queue.clear()
        else:
            self._message = f"The key {key!r} does nothing."

    def lines(self, colour: bool) -> list[str]:
        """The screen, at most 80 characters (colour codes aside) by 24 lines for boards of side 10 with 5 agents."""
        left, right = self._drawing(colour), self._table()
        width = 4 + 3 * int(self.board.instance.size)
        left += [" " * width] * (len(right) - len(left))
        right += [""] * (len(left) - len(right))
        body = [f"{drawn}  {said}".rstrip() for drawn, said in zip(left, right, strict=True)]
        last = int(self.board.instance.num_agents) - 1
        keys = _KEYS.format(last=last, mode="on" if self.one_at_a_time else "off").splitlines()
        return [self.board.title, "", *body, "", self._message, *keys]

    def _restart(self) -> None:
        self._history: list[tuple[State, TimeStep]] = [_reset(self.board.instance, _PARAMS)]
        self._queue: dict[int, Action] = {}
        self._selected = 0
        self._message = ""

    def _undo(self) -> None:
        if self._queue:
            self._queue = {}
        elif len(self._history) > 1:
            self._history.pop()
        else:
            self._message = "There is nothing to undo."

    def _move(self, action: Action) -> None:
        agent, (_, timestep) = self._selected, self._history[-1]
        if self._is_over():
            return
        if not timestep.legal_actions[agent, action]:
            self._message = f"Agent {agent} cannot go {action.name.lower()}: a hole or the edge is there."
            return
        self._queue[agent] = action
        if self.one_at_a_time:
            self._execute()
            return
        # On to the next agent that has no move yet, so that a joint step is one key per agent.
        agents = int(self.board.instance.num_agents)
        later = [(agent + ahead) % agents for ahead in range(1, agents)]
        self._selected = next((other for other in later if other not in self._queue), agent)

    def _execute(self) -> None:
        if self._is_over():
            return
        actions = np.full(self.board.instance.max_agents, Action.WAIT, np.int32)
        actions[list(self._queue)] = list(self._queue.values())
        self._history.append(_step(self.state, actions))
        self._queue = {}
        if not self.one_at_a_time:
            self._selected = 0
        info = self._history[-1][1].info
        blocked = [str(agent) for agent in np.flatnonzero(info.blocked)]
        if blocked:
            self._message = f"In each other's way: agents {', '.join(blocked)} stayed where they were."
        self._is_over()

    def _is_over(self) -> bool:
        timestep = self._history[-1][1]
        if timestep.truncated:
            self._message = f"The time is up after {int(self.state.time)} steps: u undo, r restart."
        elif timestep.terminated:
            cost, solution = int(timestep.info.costs.sum_of_costs), self.board.solution
            self._message = f"Solved with sum of costs {cost}, "
            if solution.status != Status.SOLVED:
                self._message += "and the optimum is not known."
            elif cost == solution.cost:
                self._message += "which is the optimum!"
            else:
                self._message += f"{cost - int(solution.cost)} more than the optimum of {int(solution.cost)}."
        return bool(timestep.terminated | timestep.truncated)

    def _drawing(self, colour: bool) -> list[str]:
        """The board with its coordinates; an agent is its number, with the letter of a goal that it stands on."""
        instance = self.board.instance
        size, max_size, agents = int(instance.size), instance.max_size, range(int(instance.num_agents))
        standing = {int(self.state.positions[agent]): agent for agent in agents}
        goals = {int(instance.goals[agent]): agent for agent in agents}
        lines = ["    " + "".join(f"{column:^3}" for column in range(size))]
        for row in range(size):
            line = f" {row:>2} "
            for cell in range(row * max_size, row * max_size + size):
                letter = chr(ord("A") + goals[cell]) if cell in goals else ""
                agent = standing.get(cell)
                if agent is not None:
                    mark, shown = ">" if agent == self._selected else " ", f"{agent}{letter or ' '}"
                else:
                    mark, shown = " ", f"{letter or '#.'[not instance.holes[cell]]} "
                owner = goals.get(cell) if agent is None else agent
                line += mark + (shown if owner is None or not colour else _coloured(shown, owner, agent is not None))
            lines.append(line)
        return lines

    def _table(self) -> list[str]:
        instance, (state, timestep) = self.board.instance, self._history[-1]
        info, costs = timestep.info, timestep.info.costs
        lines = ["  agent  at     goal     next   cost"]
        for agent in range(int(instance.num_agents)):
            at, goal = (coordinate(cells[agent], instance.max_size) for cells in (state.positions, instance.goals))
            queued = self._queue[agent].name.lower() if agent in self._queue else ""
            mark = ">" if agent == self._selected else " "
            arrived = "  there" if info.arrived[agent] else ""
            cost = int(state.arrivals[agent])
            lines.append(f"{mark} {agent}      {at}  {chr(ord('A') + agent)} {goal}  {queued:<5} {cost:>5}{arrived}")
        conflicts = sum(
            int(step.info.vertex_conflicts) + int(step.info.swap_conflicts) for _, step in self._history[1:]
        )
        return [
            *lines,
            "",
            f"  time {int(state.time)}   sum of costs {int(costs.sum_of_costs)}   makespan {int(costs.makespan)}",
            f"  conflicts blocked {conflicts}",
            *(self._optimum() if self.optimum_shown else []),
        ]

    def _optimum(self) -> list[str]:
        solution = self.board.solution
        if solution.status != Status.SOLVED:
            return ["  optimum not known" if solution.status == Status.OUT_OF_BUDGET else "  no plan solves this board"]
        lines = [f"  optimum {int(solution.cost)}"]
        for line in answer(solution.plan, self.board.instance.max_size, AnswerFormat.MOVES).split("\n"):
            agent, _, letters = line.partition(":")
            moves = letters.translate(_ARROWS)
            lines.append(f"  {agent} {moves if len(moves) <= _PLAN_WIDTH else moves[: _PLAN_WIDTH - 3] + '...'}")
        return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = command_parser(
        "jaxlake.play",
        "Move the agents of a frozen lake to their goals, all at the same time and\nnever two on one cell.",
        _EXAMPLES,
    )
    parser.add_argument("file", nargs="?", help="boards to play, .txt or .jsonl; a random board if left out")
    parser.add_argument("--level", type=int, default=0, help="number of the first board in the file, from 0 on")
    parser.add_argument(
        "--kind", default="5", help="[family]side[xagents], as 5, 6x3 or corridor8 (default: 5, random with 2 agents)"
    )
    parser.add_argument(
        "--holes", type=float, default=0.2, help="density, 0 to 0.5; on random boards of holes (default: 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="number of the first random board (default: 0)")
    options = parser.parse_args(arguments)
    for name in ("kind", "holes", "seed") if options.file else ("level",):
        if getattr(options, name) != parser.get_default(name):
            rule = "must be left out with a file" if options.file else "needs a file"
            parser.exit(2, f"{parser.prog}: error: --{name} = {getattr(options, name)} {rule}\n")
    on_terminal = os.name == "posix" and sys.stdin.isatty()
    colour = sys.stdout.isatty()
    if on_terminal:
        print("Preparing the board ...", file=sys.stderr)
    boards = _from_file(options.file, options.level) if options.file else _random(options)

    def next_game() -> Game:
        with mistakes_in_one_line(parser):
            return Game(next(boards))

    game = next_game()
    try:
        with _unbuffered(sys.stdin.fileno()) if on_terminal else contextlib.nullcontext():
            _show(game, colour)
            for keys in _typed(sys.stdin.fileno()) if on_terminal else map(_words, sys.stdin):
                for key in keys:
                    if key == "q":
                        return 0
                    if key == "n":
                        game = next_game()
                    else:
                        game.press(key)
                _show(game, colour)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # Whoever read the screens has gone; what is still buffered must not raise once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _show(game: Game, colour: bool) -> None:
    """Clears a terminal; elsewhere an empty line divides the screens."""
    screen = "\n".join(game.lines(colour))
    print(f"\x1b[H\x1b[2J{screen}" if colour else f"{screen}\n", flush=True)


def _from_file(path: str, first: int) -> Iterator[Board]:
    """The boards of a file in its order, from a given one on and round again."""
    instances, names = files.read(path, MAX_SIZE, MAX_AGENTS)  # One program plays and solves them all.
    if not 0 <= first < len(names):
        raise ValueError(f"--level = {first} must be from 0 to {len(names) - 1}, the boards of {path}")
    for count in itertools.count(first):
        number = count % len(names)
        batch = instances[number : number + 1]
        yield Board(f"{Path(path).name}, board {names[number]}", batch[0], solve(batch)[0])


def _random(options: argparse.Namespace) -> Iterator[Board]:
    """For each seed from the given one on, the solvable one of a few random boards that needs the most detours."""
    kind = Kind.of(options.kind)
    LakeConfig.uniform((kind,), options.holes, 0.0)  # Raises ValueError for a density out of range.
    if not 0 <= options.seed < 2**32:
        raise ValueError(f"--seed = {options.seed} must be a whole number from 0 to {2**32 - 1}")
    shape = Shape(kind, options.holes, kind.size, kind.num_agents)
    family = "" if kind.family is Family.RANDOM else f"{kind.family.value} "
    label = f"{family}{kind.size}x{kind.size}, {kind.num_agents} agents"
    batch = _DRAWN if kind.family is Family.RANDOM else _DRAWN_OF_FAMILY
    for seed in itertools.count(options.seed):
        drawn = draw(seed_key(seed), 0, BLOCK, shape)
        for first in range(0, BLOCK, batch):
            instances = drawn[first : first + batch]
            solutions = solve(instances)
            solved = solutions.status == Status.SOLVED
            if solved.any():
                break
        else:
            raise ValueError(f"none of {BLOCK} boards has a solution: fewer --holes or agents are needed")
        best = int(np.argmax(np.where(solved, solutions.cost - solutions.lower_bound, ABSENT)))
        yield Board(f"{label}, seed {seed}", instances[best], solutions[best])


def _words(line: str) -> list[str]:
    """The keys on a line of text: words that name one, and the characters of others; enter for an empty line."""
    words = [[word] if word in _WORDS else list(word) for word in line.split()]
    return [key for keys in words for key in keys] or ["enter"]


@contextlib.contextmanager
def _unbuffered(terminal: int) -> Iterator[None]:
    """Keys arrive as they are pressed and are not printed; afterwards the terminal is as it was."""
    import termios  # Not on every system that the rest runs on.
    import tty

    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # Keeps what was typed while the board was prepared.
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _typed(terminal: int) -> Iterator[list[str]]:
    """Keys as they are pressed, until the terminal is gone."""
    while text := os.read(terminal, 64).decode(errors="replace"):
        # An arrow is three characters; one that arrives in parts would be read as other keys.
        while text.endswith(("\x1b", "\x1b[", "\x1bO")) and select.select([terminal], [], [], 0.05)[0]:
            text += os.read(terminal, 64).decode(errors="replace")
        yield [_key(part) for part in _KEY.findall(text)]


def _key(typed: str) -> str:
    return _ARROW_KEYS.get(typed[-1:], typed) if typed.startswith("\x1b") else _CONTROLS.get(typed, typed)


def _coloured(text: str, agent: int, stands: bool) -> str:
    return f"\x1b[{'1;' * stands}{_COLOURS[agent % len(_COLOURS)]}m{text}\x1b[0m"


if __name__ == "__main__":
    sys.exit(main())
