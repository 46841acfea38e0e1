"""Programs run by two processes of one job, with four virtual devices each."""

import os
import socket
import subprocess
import sys

TWO_PROCESSES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu", "NPROC": "16"}
"""Environment of each; `NPROC` as in tests/conftest.py."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_pair(program: str, *arguments: str) -> list[str]:
    """Return the output of a program in each process, which is given the port, its number and `arguments`."""
    port, environment = str(free_port()), os.environ | TWO_PROCESSES
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", program, port, str(me), *arguments], env=environment, **pipes)
        for me in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    finally:
        for process in processes:
            process.kill()
    return outputs
