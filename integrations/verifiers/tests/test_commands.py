"""The package's own commands on the taskset: vf-validate, and vf-eval against a server on this machine."""

import json
import subprocess
import sys
from collections.abc import Callable
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
    run(tmp_path, "vf-validate", "--runtime.type", "subprocess", "-n", "16", "-o", "out")
    (summary,) = tmp_path.glob("out/*/summary.json")
    assert json.loads(summary.read_text(encoding="utf-8"))["checks"] == {
        check: {"valid": 16, "invalid": 0, "error": 0, "timeout": 0, "unchecked": 0, "missing": 0}
        for check in ("gold", "noop")
    }


def evaluated(
    folder: Path, count: int, reply: Callable[[list[str]], str], **settings: object
) -> dict[str, tuple[float, dict[str, float]]]:
    """Reward and metrics of the first boards by their ids, as a server answers them that replies by a function."""
    with serving(reply) as url:
        options = {
            "--client.base-url": url,
            "--model": "planner",
            "--env.agent.runtime.type": "subprocess",
            "-n": str(count),
            "-o": "out",
            **{f"--env.taskset.{name}": str(value) for name, value in settings.items()},
        }
        run(folder, "vf-eval", *(word for pair in options.items() for word in pair), "--no-push")
    (traces,) = folder.glob("out/*/traces.jsonl")
    found = {}
    for episode in map(json.loads, traces.read_text(encoding="utf-8").splitlines()):
        (trace,) = episode["traces"]
        assert not trace.get("errors")
        found[trace["task"]["data"]["id"]] = (trace["rewards"]["accuracy"]["score"], trace["metrics"])
    return found


def test_an_evaluation_pays_what_a_server_answers(tmp_path):
    settings = {"boards": "validation", "style": "coordinates"}
    tasks = [task.data for task in MapfTaskset(MapfConfig(**settings)).take(4)]
    answers = {task.prompt: task.answer if number % 2 else "I cannot." for number, task in enumerate(tasks)}
    found = evaluated(tmp_path, 4, lambda texts: answers[texts[-1]], **settings)
    assert set(found) == {task.id for task in tasks}
    for number, task in enumerate(tasks):
        reward, metrics = found[task.id]
        assert reward == metrics["valid"] == metrics["optimal"] == metrics["parsable"] == number % 2


def test_an_evaluation_plays_turn_by_turn(tmp_path):
    settings = {"boards": "validation", "turns": 5}
    won, lost = [task.data for task in MapfTaskset(MapfConfig(**settings)).take(2)]
    scripts = {won.prompt: won.answer.split(), lost.prompt: ["Hmm."] * 10}
    assert len(scripts) == 2  # the boards are told apart by what is seen first

    def reply(texts: list[str]) -> str:
        return scripts[texts[0]][len(texts) // 2]

    found = evaluated(tmp_path, 2, reply, **settings)
    assert found[won.id] == (1, {"solved": 1, "arrived": 1, "steps": len(won.answer.split()) / 2, "unreadable": 0})
    assert found[lost.id] == (0, {"solved": 0, "arrived": 0, "steps": 5, "unreadable": 10})
