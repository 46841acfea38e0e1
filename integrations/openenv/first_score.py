"""Plays one board over the wire, at random and by the solver's plan: the least and the most that there is to earn."""

import random
import sys

from jaxlake_openenv import LakeAction, LakeEnv

from jaxlake import answer, solve
from jaxlake.benchmark import load

INDEX = 417


def main(url: str) -> None:
    with LakeEnv(base_url=url).sync() as env:
        result, moves = env.reset(split="test", index=INDEX), 0
        print(result.observation.prompt, "\n")
        rng = random.Random(0)
        while not result.done:
            result = env.step(LakeAction(moves="".join(map(rng.choice, result.observation.legal_moves))))
            moves += 1
        print(f"{result.observation.task}: {moves} random moves, reward {result.reward}")

        instance = load("test").instances[INDEX]
        env.reset(split="test", index=INDEX)
        result = env.step(LakeAction(plan=answer(solve(instance).plan, instance.max_size)))
        print(f"{result.observation.task}: the solver's plan, reward {result.reward}, cost {result.observation.cost}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000")
    except ConnectionError as error:
        sys.exit(f"{error}. A server must run: jaxlake-openenv --port 8000")
