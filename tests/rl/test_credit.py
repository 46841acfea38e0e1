"""Credit of tokens, beside all plans of small boards written out, and by hand."""

import itertools

import jax
import numpy as np
import pytest

from jaxlake import LakeConfig, generate, text, verify
from jaxlake.board_text import from_text
from jaxlake.levels import stack
from jaxlake.types import ABSENT, STEPS, Plan
from rl.config import Config, ConfigError
from rl.learn.credit import first_lost, token_credit
from rl.model.policy import Policy
from rl.model.sharding import make_mesh
from rl.model.tokenizer import Tokenizer
from rl.students.writer.student import check_room

LONGEST = 6
BOARDS = stack([from_text(board) for board in ("a.A\n#..\nb.B", "aB.\n.b.\n.#A", "a.b\n...\nB#A", "b.A\n.#.\na.B")])
OPTIMA = (4, 5, 8, 8)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer()


def walks(instance, agent):
    """All walks of at most LONGEST cells from the agent's start to its goal that meet no hole."""
    found, ends = [], [[int(instance.starts[agent])]]
    while ends:
        walk = ends.pop()
        if walk[-1] == instance.goals[agent]:
            found.append(walk)
        row, column = divmod(walk[-1], 3)
        for down, right in STEPS if len(walk) < LONGEST else ():
            r, c = row + down, column + right
            if 0 <= r < 3 and 0 <= c < 3 and not instance.holes[3 * r + c]:
                ends.append([*walk, 3 * r + c])
    return found


@pytest.fixture(scope="module")
def answers():
    """Texts of all plans with walks of at most LONGEST cells, board by board, and whether each costs least."""
    pairs = [list(itertools.product(walks(instance, 0), walks(instance, 1))) for instance in BOARDS]
    boards, count = np.repeat(np.arange(len(pairs)), list(map(len, pairs))), sum(map(len, pairs))
    paths, lengths = np.full((count, 2, LONGEST), ABSENT, np.int32), np.zeros((count, 2), np.int32)
    for row, pair in enumerate(itertools.chain(*pairs)):
        for agent, walk in enumerate(pair):
            paths[row, agent, : len(walk)], lengths[row, agent] = walk, len(walk)
    some, named = np.ones(count, bool), np.full(count, 2, np.int32)
    plans = Plan(parsable=some, num_named=named, paths=paths, lengths=lengths)
    verdict = verify(jax.tree.map(lambda x: x[boards], BOARDS), plans, np.asarray(OPTIMA)[boards])
    verdict = jax.tree.map(np.asarray, verdict)
    least = [verdict.cost[verdict.valid & (boards == board)].min() for board in range(len(pairs))]
    assert tuple(least) == OPTIMA
    texts = np.array([text.answer(plan, 3) for plan in plans], object)
    return [(texts[boards == board].tolist(), verdict.optimal[boards == board]) for board in range(len(pairs))]


def credit_of(texts, tokenizer, rewarded, ends=True):
    """Credit of one answer to each of the boards, cut to its tokens."""
    pieces = [tokenizer.pieces(tokenizer.completion(said) if ends else tokenizer.encode(said)) for said in texts]
    found = token_credit(BOARDS, np.asarray(OPTIMA), pieces, np.broadcast_to(rewarded, len(texts)), 48)
    assert found.dtype == np.int8 and found.shape == (len(texts), 48)
    assert not any(row[len(said) :].any() for row, said in zip(found, pieces, strict=True))
    return [row[: len(said)].tolist() for row, said in zip(found, pieces, strict=True)], pieces


def spoiled(said, rng):
    """The text with a step changed somewhere, as a policy would that errs once."""
    cells = [place for place, sign in enumerate(said) if sign == "("]
    place = cells[rng.integers(len(cells))]
    return f"{said[:place]}({rng.integers(3)},{rng.integers(3)}){said[place + 5 :]}"


def test_a_token_is_right_as_long_as_an_optimal_plan_begins_with_what_is_written(answers, tokenizer):
    rng = np.random.default_rng(0)
    fatal = []
    for _ in range(60):
        said, optimal = [], []
        for texts, best in answers:
            chosen = rng.choice(np.flatnonzero(best) if rng.random() < 0.7 else len(texts))
            wrong = spoiled(texts[chosen], rng) if rng.random() < 0.7 else texts[chosen]
            said.append(wrong)
            optimal.append(wrong in {written for written, is_best in zip(texts, best, strict=True) if is_best})
        found, pieces = credit_of(said, tokenizer, np.array(optimal))
        for row, tokens, (texts, best), is_best in zip(found, pieces, answers, optimal, strict=True):
            whole = [f"{written}\0" for written, it in zip(texts, best, strict=True) if it]
            written = list(itertools.accumulate(piece or "\0" for piece in tokens))
            # A cell is one token here, so that a token ends where a potential is known.
            can = [any(plan.startswith(begin) for plan in whole) for begin in written]
            expected = [1 if it else -1 if it != before else 0 for before, it in zip([True, *can], can, strict=False)]
            assert row == expected, (tokens, expected, row)
            fatal.append(expected.index(-1) if -1 in expected else None)
            assert is_best == (fatal[-1] is None)
    assert len(set(fatal)) > 8  # the plan is lost at all places, and kept


STRAIGHT = "0:(0,0)(0,1)(0,2)\n1:(2,0)(2,1)(2,2)"


@pytest.mark.parametrize(
    ("said", "ends", "rewarded", "wrong"),
    [
        (STRAIGHT, True, True, None),
        ("nothing like a plan", True, True, None),  # whatever earns the reward is right
        ("nothing like a plan", True, False, "n"),
        (STRAIGHT.replace("(0,1)", "(1,0)"), True, False, "(1,0)"),  # a hole
        (STRAIGHT.replace("(0,2)", "(0,1)"), True, False, "(0,1)"),  # a wait costs one
        (STRAIGHT.replace("(0,2)", ""), True, False, "\n"),  # the path ends before the goal
        (STRAIGHT.replace("(2,2)", ""), True, False, ""),  # the answer does: its end token is wrong
        (STRAIGHT.replace("1:", "0:"), True, False, "0"),
        (STRAIGHT + "(2,2)(2,2)", True, True, None),  # rests on its goal
        (STRAIGHT + "\n", True, False, "\n"),
        (STRAIGHT.replace("(2,2)", "(2,9)"), True, False, "(2,9)"),
    ],
)
def test_by_hand(tokenizer, said, ends, rewarded, wrong):
    (row, *_), (tokens, *_) = credit_of([said] * len(BOARDS), tokenizer, rewarded, ends)
    if wrong is None:
        assert row == [1] * len(tokens)
        return
    place = row.index(-1)
    assert tokens[place].startswith(wrong) and (wrong or not tokens[place])
    assert row == [1] * place + [-1] + [0] * (len(tokens) - place - 1)


@pytest.mark.heavy
def test_on_boards_of_several_sizes_and_numbers_of_agents_a_jump_is_blamed_and_nothing_of_an_optimal_plan(tokenizer):
    """Two answers a board, side by side: each begins with an optimal plan, and leaves the board sooner or later."""
    lake = generate(LakeConfig.uniform((3, "4x3", 5), hole=0.2, wait=0.4), jax.random.key(3), count=24)
    boards, plans = jax.tree.map(np.asarray, (lake.instances, lake.solutions.plan))
    rng, pieces, places, optimal = np.random.default_rng(0), [], [], []
    for i in range(len(boards)):
        said = text.answer(plans[i], boards.max_size)
        cells = [place for place, sign in enumerate(said) if sign == "("]
        for place in rng.choice(cells[1:], 2, replace=False):
            jump = f"{said[:place]}({boards.size[i]},0){said[place + 5 :]}"  # off the board
            pieces.append(tokenizer.pieces(tokenizer.completion(jump)))
            places.append(len(tokenizer.encode(said[:place])))
        optimal.append(said)
    optima = np.asarray(lake.solutions.cost)
    found = token_credit(boards, optima, pieces, np.zeros(len(pieces), bool), 80)
    assert {int(count) for count in boards.num_agents} == {2, 3}
    assert first_lost(boards, optimal) == [None] * len(boards)
    for row, place in zip(found, places, strict=True):
        assert row[place] == -1 and (row[:place] == 1).all() and not row[place + 1 :].any()


def test_a_tokenizer_that_splits_cells_is_refused_before_the_run(monkeypatch):
    config = Config()
    policy = Policy(None, None, Tokenizer(), make_mesh(1, 1), config.student.text, config.student.sampler.rows)
    check_room(policy, config, examples=1)
    monkeypatch.setattr(Tokenizer, "pieces", lambda self, ids: [*self.decode(ids)])
    with pytest.raises(ConfigError, match=r"student.learn.credit = exact: needs a tokenizer with one token a cell"):
        check_room(policy, config, examples=1)


def test_the_character_that_loses_the_last_valid_plan():
    hole = STRAIGHT.replace("(0,1)", "(1,0)")
    said = [STRAIGHT, hole, STRAIGHT[:-5], "0:(0,0)x"]  # the last is in a form of its own
    found = first_lost(stack([BOARDS[0]] * 4), said)
    assert found == [None, hole.index("(1,0)") + 4, len(STRAIGHT) - 5, None]
