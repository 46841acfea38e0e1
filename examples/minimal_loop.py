"""The whole method in one file: a network learns multi-agent path finding, and its failures design its next boards.

1. Draw boards from a generator configuration. The network plays each of them several times, all agents moving at once.
2. The moves of a play are a plan. Verify it: there are eight checks, and the reward is 1 if all of them pass.
3. REINFORCE: make moves likelier if their play did better than the others on its board, less likely if it did worse.
4. After some updates, count how plays fail on held-out target boards and on the training boards. This is the evidence.
5. A designer reads the evidence and proposes the generator configuration of the next round. Again from 1.

examples:
  python -m examples.minimal_loop
  python -m examples.minimal_loop --seed 1 --fixed
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from engineer import RULES, PastRound, evidence_from_verdicts
from engineer.evidence import add, environment, training_evidence
from jaxlake import ConflictRule, HoleRule, Instance, Kind, Lake, LakeConfig, Params, Plan, State, observations, verify
from jaxlake.generate import pool
from jaxlake.types import ABSENT, STEPS

# Kinds of boards: "5x4" has 5 x 5 cells and four agents, "3" has 3 x 3 and two. A configuration has a share of each.
# The target is the hardest ones, with four and five agents, where a network that begins from nothing never succeeds.
KINDS = sorted(kind for text in ("3-10", "4-10x3", "4-10x4", "5-10x5") for kind in Kind.range(text))
TARGET = [kind for kind in KINDS if kind.num_agents >= 4]
UPDATES, BOARDS, PLAYS = 12, 52, 8  # an update plays 52 boards 8 times each, as many plays as there are target boards
TURNS, RADIUS, WIDTH = 32, 2, 64  # of a play at most; cells seen in each direction; units of a hidden layer
FADE, ENTROPY = 0.9, 0.001  # the share of a play's credit that is left a turn earlier; a bonus for trying things
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(8e-3))


def observe(state: State) -> tuple[jax.Array, jax.Array]:
    """Return what each agent sees: holes, agents and goals in a window around it, and the way to its own goal."""
    places, side = jnp.stack([state.instance.goals, state.positions]), state.instance.max_size
    goals, positions = jnp.stack(jnp.divmod(places, side), axis=-1)  # [agents, 2], rows and columns
    window = observations.window(RADIUS)(state).reshape(len(goals), -1)
    return window, jnp.concatenate([(goals - positions) / side, jnp.sign(goals - positions)], axis=-1)


LAKE = Lake(HoleRule.FALL, ConflictRule.END, observe)  # a hole or a conflict ends the play


def new_network(key: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
    """Return weights and biases of one network for all agents, which at first chooses almost at random."""
    sizes, scales = (4 * (2 * RADIUS + 1) ** 2 + 4, WIDTH, WIDTH, len(STEPS)), (2**0.5, 2**0.5, 0.01)
    layers = zip(jax.random.split(key, 3), scales, sizes[:-1], sizes[1:], strict=True)
    return [(jax.nn.initializers.orthogonal(scale)(k, (n, m)), jnp.zeros(m)) for k, scale, n, m in layers]


def policy(network: Any, view: Any, legal: jax.Array) -> jax.Array:
    """Return the log-probabilities ``[..., agents, 5]`` of the moves; no move leads off the board."""
    x = jnp.concatenate([(view[0] > 0).astype(jnp.float32), view[1]], axis=-1)
    for weights, bias in network[:-1]:
        x = jnp.tanh(x @ weights + bias)
    return jax.nn.log_softmax(jnp.where(legal, x @ network[-1][0] + network[-1][1], -1e9))


@jax.jit
def play(network: Any, boards: Instance, key: jax.Array) -> tuple[Plan, Any]:
    """Play each board once. The plan is where agents wanted to go, into a hole too; the moves are for `reinforce`."""
    offsets = jnp.array([down * boards.max_size + right for down, right in STEPS])

    def turn(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        states, step = carry
        view, legal = step.observation, step.legal_actions
        action = jax.random.categorical(key, policy(network, view, legal))
        moves = (states.positions != ABSENT) & ~states.done[:, None]  # there is such an agent, and the play goes on
        cells = jnp.where(moves, states.positions + offsets[action], ABSENT)
        return jax.vmap(LAKE.step)(states, action), (cells, (view, legal, action, moves))

    begin = jax.vmap(LAKE.reset, in_axes=(0, None))(boards, Params(max_steps=TURNS))
    _, (cells, moves) = jax.lax.scan(turn, begin, jax.random.split(key, TURNS))
    paths = jnp.concatenate([boards.starts[None], cells]).transpose(1, 2, 0)  # [plays, agents, turns + 1]
    lengths, parsable = jnp.sum(paths != ABSENT, axis=-1), jnp.ones(len(boards), bool)  # no text to be read
    return Plan(parsable=parsable, num_named=boards.num_agents, paths=paths, lengths=lengths), moves


def play_and_verify(network: Any, boards: Instance, optima: Any, key: jax.Array) -> tuple[dict[str, Any], Any]:
    """Play each board once; return what the evidence counts of each play (turns as tokens), and the moves."""
    plans, moves = play(network, boards, key)
    verdicts, turns = verify(boards, plans, optima), jnp.max(plans.lengths, axis=-1) - 1
    facts = {"checks": verdicts.checks, "optimal": verdicts.optimal, "tokens": turns, "truncated": turns == TURNS}
    return jax.device_get(facts), moves


@jax.jit
def reinforce(network: Any, momentum: Any, moves: Any, advantage: jax.Array) -> tuple[Any, Any]:
    """Take one step along the policy gradient (Williams 1992); ``advantage`` is that of each play."""
    view, legal, action, real = moves  # [turns, plays, agents, ...]
    credit = advantage[:, None] * FADE ** (jnp.cumsum(real[::-1], axis=0)[::-1] - 1)  # the last moves ended the play

    def loss(network: Any) -> jax.Array:
        log = policy(network, view, legal)
        chosen = jnp.take_along_axis(log, action[..., None], axis=-1)[..., 0]
        return -jnp.mean(credit * chosen - ENTROPY * jnp.sum(jnp.exp(log) * log, axis=-1), where=real)

    change, momentum = OPTIMIZER.update(jax.grad(loss)(network), momentum)
    return optax.apply_updates(network, change), momentum


def main() -> None:
    """Read the options and run the loop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed", action="store_true", help="the control: keep round 0's random configuration")
    options = parser.parse_args()
    # `frontier` gives all boards to the four kinds that the network solves nearest to half of the time. In rl.train
    # this function is the model itself: it reads the same evidence as a table, and writes the configuration as JSON.
    design = RULES["fixed_random" if options.fixed else "frontier"]

    key, network_key, config_key = jax.random.split(jax.random.key(options.seed), 3)
    network, config, history = new_network(network_key), LakeConfig.random(KINDS, config_key), list[PastRound]()
    momentum = OPTIMIZER.init(network)
    target = pool.draw(LakeConfig.uniform(TARGET, 0.2, 0.25), jax.random.key(0), BOARDS * PLAYS, validation=True)
    for number in range(options.rounds):
        key, boards_key, plays_key, target_key, design_key = jax.random.split(key, 5)
        boards, sums = pool.draw(config, boards_key, UPDATES * BOARDS), None  # 1: a stock, as `generate` takes longer
        for update in range(UPDATES):
            at = np.arange(update * BOARDS, (update + 1) * BOARDS)
            each, play_key = np.repeat(at, PLAYS), jax.random.fold_in(plays_key, update)
            facts, moves = play_and_verify(network, boards.instances[each], boards.solutions.cost[each], play_key)  # 2
            groups = {name: x.reshape(BOARDS, PLAYS, *x.shape[1:]) for name, x in facts.items()}
            reward = groups["checks"].all(axis=-1).astype(np.float32)
            advantage = reward - reward.mean(axis=1, keepdims=True)
            advantage /= advantage.std() + 1e-5
            network, momentum = reinforce(network, momentum, moves, advantage.reshape(-1))  # 3
            sums = add(sums, boards.kinds[at], advantages=advantage, **groups)

        facts, _ = play_and_verify(network, target.instances, target.solutions.cost, target_key)
        evidence = evidence_from_verdicts(kinds=target.kinds, **facts)  # 4
        evidence = dataclasses.replace(evidence, training=training_evidence(sums, environment(boards, config)))
        history.append(PastRound(number, LakeConfig.from_dict(boards.realised()), evidence))
        config = design(evidence, history, design_key)  # 5

        failed = ", ".join(f"{check} {n / evidence.n:.0%}" for check, n in evidence.first_failures.items() if n)
        top = sorted(zip(config.data, config.kinds, config.hole, strict=True), reverse=True)[:4]
        shares = ", ".join(f"{kind} {share:.0%} (holes {hole:.0%})" for share, kind, hole in top)
        print(f"round {number}: {evidence.valid / evidence.n:.1%} valid, failed {failed}; next {shares}", flush=True)


if __name__ == "__main__":
    main()
