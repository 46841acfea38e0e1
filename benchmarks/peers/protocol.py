"""How a peer's script talks to `side_by_side.Peer`: in JSON lines, one for each line that it is sent."""

import json
import sys
import time
from collections.abc import Callable


def serve(facts: dict, steps: int, repeat: Callable[[], None]) -> None:
    """Print the facts, and for every line on standard input how many steps a second one repeat made.

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


def serve_scan(jax, step: Callable, carry: object, inputs: object) -> None:
    """``serve`` for a peer in JAX: scans ``step`` over its inputs and keeps its carry, observation included, alive.

    Args:
      jax: the peer's own.
      step: ``(carry, inputs of one step) -> carry``, batched.
      carry: state and observation, ``[batch, ...]``.
      inputs: actions, and keys where it takes them, ``[steps, batch, ...]``.
    """
    program = jax.jit(lambda carry, inputs: jax.lax.scan(lambda c, x: (step(c, x), None), carry, inputs)[0])
    start = time.perf_counter()
    compiled = program.lower(carry, inputs).compile()
    compile_s = time.perf_counter() - start
    held = [jax.block_until_ready(compiled(carry, inputs))]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(held[0]) if hasattr(leaf, "nbytes"))

    def repeat() -> None:
        held[0] = jax.block_until_ready(compiled(held[0], inputs))

    steps, batch = jax.tree.leaves(inputs)[0].shape[:2]
    serve({"compile_s": compile_s, "bytes": size / batch}, steps * batch, repeat)


def serve_requests(answer: Callable[..., dict]) -> None:
    """Print an answer to every request on standard input, whose fields are the keywords of `answer`."""
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)
