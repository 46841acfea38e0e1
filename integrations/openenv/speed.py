"""Measures a server that runs on this machine, over its socket: resets, moves and plans a second of several clients."""

import argparse
import asyncio
import sys
import time

from jaxlake_openenv import LakeAction, LakeEnv

SECONDS = 5.0


async def rate(envs: list[LakeEnv], what: str) -> float:
    """Return how many of ``what`` a second all clients together get done."""
    done = 0

    async def client(env: LakeEnv, index: int) -> None:
        nonlocal done
        await env.reset(split="test", index=index)
        stop = time.perf_counter() + SECONDS
        while time.perf_counter() < stop:
            if what == "moves":
                over = (await env.step(LakeAction(moves="WWW"))).done
            elif what == "plans, each with its reset":
                over = (await env.step(LakeAction(plan="0:(0,0)(0,1)\n1:(1,0)\n2:(2,0)"))).done
            else:
                over = True
            if over:
                await env.reset(split="test", index=index)
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(client(env, index) for index, env in enumerate(envs)))
    return done / (time.perf_counter() - begin)


async def main(url: str, clients: int) -> None:
    envs = [LakeEnv(base_url=url) for _ in range(clients)]
    await asyncio.gather(*(env.connect() for env in envs))
    await envs[0].reset(split="test", index=0)
    await envs[0].step(LakeAction(moves="WWW"))  # compiles
    await envs[0].reset(split="test", index=0)
    await envs[0].step(LakeAction(plan=""))
    for what in ("resets", "moves", "plans, each with its reset"):
        print(f"{clients} clients: {await rate(envs, what):,.0f} {what} a second")
    await asyncio.gather(*(env.close() for env in envs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--url", default="http://localhost:8000", help="address of the server (default: http://localhost:8000)"
    )
    parser.add_argument("--clients", type=int, default=1, help="sessions at once (default: 1)")
    options = parser.parse_args()
    try:
        asyncio.run(main(options.url, options.clients))
    except ConnectionError as error:
        sys.exit(f"{error}. A server must run: jaxlake-openenv --port 8000")
