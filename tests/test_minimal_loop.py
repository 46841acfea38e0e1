"""The example that is the whole method: its plays are plans, its step is the policy gradient, and it learns."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from examples import minimal_loop
from jaxlake import Action, Check, first_failure, from_text, stack

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROOT = Path(__file__).parents[1]
OPEN, HOLE = "a..A\n....\nb..B\n....", "a#.A\n....\nb..B\n...."
BOARDS = stack([from_text(board, max_size=4, max_agents=3) for board in (OPEN, HOLE)])
ROUND = re.compile(
    r"round (\d+): ([\d.]+)% valid, failed ((?:\w+ \d+%(?:, )?)+); next ((?:\S+ \d+% \(holes \d+%\)(?:, )?)+)"
)


def going(action: Action | None):
    """Return a network that makes one move everywhere, or chooses evenly among all."""
    network = jax.tree.map(jnp.zeros_like, minimal_loop.new_network(jax.random.key(0)))
    weights, bias = network[-1]
    return [*network[:-1], (weights, bias if action is None else bias.at[action].set(50.0))]


def test_it_is_at_most_150_lines_and_needs_no_trainer():
    text = Path(minimal_loop.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert not re.search(r"^\s*(?:from|import) rl\b", text, re.MULTILINE)


def test_a_play_is_the_plan_of_where_agents_went_the_fatal_move_too():
    plans, _ = minimal_loop.play(going(Action.RIGHT), BOARDS, jax.random.key(0))
    assert plans.lengths.tolist() == [[4, 4, 0], [2, 2, 0]]
    assert plans.paths[0, :2, :4].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert plans.paths[1, :2, :2].tolist() == [[0, 1], [8, 9]]  # cell 1 is the hole


def test_the_facts_of_a_play_are_its_verdict_and_its_length():
    facts, _ = minimal_loop.play_and_verify(going(Action.RIGHT), BOARDS, np.array([6, 8], np.int32), jax.random.key(0))
    assert first_failure(facts["checks"]).tolist() == [-1, Check.HOLE_FREE]
    assert facts["optimal"].tolist() == [True, False]
    assert facts["tokens"].tolist() == [3, 1]
    waits, _ = minimal_loop.play_and_verify(going(Action.WAIT), BOARDS, np.array([6, 8], np.int32), jax.random.key(0))
    assert waits["truncated"].all() and not facts["truncated"].any()
    assert first_failure(waits["checks"]).tolist() == [Check.GOAL_REACHED] * 2


def test_a_step_is_the_policy_gradient_of_the_moves_that_were_made(monkeypatch):
    """By hand, of a network that chooses evenly: a logit's gradient is its move's frequency less its probability."""
    monkeypatch.setattr(minimal_loop, "OPTIMIZER", optax.sgd(1.0))
    network, advantage = going(None), np.array([1.0, -0.5])
    _, moves = minimal_loop.play(network, BOARDS, jax.random.key(1))
    step = jax.jit(minimal_loop.reinforce.__wrapped__)  # compiled anew, so that it takes the other optimizer
    after, _ = step(network, minimal_loop.OPTIMIZER.init(network), moves, jnp.asarray(advantage))

    _, legal, action, real = jax.tree.map(np.asarray, moves)
    expected = np.zeros(5)
    for turn, play, agent in np.argwhere(real):
        to_end = real[turn + 1 :, play, agent].sum()
        allowed = legal[turn, play, agent]
        better = np.eye(5)[action[turn, play, agent]] - allowed / allowed.sum()
        expected += advantage[play] * 0.9**to_end * better / real.sum()
    np.testing.assert_allclose(after[-1][1], expected, atol=1e-6)


@pytest.mark.heavy
def test_it_learns_and_says_in_a_line_a_round_how():
    command = [sys.executable, "-m", "examples.minimal_loop", "--rounds", "5"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rounds = [ROUND.fullmatch(line) for line in run.stdout.splitlines()]
    assert [int(line[1]) for line in rounds] == list(range(5))
    assert float(rounds[0][2]) < 1 and float(rounds[-1][2]) > 8
    kinds = {str(kind) for kind in minimal_loop.KINDS}
    assert all(part.split()[0] in kinds for line in rounds for part in line[4].split(", "))
