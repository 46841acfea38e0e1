"""Several processes that run one program: who they are, each one's share of the work, and what all of them know.

Every process runs the same code on the same keys. Where each does a part (its share of the prompts, say), `all_gather`
gives all of them the whole, so they continue with equal values. With one process each function here is the identity.
"""

import glob
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from rl.config import ConfigError


def initialize(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join this process with the others of its job; call before anything that asks JAX for devices.

    With the three arguments: as they say. Without: SLURM with several tasks and TPUs tell JAX themselves who belongs
    together; anywhere else this is the only process, and nothing is done. Nor is it where they are together already.

    Args:
      coordinator: HOST:PORT of process 0, a free port there.

    Where the others do not come within five minutes, JAX ends this process with a trace of its own (SIGABRT).

    Raises:
      ConfigError: if only some are given, they contradict each other, or JAX cannot begin, as where the port is taken.
    """
    if coordinator is not None and processes is not None and process is not None:
        if not 0 <= process < processes:
            raise ConfigError(f"--process {process}: must be from 0 to {processes - 1}, as there are {processes}")
        if not coordinator.rpartition(":")[2].isdigit():
            raise ConfigError(f"--coordinator {coordinator}: must be HOST:PORT")
        # And nothing else: in a pod JAX would want the package `kubernetes`, under SLURM leave a process only one GPU.
        _join(coordinator, processes, process, cluster_detection_method="deactivate")
    elif (coordinator, processes, process) != (None, None, None):
        raise ConfigError("--coordinator, --processes and --process belong together: give all three or none")
    elif not jax.distributed.is_initialized() and (
        int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1 or _on_tpu_host()
    ):
        _join()


def _join(*arguments: Any, **options: Any) -> None:
    try:
        jax.distributed.initialize(*arguments, **options)
    except (RuntimeError, ValueError) as error:
        raise ConfigError(f"the processes of this job did not come together: {str(error).splitlines()[0]}") from None


def _on_tpu_host() -> bool:
    """Whether JAX will run on TPUs of a host that knows its pod; without asking JAX, as that would start the devices.

    A hosted notebook's TPU knows none: it forbids the query to the cloud's metadata server and names no hosts.
    """
    chips = glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*")
    platforms = jax.config.jax_platforms or "tpu"  # type: ignore[attr-defined]  # set when JAX is imported
    if not chips or "tpu" not in platforms or importlib.util.find_spec("libtpu") is None:
        return False
    return "TPU_WORKER_HOSTNAMES" in os.environ or "TPU_SKIP_MDS_QUERY" not in os.environ


def is_main() -> bool:
    """Whether this is the process that writes files and talks to the user."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0  # alone, without starting the devices


def share(count: int, what: str) -> slice:
    """Return this process's contiguous part of `count` things; ConfigError, naming `what`, if parts are not equal."""
    part, rest = divmod(count, jax.process_count())
    if rest:
        raise ConfigError(f"{what} = {count}: must be a multiple of the {jax.process_count()} processes of this job")
    return slice(jax.process_index() * part, (jax.process_index() + 1) * part)


def all_gather(tree: Any) -> Any:
    """Join the numpy arrays of every process, ``[local, ...]`` and of equal shape, to ``[all, ...]`` in their order.

    They travel as JAX arrays: what has 64 bits is rounded to 32.
    """
    if jax.process_count() == 1:
        return tree
    gathered = multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), gathered, tree)


def agree(flag: bool) -> bool:
    """Return True on all processes if `flag` is True on any; all must call it at the same place."""
    return bool(all_gather(np.array([flag])).any())


def is_same(text: str) -> bool:
    """Whether every process holds this text; where they do not, they would go separate ways from here on."""
    digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int32)
    return bool((all_gather(digest[None]) == digest).all())


def together(work: Callable[[], Any], kind: type[Exception], elsewhere: str) -> Any:
    """Return the result of `work`; where one process raises `kind`, all do, the others with the words `elsewhere`."""
    result, refusal = None, None
    try:
        result = work()
    except kind as error:
        refusal = error
    if agree(refusal is not None):
        raise refusal or kind(elsewhere)
    return result


def from_main(work: Callable[[], Any]) -> Any:
    """Let process 0 alone do `work`, and return its plain JSON values on all; all raise the ConfigError it raises."""
    if jax.process_count() == 1:
        return work()
    content = together(lambda: json.dumps(work()).encode() if is_main() else b"", ConfigError, "refused by process 0")
    room = int(all_gather(np.array([len(content)])).max())
    mine = np.frombuffer(content.ljust(room), np.uint8)
    return json.loads(all_gather(mine[None])[0].tobytes())
