"""How a peer's script talks to env_speed.py: one JSON line when it is ready, then one per line that it is sent."""

import json
import sys
import time
from collections.abc import Callable


def serve(facts: dict, steps: int, repeat: Callable[[], None]) -> None:
    """Prints the facts, and for every line on standard input how many steps a second one repeat made.

    Args:
      facts: ``compile_s`` and ``bytes`` (None where they mean nothing).
      steps: environment steps in one repeat.
      repeat: plays them, to the end.
    """
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        repeat()
        print(json.dumps({"rate": steps / (time.perf_counter() - start)}), flush=True)


def serve_scan(jax, step: Callable, carry: object, actions: object) -> None:
    """``serve`` for a peer in JAX: scans ``step`` over the actions and keeps its carry, observation included, alive.

    Args:
      jax: the peer's own.
      step: ``(carry, actions of one step) -> carry``, batched.
      carry: state and observation, ``[batch, ...]``.
      actions: ``[steps, batch, ...]``.
    """
    program = jax.jit(lambda carry, actions: jax.lax.scan(lambda c, a: (step(c, a), None), carry, actions)[0])
    start = time.perf_counter()
    compiled = program.lower(carry, actions).compile()
    compile_s = time.perf_counter() - start
    held = [jax.block_until_ready(compiled(carry, actions))]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(held[0]) if hasattr(leaf, "nbytes"))

    def repeat() -> None:
        held[0] = jax.block_until_ready(compiled(held[0], actions))

    batch = actions.shape[1]
    serve({"compile_s": compile_s, "bytes": size / batch}, actions.shape[0] * batch, repeat)
