"""The command `python -m rl.plan`: compiles a run's largest programs ahead of time and runs none: do they fit?

For a TPU topology it needs no TPU, only libtpu's compiler; else it asks the compiler of the devices that are here.
"""

import argparse
import dataclasses
import importlib.util
import math
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from jaxlake.commands import command_parser, local_path
from rl import command
from rl import config as config_
from rl.config import ConfigError, NetworkSection
from rl.model.sharding import make_mesh
from rl.students import Program, programs

GIB = 2**30
TPU_MEMORY = {"TPU v5 lite": 15.75, "TPU v5": 95.73, "TPU v6 lite": 31.24}
"""GiB a chip that XLA leaves to programs, on v5e, v5p and v6e: what it says when a program asks for too much."""


@dataclasses.dataclass(frozen=True)
class Figures:
    """The compiler's figures of a program, in bytes of one device; `needed` is their sum.

    The compiler refuses a program that alone is too large, and says no more than what arguments, outputs and
    temporaries add up to: `outputs` is 0 then.
    """

    seconds: float
    arguments: int
    outputs: int
    temporaries: int
    beside: int
    needed: int
    fits: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code: 0 all programs fit, 1 some do not, 2 a user's mistake."""
    options = command.parse(_parser(), arguments)
    try:
        config = config_.load(options.config, options.overrides)
        if isinstance(config.student, NetworkSection):
            raise ConfigError("student.kind = network has no program that needs a plan; it fits anywhere")
        devices = jax.devices() if options.topology is None else topology_devices(options.topology)
        mesh = make_mesh(config.mesh.fsdp, config.mesh.tp, devices)
        return 0 if show(mesh, programs(config, mesh), memory(mesh)) else 1
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def show(mesh: Mesh, planned: Sequence[Program], limit: int) -> bool:
    """Compile the programs one by one, print a line for each and the verdict, and return whether all fit."""
    shape = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    print(f"{mesh.size} x {mesh.devices.flat[0].device_kind}, mesh {shape}, {limit / GIB:,.2f} GiB a device\n")
    print(f"GiB a device{'compile':>16}{'arguments':>10}{'outputs':>8}{'temporary':>10}{'beside':>7}{'sum':>8}")
    figures = dict[str, Figures]()
    for program in planned:
        print(f"{program.name:20}", end="", flush=True)  # while it compiles, which can take minutes
        x = figures[program.name] = compile(program, limit)
        sizes = zip((x.arguments, x.outputs, x.temporaries, x.beside, x.needed), (10, 8, 10, 7, 8), strict=True)
        columns = "".join(f"{size / GIB:{width}.2f}" for size, width in sizes)
        print(f"{x.seconds:6.1f} s{columns}  {'fits' if x.fits else 'no room'}", flush=True)
    most = max(figures, key=lambda program: figures[program].needed)
    fits = all(x.fits for x in figures.values())
    verdict = f"{'fits' if fits else 'does NOT fit'}: {most} takes the most"
    print(f"\n{verdict}, {figures[most].needed / GIB:,.2f} of {limit / GIB:,.2f} GiB")
    return fits


def compile(program: Program, limit: int) -> Figures:
    """Compile a program for devices with `limit` bytes each, and read what the compiler says of it."""
    started, arguments, beside = time.perf_counter(), per_device(program.arguments), per_device(program.beside)
    try:
        stats = program.lower().compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        asked = re.search(r"required.*?\(([\d.]+)([KMGT])\) exceeds", str(error))
        if asked is None:
            raise
        # It says temporaries, and means arguments as well: 12 GiB of them and 16 of temporaries are "28.00G".
        total, outputs = int(float(asked[1]) * 1024 ** (1 + "KMGT".index(asked[2]))), 0
    else:
        assert stats is not None  # some platforms of JAX have none; CPU, GPU and TPU do
        arguments, outputs = stats.argument_size_in_bytes, stats.output_size_in_bytes - stats.alias_size_in_bytes
        total, asked = arguments + stats.temp_size_in_bytes, None
    needed = total + outputs + beside
    fits = asked is None and needed <= limit
    return Figures(time.perf_counter() - started, arguments, outputs, total - arguments, beside, needed, fits)


def topology_devices(name: str) -> list[jax.Device]:
    """Return descriptions of the chips of a TPU topology such as ``v5e:2x4``, for which XLA can compile."""
    if importlib.util.find_spec("libtpu") is None:
        raise ConfigError("--topology needs the compiler for TPUs: pip install libtpu")
    # libtpu looks for the TPU around it and complains of what it does not find, unless these say where it is; and it
    # lets one process at a time have it, which compiling does not need.
    os.environ.update(TPU_SKIP_MDS_QUERY="1", TPU_WORKER_HOSTNAMES="localhost", TPU_ACCELERATOR_TYPE="v5e-8")
    os.environ.update(ALLOW_MULTIPLE_LIBTPU_LOAD="1")
    jax.config.update("jax_platforms", "cpu")  # whatever else is here is not wanted
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name=name).devices
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(f"--topology {name}: must be like v5e:2x4 ({str(error).splitlines()[0][:100]})") from None


def memory(mesh: Mesh) -> int:
    """Return the bytes that a device of the mesh has for programs; virtual CPU devices share the machine's."""
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // mesh.size
    if device.platform != "tpu":
        return device.memory_stats()["bytes_limit"]
    if device.device_kind not in TPU_MEMORY:
        raise ConfigError(f"the TPU must be one of {', '.join(TPU_MEMORY)}, not {device.device_kind}")
    return int(TPU_MEMORY[device.device_kind] * GIB)


def per_device(tree: Any) -> int:
    """Count the bytes on each device of abstract arrays with shardings."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "rl.plan",
        "Compiles the largest programs of a run, for this machine's devices or for other TPUs, and\n"
        "prints the device memory that each takes: its arguments, its outputs beside them, temporary\n"
        "memory while it runs, and the run's other arrays (beside). Exit status 0 if all fit, else 1.",
        "examples:\n  python -m rl.plan --config configs/qwen3-4b-v5e-8.yaml --topology v5e:2x4",
    )
    parser.add_argument("--config", type=local_path, required=True, metavar="FILE", help="YAML file of the run")
    parser.add_argument("--topology", metavar="NAME", help="TPU chips, such as v5e:2x4 (default: this machine's)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings that override the file")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once; Python waits for a compilation's end
    sys.exit(main())
