"""The package's own commands on the taskset: vf-validate, and vf-eval against a server on this machine."""

import json
import subprocess
import sys
from pathlib import Path

from chat_server import serving
from jaxlake_mapf.taskset import MapfConfig, MapfTaskset

BIN = Path(sys.executable).parent


def run(folder: Path, command: str, *arguments: str) -> str:
    """What a command of this environment prints; its error where it fails."""
    done = subprocess.run([BIN / command, "jaxlake-mapf", *arguments], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_solvers_plans_pass_and_untouched_tasks_do_not(tmp_path):
    run(tmp_path, "vf-validate", "--runtime.type", "subprocess", "-n", "64", "-o", "out")
    (summary,) = tmp_path.glob("out/*/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["checks"] == {
        check: {"valid": 64, "invalid": 0, "error": 0, "timeout": 0, "unchecked": 0, "missing": 0}
        for check in ("gold", "noop")
    }


def test_an_evaluation_pays_what_a_server_answers(tmp_path):
    tasks = [task.data for task in MapfTaskset(MapfConfig(boards="validation", style="coordinates")).take(6)]
    answers = {task.prompt: task.answer if number % 2 else "I cannot." for number, task in enumerate(tasks)}
    with serving(answers.__getitem__) as url:
        options = {
            "--client.base-url": url,
            "--model": "planner",
            "--env.taskset.boards": "validation",
            "--env.taskset.style": "coordinates",
            "--env.agent.runtime.type": "subprocess",
            "-n": "6",
            "-o": "out",
        }
        run(tmp_path, "vf-eval", *(word for pair in options.items() for word in pair), "--no-push")
    (traces,) = tmp_path.glob("out/*/traces.jsonl")
    found = {}
    for episode in map(json.loads, traces.read_text(encoding="utf-8").splitlines()):
        (trace,) = episode["traces"]
        assert not trace.get("errors")
        found[trace["task"]["data"]["id"]] = (trace["rewards"]["accuracy"]["score"], trace["metrics"])
    assert set(found) == {task.id for task in tasks}
    for number, task in enumerate(tasks):
        reward, metrics = found[task.id]
        assert reward == metrics["valid"] == metrics["optimal"] == metrics["parsable"] == number % 2
