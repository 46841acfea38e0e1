"""The launch scripts of docs/launch: parsed, and what they ask of a run read by its own checks.

SLURM, gcloud and Kubernetes are not imitated.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from rl import config as config_
from rl import students
from rl.model.sharding import make_mesh

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "docs" / "launch"
SCRIPTS = ("one_gpu.sh", "several_gpus.sh", "slurm.sbatch", "tpu_slice.sh")


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_sound_to_bash_and_shellcheck(script):
    path = str(LAUNCH / script)
    subprocess.run(["bash", "-n", path], check=True)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run([checker, path], check=True)


@pytest.mark.parametrize(
    ("script", "processes", "devices"),
    [
        ("one_gpu.sh", 1, 1),
        ("several_gpus.sh", 1, 8),
        ("slurm.sbatch", 8, 8),
        ("tpu_slice.sh", 4, 16),
        ("kubernetes.yaml", 2, 8),
    ],
)
def test_the_configuration_of_a_script_runs_on_so_many_devices(script, processes, devices):
    """By the checks that a run makes before it compiles anything."""
    text = re.sub(r"#.*", "", (LAUNCH / script).read_text())
    (name,) = re.findall(r"configs/[\w.-]+\.yaml", text)
    config = config_.load(ROOT / name, re.findall(r"\b[a-z_]+(?:\.[a-z_]+)+=-?\w+", text))
    assert config.student.learn.prompts % processes == config.validation.instances % processes == 0
    rows = devices // config.mesh.tp
    assert config.mesh.fsdp == -1 and config.student.sampler.rows % rows == config.student.learn.micro_batch % rows == 0
    assert config.student.sampler.rows // rows >= max(config.student.learn.samples, config.validation.samples)
    students.programs(config, make_mesh(-1, config.mesh.tp, jax.devices()[:devices]))  # of 16 devices, 8 are here
