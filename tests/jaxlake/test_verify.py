"""The eight checks and the cost, on boards drawn in text and against a judge in plain Python."""

import jax
import numpy as np
import pytest

from jaxlake.board_text import from_text
from jaxlake.text import parse
from jaxlake.types import ABSENT, OUTSIDE, Check, Instance, Objective, Plan
from jaxlake.verify import first_failure, verify

MAX_SIZE, MAX_AGENTS, MAX_STEPS = 5, 3, 7

CORRIDOR = """
    a..A
    ####
    b..B
    ....
"""
CROSSING = """
    .b.
    a.A
    .B.
"""


def judge(board: str, answer: str, optimum: int = ABSENT, objective: Objective = Objective.SUM_OF_COSTS):
    instance = from_text(board, max_size=MAX_SIZE, max_agents=MAX_AGENTS)
    plan = parse(answer, max_size=MAX_SIZE, max_agents=MAX_AGENTS, max_steps=MAX_STEPS)
    return verify(instance, plan, np.int32(optimum), objective)


BESIDE = "\n1:(2,0)(2,1)(2,2)(2,3)"
STRAIGHT = f"0:(0,0)(0,1)(0,2)(0,3){BESIDE}"
ROW, SWAP, ARRIVED = "..a\nA..\nbB.", "a..b\nB..A\n....\n....", "a..\nA..\nbB."
FAILURES = {
    "nobody is named": (CORRIDOR, "I do not know", {Check.PARSABLE, Check.AGENT_COUNT}),
    "one beyond the arrays": (CORRIDOR, f"{STRAIGHT}\n17:(3,0)", {Check.AGENT_COUNT}),
    "a cell off the board": (CORRIDOR, STRAIGHT.replace("(2,0)", "(2,0)(3,0)(4,0)(3,0)(2,0)"), {Check.IN_BOUNDS}),
    "a cell in a hole": (CORRIDOR, f"0:(0,0)(1,0)(0,0)(0,1)(0,2)(0,3){BESIDE}", {Check.HOLE_FREE}),
    "a jump of two": (CORRIDOR, f"0:(0,0)(0,2)(0,3){BESIDE}", {Check.LEGAL_MOVE}),
    "a diagonal": (CROSSING, "0:(1,0)(0,1)(1,2)\n1:(0,1)(0,1)(1,1)(2,1)", {Check.LEGAL_MOVE, Check.CONFLICT_FREE}),
    "from a row's end to the next": (ROW, "0:(0,2)(1,0)\n1:(2,0)(2,1)", {Check.LEGAL_MOVE}),
    "a swap": (SWAP, "0:(0,0)(0,1)(0,2)(0,3)(1,3)\n1:(0,3)(0,2)(0,1)(0,0)(1,0)", {Check.CONFLICT_FREE}),
    "one that has arrived": (ARRIVED, "0:(0,0)(1,0)\n1:(2,0)(2,0)(1,0)(1,1)(2,1)", {Check.CONFLICT_FREE}),
    "one that comes later": (ARRIVED, "0:(0,0)(0,0)(0,0)(0,0)(1,0)\n1:(2,0)(2,0)(1,0)(1,1)(2,1)", set()),
    "following": ("abAB\n....\n....\n....", "0:(0,0)(0,1)(0,2)\n1:(0,1)(0,2)(0,3)", set()),
}


@pytest.mark.parametrize("name", FAILURES)
def test_exactly_these_checks_fail(name):
    board, answer, failed = FAILURES[name]
    checks = judge(board, answer).checks.tolist()
    assert {check for check, passed in zip(Check, checks, strict=True) if not passed} == failed


def costs(verdict) -> tuple[int, int, int]:
    return tuple(int(cost) for cost in (verdict.costs.sum_of_costs, verdict.costs.sum_of_loss, verdict.costs.makespan))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("(0,0)(0,1)(0,2)(0,3)", (3 + 3, 3 + 3, 3)),
        ("(0,0)(0,0)(0,1)(0,2)(0,3)", (4 + 3, 4 + 3, 4)),
        ("(0,0)(0,1)(0,2)(0,3)(0,2)(0,3)", (5 + 3, 5 + 3, 5)),
        ("(0,0)(0,1)(0,2)(0,3)(0,3)(0,2)(0,3)(0,3)", (6 + 3, 5 + 3, 6)),
        ("(0,0)(0,1)(0,2)(0,3)(0,3)(0,3)(0,2)(0,3)", (7 + 3, 5 + 3, 7)),
    ],
    ids=["straight", "waits on the way", "turns round at the goal", "stays a step, leaves, returns", "stays two steps"],
)
def test_the_three_costs_differ_in_what_they_charge_for_staying_on_a_goal_that_is_left_again(first, expected):
    answer = f"0:{first}\n1:(2,0)(2,1)(2,2)(2,3)"
    assert costs(judge(CORRIDOR, answer)) == expected
    assert costs(judge(CORRIDOR, answer, objective=Objective.MAKESPAN)) == expected


def test_a_valid_plan_is_optimal_only_at_a_known_optimum():
    answer = "0:(0,0)(0,0)(0,1)(0,2)(0,3)\n1:(2,0)(2,1)(2,2)(2,3)"
    assert judge(CORRIDOR, answer, optimum=7).optimal
    assert not judge(CORRIDOR, answer, optimum=6).optimal
    assert not judge(CORRIDOR, answer, optimum=ABSENT).optimal
    invalid = judge(CORRIDOR, "0:(0,0)", optimum=ABSENT)
    assert invalid.cost == ABSENT and not invalid.optimal


def test_the_first_failure_is_the_first_in_the_order_of_checks():
    checks = np.ones((3, 8), bool)
    checks[1, [Check.HOLE_FREE, Check.GOAL_REACHED]] = False
    checks[2, Check.GOAL_REACHED] = False
    assert first_failure(checks).tolist() == [ABSENT, Check.HOLE_FREE, Check.GOAL_REACHED]


def judge_in_python(size, num_agents, holes, starts, goals, named, stride=MAX_SIZE):
    """Checks, and the costs in the order of ``Costs``; ``named`` has a path, possibly empty, for each agent slot."""
    ours = [(agent, path) for agent, path in enumerate(named[:num_agents]) if path]
    on_board = [[cell for cell in path if cell != OUTSIDE] for _, path in ours]
    at = [divmod(cell, stride) for path in on_board for cell in path]
    moves = [(a, b) for _, path in ours for a, b in zip(path, path[1:], strict=False) if OUTSIDE not in (a, b)]
    distances = [sum(abs(x - y) for x, y in zip(divmod(a, stride), divmod(b, stride), strict=True)) for a, b in moves]
    longest = max((len(path) for _, path in ours), default=0)
    stays = [path + [path[-1]] * (longest - len(path)) for _, path in ours]
    clash = False
    for i in range(len(stays)):
        for j in range(i):
            for t in range(longest):
                clash |= stays[i][t] == stays[j][t] != OUTSIDE
                if t and OUTSIDE not in (stays[i][t], stays[i][t - 1]):
                    clash |= stays[i][t] == stays[j][t - 1] and stays[i][t - 1] == stays[j][t]
    checks = [
        True,
        sum(bool(path) for path in named) == num_agents == len(ours),
        all(path[0] == starts[agent] for agent, path in ours),
        all(OUTSIDE not in path for _, path in ours) and all(r < size and c < size for r, c in at),
        not any(cell in holes for path in on_board for cell in path),
        all(distance <= 1 for distance in distances),
        not clash,
        all(path[-1] == goals[agent] for agent, path in ours),
    ]
    if not all(checks):
        return checks, (ABSENT, ABSENT, ABSENT)
    arrivals, loss = [], 0
    for agent, path in ours:
        loss += sum((a, b) != (goals[agent], goals[agent]) for a, b in zip(path, path[1:], strict=False))
        while len(path) > 1 and path[-2:] == [goals[agent]] * 2:
            path = path[:-1]
        arrivals.append(len(path) - 1)
    return checks, (sum(arrivals), loss, max(arrivals))


def walk_together(rng, size, num_agents, stride, steps):
    """Holes, and random paths of one length that break no rule; each path's last cell is its goal."""
    inside = [row * stride + column for row in range(size) for column in range(size)]
    order = rng.permutation(inside).tolist()
    holes = set(order[: int(rng.integers(0, len(order) - num_agents))])
    paths = [[cell] for cell in order[len(holes) : len(holes) + num_agents]]
    for _ in range(int(rng.integers(0, steps + 1))):
        for path in paths:
            row, column = divmod(path[-1], stride)
            down, right = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)][rng.integers(5)]
            target = (row + down) * stride + column + right
            fits = 0 <= row + down < size and 0 <= column + right < size and target not in holes
            # Into cells that are free now and that no earlier agent enters: nobody meets, swaps or follows.
            taken = {cell for other in paths if other is not path for cell in other[len(path) - 1 : len(path) + 1]}
            path.append(target if fits and target not in taken else path[-1])
    return holes, paths


def corrupt(rng, check, case, steps):
    """Breaks one check of a case in place; what else that breaks is for the judges to say."""
    size, stride, paths = case["size"], case["stride"], case["named"]
    agent = int(rng.integers(case["num_agents"]))
    path = paths[agent]
    at = int(rng.integers(len(path))) if path else 0
    if check is Check.PARSABLE:
        case["parsable"] = False
    elif check is Check.AGENT_COUNT:
        agent = -1 if rng.integers(2) and not paths[-1] else agent
        paths[agent] = [] if paths[agent] else [0]
    elif not path:
        return  # Nothing is left to break.
    elif check is Check.START_CORRECT:
        case["starts"][agent] = (path[0] + 1) % stride**2
    elif check is Check.IN_BOUNDS:
        path[at] = OUTSIDE if size == stride or rng.integers(2) else size * stride + int(rng.integers(stride))
    elif check is Check.HOLE_FREE:
        path[at] = max(path[at], 0)
        case["holes"].add(path[at])
    elif check is Check.LEGAL_MOVE:
        row, column = (0 if 2 * at >= size else size - 1 for at in divmod(path[-1], stride))
        paths[agent] = path[: steps - 1] + [path[-1], row * stride + column]
    elif check is Check.CONFLICT_FREE:
        other = paths[(agent + 1) % case["num_agents"]]
        if rng.integers(2):
            path[:1] = other[:1]
        else:
            path[1:2], other[1:2] = other[:1], path[:1]
    elif check is Check.GOAL_REACHED:
        case["goals"][agent] = (path[-1] + 1) % stride**2


@pytest.mark.parametrize(
    ("max_size", "max_agents", "max_steps"),
    [
        (10, 5, 64),
        pytest.param(13, 3, 20, id="cells beyond 127", marks=pytest.mark.heavy),
        pytest.param(4, 2, 300, id="steps beyond 255", marks=pytest.mark.heavy),
    ],
)
def test_broken_plans_are_judged_as_in_plain_python(max_size, max_agents, max_steps):
    rng = np.random.default_rng(max_size)
    cases, broken = [], []
    for index in range(400):
        size, num_agents = int(rng.integers(3, max_size + 1)), int(rng.integers(2, max_agents + 1))
        holes, paths = walk_together(rng, size, num_agents, max_size, max_steps)
        case = {"size": size, "stride": max_size, "num_agents": num_agents, "holes": holes, "parsable": True}
        case |= {"starts": [path[0] for path in paths], "goals": [path[-1] for path in paths]}
        case["named"] = [*paths, *[[] for _ in range(max_agents - num_agents)]]
        several = rng.permutation(list(Check))[: rng.integers(2, 5)]
        kinds = [[], *([check] for check in Check), map(Check, several)]  # None, each of the eight alone, several.
        broken.append(list(kinds[index % len(kinds)]))
        for check in broken[-1]:
            corrupt(rng, check, case, max_steps)
        cases.append(case)

    def padded(rows, length):
        return np.array([row + [ABSENT] * (length - len(row)) for row in rows], np.int32)

    instances = Instance(
        size=np.array([case["size"] for case in cases], np.int32),
        num_agents=np.array([case["num_agents"] for case in cases], np.int32),
        holes=np.array([[cell in case["holes"] for cell in range(max_size**2)] for case in cases]),
        starts=padded([case["starts"] for case in cases], max_agents),
        goals=padded([case["goals"] for case in cases], max_agents),
    )
    plans = Plan(
        parsable=np.array([case["parsable"] for case in cases]),
        num_named=np.array([sum(map(bool, case["named"])) for case in cases], np.int32),
        paths=np.array([padded(case["named"], max_steps + 1) for case in cases]),
        lengths=np.array([list(map(len, case["named"])) for case in cases], np.int32),
    )
    verdicts = jax.tree.map(np.asarray, verify(instances, plans, np.full(len(cases), 3, np.int32)))
    for index, (case, targets) in enumerate(zip(cases, broken, strict=True)):
        checks, expected = judge_in_python(
            *(case[field] for field in ("size", "num_agents", "holes", "starts", "goals", "named", "stride"))
        )
        if not case["parsable"]:
            checks[Check.PARSABLE], expected = False, (ABSENT, ABSENT, ABSENT)
        assert verdicts.checks[index].tolist() == checks, targets
        found = jax.tree.map(lambda part, at=index: part[at], verdicts)
        assert costs(found) == expected
        if len(targets) < 2:
            failed = np.flatnonzero(~verdicts.checks[index])
            assert verdicts.valid[index] == (not targets) and set(targets) <= set(failed.tolist())
