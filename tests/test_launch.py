"""The launch scripts of docs/launch: parsed, and what they ask of a run read by its own checks.

SLURM, gcloud and Kubernetes are not imitated. `-m slow` trains with a script on virtual CPU devices.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml
from shapes import SMALL_JSON

from rl import config as config_
from rl import plan
from rl.qwen3.sharding import make_mesh

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "docs" / "launch"
SCRIPTS = ("one_gpu.sh", "several_gpus.sh", "slurm.sbatch", "tpu_slice.sh")


def documents() -> dict[str, dict[str, Any]]:
    return {x["kind"]: x for x in yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_sound_to_bash_and_shellcheck(script):
    path = str(LAUNCH / script)
    subprocess.run(["bash", "-n", path], check=True)
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if checker is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run([checker, path], check=True)


def test_the_manifests_are_what_kubernetes_takes():
    validator = pytest.importorskip("kubernetes_validate")
    for document in yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text()):
        validator.validate(document, "1.33", strict=True)


def test_a_pod_that_stopped_with_everything_saved_does_not_count_as_failed():
    rules = documents()["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}} in rules


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
    config = config_.load(ROOT / name, re.findall(r"\b[a-z_]+\.[a-z_]+=-?\w+", text))
    assert config.grpo.prompts % processes == config.validation.instances % processes == 0
    rows = devices // config.mesh.tp
    assert config.mesh.fsdp == -1 and config.sampler.rows % rows == config.grpo.micro_batch % rows == 0
    assert config.sampler.rows // rows >= max(config.grpo.samples, config.validation.samples)
    plan.programs(config, make_mesh(-1, config.mesh.tp, jax.devices()[:devices]))  # of 16 devices, 8 are here


TINY = """
lake: {kinds: [3]}
text: {max_prompt_tokens: 32, max_new_tokens: 16}
warm_start: {steps: 0}
rounds: {count: 2, instances: 8}
grpo: {prompts: 4, samples: 2}
validation: {instances: 4, samples: 1}
engineer: {kind: uniform}
checkpoint: {every_steps: 1}
"""


@pytest.mark.slow
def test_a_run_on_several_devices_is_planned_trained_stopped_and_resumed(tmp_path):
    """With the script for several GPUs, on two virtual CPU devices."""
    run = tmp_path / "run"
    (tmp_path / "shape.json").write_text(json.dumps(SMALL_JSON))
    (tmp_path / "tiny.yaml").write_text(f"model: {{shape: {tmp_path}/shape.json}}\n{TINY}")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RUN": str(run),
        "CONFIG": str(tmp_path / "tiny.yaml"),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=2",
    }

    def start() -> subprocess.Popen:
        command = [str(LAUNCH / "several_gpus.sh"), "sampler.rows=8"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)

    def finish(process: subprocess.Popen) -> str:
        output, _ = process.communicate(timeout=500)
        assert process.returncode == 0, output
        return output

    process, metrics = start(), run / "metrics.jsonl"
    while not (metrics.exists() and '"round": 0, "step": 1' in metrics.read_text()):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert "2 x cpu, mesh fsdp 2 x tp 1" in output and "fits: " in output and "Stopped and saved" in output
    output = finish(start())
    assert "Goes on in" in output and "Report: " in output and "fits: " not in output
