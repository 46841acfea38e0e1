"""The launch scripts of docs/launch: parsed, read by the parser of the run, and run with tools that take notes.

The tools stand in for SLURM, gcloud and the training itself, so that what a script does before and after it, and after
a stop, is seen in a moment. `-m slow` runs the training too, on virtual CPU devices.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import pytest
import yaml
from shapes import SMALL_JSON

from rl import command, plan
from rl import config as config_
from rl.qwen3.sharding import make_mesh

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "docs" / "launch"
SCRIPTS = ("one_gpu.sh", "several_gpus.sh", "slurm.sbatch", "tpu_slice.sh")
PORT = "1234"
NOTE = """#!/usr/bin/env bash
printf '%s\\t' "$(basename "$0")" "$@" | tr '\\n' ' ' >> "$NOTES"; echo >> "$NOTES"
"""
TOOLS = {
    # A training that leaves a checkpoint which says $STAGE; after a SIGTERM, if it is to wait for one.
    "python": NOTE
    + """
[ "$2" = rl.train ] || exit 0
while [ $# -gt 0 ]; do [ "$1" = --run ] && run=$2; shift; done
if [ -n "${HANG:-}" ]; then trap 'kill $!' TERM; sleep 60 & touch "$HANG"; wait; fi
cd "$(mkdir -p "$run/checkpoints/3/progress" && echo "$run/checkpoints/3/progress")"
echo "{\\"record\\": {\\"progress\\": {\\"stage\\": \\"$STAGE\\", \\"round\\": 1}}}" > metadata
exit "${CODE:-0}"
""",
    "srun": NOTE + 'while [[ $1 == -* ]]; do shift; done; exec "$@"\n',
    "scontrol": NOTE,
    # A slice in the state $SLICE, whose hosts are this machine.
    "gcloud": NOTE
    + """
case "$*" in
*" describe "*) [ -n "$SLICE" ] && echo "$SLICE" ;;
*" ssh "*) for x; do [[ $x != --command=* ]] || { cd && exec bash -c "${x#--command=}"; }; done ;;
esac
""",
    **dict.fromkeys(("sudo", "git", "python3", "uv"), NOTE),
}


class Desk:
    """A folder with the tools, where scripts run, and the notes of what they called."""

    def __init__(self, folder: Path):
        self.folder, self.notes, self.run = folder, folder / "notes", folder / "run"
        for name in ("tools", "home/jaxlake", "home/venv/bin", "home/.local/bin"):
            (folder / name).mkdir(parents=True)
        for name, script in TOOLS.items():
            (folder / "tools" / name).write_text(script)
            (folder / "tools" / name).chmod(0o755)
        shutil.copy(folder / "tools" / "python", folder / "home/venv/bin/python")
        shutil.copy(folder / "tools" / "uv", folder / "home/.local/bin/uv")

    def environment(self, stage: str = "finished", **more: str) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "NOTES": str(self.notes),
            "RUN": str(self.run),
            "SLURM_JOB_ID": "7",
            "SHARE": "10.0.0.2:/runs",
            "MOUNT": str(self.folder),  # its RUN is below that
            "SLICE": "READY",
            "STAGE": stage,
            **more,
        }

    def launch(self, script: str, *settings: str, code: int = 0, **environment: str) -> list[list[str]]:
        """What the script called, each with its arguments."""
        if script == "tpu_slice.sh":
            environment = {"RUN": "run"} | environment
        self.notes.unlink(missing_ok=True)
        done = subprocess.run(
            ["bash", str(LAUNCH / script), *settings],
            cwd=ROOT,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return self.calls()

    def calls(self) -> list[list[str]]:
        return [line.split("\t")[:-1] for line in self.notes.read_text().splitlines()]


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def modules(calls: Sequence[Sequence[str]]) -> list[str]:
    return [call[2] for call in calls if call[:2] == ["python", "-m"]]


def training(calls: Sequence[Sequence[str]]) -> list[str]:
    """The arguments of the one training among them."""
    (found,) = [call[3:] for call in calls if call[:3] == ["python", "-m", "rl.train"]]
    return found


def pod() -> dict[str, Any]:
    """The container of the Job."""
    (container,) = documents()["Job"]["spec"]["template"]["spec"]["containers"]
    return container


def documents() -> dict[str, dict[str, Any]]:
    return {x["kind"]: x for x in yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())}


def start_pod(index: int, environment: Mapping[str, str], *settings: str, **options: Any) -> subprocess.Popen:
    """The container's command in its environment, changed by what is given; settings come behind its own."""
    container = pod()
    declared = {entry["name"]: entry["value"] for entry in container["env"]}
    return subprocess.Popen(
        [*container["command"], *container["args"], *settings],
        cwd=ROOT,
        env=declared | environment | {"JOB_COMPLETION_INDEX": str(index), "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        **options,
    )


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


def test_the_pods_find_each_other_and_their_disk():
    service, disk, job = (documents()[kind] for kind in ("Service", "PersistentVolumeClaim", "Job"))
    spec = job["spec"]["template"]["spec"]
    name = service["metadata"]["name"]
    assert spec["subdomain"] == name
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    environment = {entry["name"]: entry["value"] for entry in pod()["env"]}
    assert environment["COORDINATOR"] == f"{job['metadata']['name']}-0.{name}:{PORT}"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    (volume,) = spec["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == disk["metadata"]["name"]
    (mount,) = pod()["volumeMounts"]
    assert mount["name"] == volume["name"]
    for name in ("RUN", "HF_HOME", "JAX_COMPILATION_CACHE_DIR"):
        assert environment[name].startswith(mount["mountPath"])


def test_a_pod_that_stopped_with_everything_saved_does_not_count_as_failed():
    rules = documents()["Job"]["spec"]["podFailurePolicy"]["rules"]
    assert {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}} in rules


@pytest.mark.parametrize(
    ("script", "processes", "devices"),
    [("one_gpu.sh", 1, 1), ("several_gpus.sh", 1, 8), ("slurm.sbatch", 8, 8), ("tpu_slice.sh", 4, 16), ("pod", 2, 8)],
)
def test_the_settings_are_those_of_a_run_on_so_many_devices(desk, script, processes, devices):
    """By the real parser and the checks that a run makes before it compiles anything."""
    if script == "pod":
        container = pod()
        declared = {entry["name"]: entry["value"] for entry in container["env"]}
        with start_pod(1, desk.environment() | {"CONFIG": declared["CONFIG"]}) as process:
            assert process.wait() == 0
        calls = desk.calls()
    else:
        calls = desk.launch(script, "seed=3")
    arguments = training(calls)
    options = command._parser("rl.train", "", "").parse_args(arguments)
    assert options.run == desk.run
    assert (options.processes, options.process) == ((2, 1) if script == "pod" else (None, None))
    config = config_.load(ROOT / options.config, options.overrides)
    assert config.seed == (0 if script == "pod" else 3)
    assert config.grpo.prompts % processes == config.validation.instances % processes == 0
    rows = devices // config.mesh.tp
    assert config.mesh.fsdp == -1 and config.sampler.rows % rows == config.grpo.micro_batch % rows == 0
    assert config.sampler.rows // rows >= max(config.grpo.samples, config.validation.samples)
    plan.programs(config, make_mesh(-1, config.mesh.tp, jax.devices()[:devices]))  # of 16 devices, 8 are here
    for call in calls:
        if call[:3] == ["python", "-m", "rl.plan"]:
            planned = plan._parser().parse_args(call[3:])
            assert (planned.config, planned.overrides) == (options.config, options.overrides)


@pytest.mark.parametrize("script", ["one_gpu.sh", "several_gpus.sh"])
def test_what_fits_is_asked_before_a_run_begins_and_not_again(desk, script):
    assert modules(desk.launch(script)) == ["rl.plan", "rl.train"]
    (desk.run / "config.yaml").touch()
    assert modules(desk.launch(script)) == ["rl.train"]


def test_a_slurm_job_goes_back_into_the_queue_until_its_run_is_finished(desk):
    requeue = ["scontrol", "requeue", "7"]
    assert desk.launch("slurm.sbatch", stage="rounds")[-1] == requeue
    assert requeue not in desk.launch("slurm.sbatch")
    shutil.rmtree(desk.run)
    assert requeue not in desk.launch("slurm.sbatch", stage="rounds", CODE="2", code=2), "it would fail again"


def test_a_tpu_slice_is_made_where_there_is_none_or_it_was_taken_away(desk):
    def verbs(calls):
        return [call[4] for call in calls if call[0] == "gcloud"]

    assert verbs(desk.launch("tpu_slice.sh")) == ["describe", "ssh", "ssh", "ssh"]
    assert verbs(desk.launch("tpu_slice.sh", SLICE=""))[:3] == ["describe", "create", "ssh"]
    assert verbs(desk.launch("tpu_slice.sh", SLICE="PREEMPTED"))[:4] == ["describe", "delete", "create", "ssh"]
    desk.launch("tpu_slice.sh", stage="rounds", code=75)
    desk.launch("tpu_slice.sh", CODE="2", code=2)


@pytest.mark.parametrize(
    ("stage", "code", "told"), [("finished", 0, 0), ("rounds", 0, 75), ("rounds", 2, 2), ("finished", 1, 1)]
)
def test_a_pod_tells_kubernetes_whether_the_run_is_finished(desk, stage, code, told):
    hanging = desk.folder / "hanging"
    environment = desk.environment(stage, CODE=str(code), HANG=str(hanging))
    with start_pod(0, environment) as process:
        while not hanging.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)  # to bash alone, as process 1 of a container gets it
        assert process.wait() == told


@pytest.mark.tpu_aot
def test_the_plans_of_the_guide_are_those_of_the_configurations():
    """The program that compiles in seconds as it is there; of the others what needs no compiler."""
    pytest.importorskip("libtpu")
    blocks = re.findall(r"```\n\$ python -m rl.plan (.*)\n(.*)\n\n((?:.+\n)+)", (ROOT / "docs/scaling.md").read_text())
    assert len(blocks) == 3
    for arguments, title, table in blocks:
        options = plan._parser().parse_args(arguments.split())
        config = config_.load(ROOT / options.config, options.overrides)
        mesh = make_mesh(config.mesh.fsdp, config.mesh.tp, plan.topology_devices(options.topology))
        assert f"mesh fsdp {mesh.shape['fsdp']} x tp {mesh.shape['tp']}" in title
        for program, row in zip(plan.programs(config, mesh), table.splitlines()[1:], strict=True):
            name, figures = row[:20].strip(), [float(x) for x in row[29:].split()[:5]]
            assert name == program.name
            assert figures[3] == pytest.approx(plan.per_device(program.beside) / plan.GIB, abs=0.006)
            if name == "cast":
                found = plan.compile(program, plan.memory(mesh))
                sizes = found.arguments, found.outputs, found.temporaries, found.beside, found.needed
                assert figures == pytest.approx([size / plan.GIB for size in sizes], abs=0.006)


TINY = """
lake: {sizes: [3]}
text: {max_prompt_tokens: 32, max_new_tokens: 16}
warm_start: {steps: 0}
rounds: {count: 2, instances: 8}
grpo: {prompts: 4, samples: 2}
validation: {instances: 4, samples: 1}
engineer: {kind: uniform}
checkpoint: {every_steps: 1}
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
export SLURM_STEP_NUM_TASKS=2 SLURM_NTASKS=2 SLURM_STEP_NODELIST=localhost
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" &
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait $!
"""


@pytest.fixture
def job(desk) -> dict[str, str]:
    """The environment of a script that trains in earnest, on two virtual CPU devices a process."""
    (desk.folder / "tools/python").write_text(f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    (desk.folder / "tools/srun").write_text(SRUN)
    (desk.folder / "shape.json").write_text(json.dumps(SMALL_JSON))
    (desk.folder / "tiny.yaml").write_text(f"model: {{shape: {desk.folder}/shape.json}}\n{TINY}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return desk.environment() | {
        "CONFIG": str(desk.folder / "tiny.yaml"),
        "COORDINATOR": f"127.0.0.1:{port}",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(desk.folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count=2",
        "NPROC": "16",
    }


def finish(process: subprocess.Popen, code: int = 0) -> str:
    output, _ = process.communicate(timeout=500)
    assert process.returncode == code, output
    return output


def start_script(job: Mapping[str, str], script: str, **options: Any) -> subprocess.Popen:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([str(LAUNCH / script), "sampler.rows=8"], cwd=ROOT, env=job, **pipes | options)


def wait_for(path: Path, text: str, process: subprocess.Popen) -> None:
    while not (path.exists() and text in path.read_text()):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_on_several_devices_is_planned_trained_stopped_and_resumed(desk, job):
    process = start_script(job, "several_gpus.sh")
    wait_for(desk.run / "metrics.jsonl", '"round": 0, "step": 1', process)
    process.send_signal(signal.SIGTERM)
    output = finish(process)
    assert "2 x cpu, mesh fsdp 2 x tp 1" in output and "fits: " in output and "Stopped and saved" in output
    output = finish(start_script(job, "several_gpus.sh"))
    assert "Goes on in" in output and "Report: " in output and "fits: " not in output


@pytest.mark.slow
def test_two_tasks_of_slurm_are_one_run(desk, job):
    desk.notes.touch()
    script = ["bash", str(LAUNCH / "slurm.sbatch"), "sampler.rows=8"]
    done = subprocess.run(script, cwd=ROOT, env=job, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 4 x cpu" in done.stdout and "Report: " in done.stdout
    assert desk.calls() == []


@pytest.mark.slow
def test_two_pods_are_one_run_and_stop_together_when_one_is_evicted(desk, job):
    def start() -> list[subprocess.Popen]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return [start_pod(index, job, "sampler.rows=8", **pipes) for index in range(2)]

    pods = start()
    wait_for(desk.run / "metrics.jsonl", '"round": 0, "step": 1', pods[0])
    pods[1].send_signal(signal.SIGTERM)
    first, second = (finish(each, code=75) for each in pods)
    assert "on 4 x cpu" in first and "Stopped and saved" in first and "kubernetes" not in first + second
    first, second = (finish(each) for each in start())
    assert "Goes on in" in first and "Report: " in first
