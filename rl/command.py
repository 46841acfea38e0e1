"""The shared parts of the commands of rl: options, one-line errors, exit codes."""

import argparse
import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxlake.commands import local_path
from rl import config as config_
from rl import distributed
from rl.config import ConfigError, RunError
from rl.run.signals import Interrupted, Stop


def guarded(name: str, arguments: list[str], work: Callable[[Stop], None]) -> int:
    """Do the work of the command `name` and return its exit code; print what goes wrong in one line.

    0 done, or stopped by SIGTERM with everything saved; 1 the run or the disk fails; 2 a mistake of the user's;
    130 stopped by Ctrl-C, 129 by the end of its terminal. Of several processes only the first tells of a stop; each
    tells of an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook has others
            stream.reconfigure(errors="backslashreplace", line_buffering=True)  # for letters that a terminal lacks
    again = f"python -m {name} {shlex.join(arguments)}".rstrip()
    try:
        with Stop().listening() as stop:
            work(stop)
    except Interrupted as interrupted:
        if distributed.is_main():
            print(f"Stopped and saved. To resume: {again}")
        return 0 if interrupted.number == signal.SIGTERM else 128 + interrupted.number
    except KeyboardInterrupt:
        if distributed.is_main():
            print(f"Stopped at once; the last saved state is kept. To resume from it: {again}")
        return 130
    except (ConfigError, PermissionError) as error:
        return _fail(error, 2)
    except (RunError, OSError) as error:
        return _fail(error, 1)
    return 0


def _fail(error: Exception, code: int) -> int:
    where = "" if distributed.is_main() else f"process {jax.process_index()}: "
    words = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print(f"{where}error: {words}", file=sys.stderr)
    return code


def join(options: argparse.Namespace, stop: Stop) -> None:
    """Join this process with its job's others; ConfigError as `distributed.initialize`, or if devices are missing."""
    distributed.initialize(options.coordinator, options.processes, options.process)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # the second, wordless, for `cuda` where CUDA is not installed
        raise ConfigError(
            f"JAX_PLATFORMS = {os.environ.get('JAX_PLATFORMS', '')}: JAX cannot use it here"
            f"{''.join(f' ({line})' for line in str(error).splitlines()[:1])}; unset it to run on what is here, or "
            "install the extra gpu or tpu"
        ) from None
    stop.listen()


def shipped(name: str) -> Path:
    """Return the path of a configuration that comes with the package."""
    return config_.SHIPPED / name


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of a command with KEY=VALUE, and tell a newcomer who writes --key value."""
    options, unknown = parser.parse_known_intermixed_args(arguments)  # KEY=VALUE on both sides of an option
    if unknown:
        parser.error(f"there is no {unknown[0]}; settings have no dashes: KEY=VALUE, such as seed=1 (see --help)")
    return options


def add_path(parser: Any, option: str, metavar: str, help: str) -> None:
    """Give a parser, or a group of its options, one that takes a path on this machine."""
    parser.add_argument(option, type=local_path, metavar=metavar, help=help)


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Give a parser the options that `distributed.initialize` needs."""
    job = parser.add_argument_group(
        "several processes", "start the same command in each; on TPU pods and under SLURM omit these options"
    )
    job.add_argument("--coordinator", metavar="HOST:PORT", help="address of process 0, with a free port")
    job.add_argument("--processes", type=int, metavar="N", help="number of processes")
    job.add_argument("--process", type=int, metavar="I", help="number of this process, from 0")
