"""Kills or stops a run anywhere and starts it again, twenty times, and compares
what comes out with an undisturbed run.

Run A goes through. Run B gets SIGKILL or SIGTERM, as drawn, at random moments,
at least two of each kind, and the same command each time. A moment is recognised from outside the
code that is tested, which knows nothing of it: both runs are started by this
script, which notes when a few of their functions begin and end, and a second
thread looks a thousand times a second at that, at the folder of checkpoints
and at the rows of metrics.jsonl. In A it writes down what was done when; the
moments are drawn from that; in B it sends the signal to its own process when that work at
that row has gone on for the drawn time.

examples:
  python benchmarks/kill_anywhere.py
      20 moments, about five minutes on two cores
  python benchmarks/kill_anywhere.py --student language
      the same with a language model that plays turn by turn, or a network
  python benchmarks/kill_anywhere.py --quick
      a moment of each student, side by side, 84 s on two cores
  python benchmarks/kill_anywhere.py --credit outcome
      the same with GRPO's own credit in place of the exact one
"""

import argparse
import collections
import dataclasses
import functools
import json
import os
import pkgutil
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp

ROOT = Path(__file__).parents[1]
SHAPE = {
    "model_type": "qwen3",
    "vocab_size": 896,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e4,
    "tie_word_embeddings": True,
}
MICRO = """
lake: {kinds: [3, 4]}
rounds: {count: 3, instances: 16}
validation: {instances: 16, samples: 2, holes: [0.2, 0.4]}
engineer: {max_thinking_tokens: 8, max_answer_tokens: 128}
checkpoint: {every_steps: 2}
student:
  text: {max_prompt_tokens: 32, max_new_tokens: 32}
  sampler: {rows: 32}
  warm_start: {steps: 6, instances: 64, batch: 16, engineer_first: 0, engineer_every: 3, engineer_batch: 2,
               warmup_steps: 2,
               max_answer_tokens: 128, holes: [0.2, 0.4]}
  epochs: 2
  learn: {prompts: 8, samples: 4, micro_batch: 8, minibatches: 2, kl_coefficient: 0.01, schedule: cosine,
         engineer_every: 3, credit: CREDIT}
  reward: {kind: REWARD, free_tokens: 12, limit_tokens: 32}
"""
PLAYER = """
base: lab.yaml
lake: {kinds: [3, 4]}
rounds: {count: 3, instances: 16}
validation: {kinds: [4], instances: 12, samples: 1, holes: [0.2, 0.4]}
engineer: {kind: ENGINEER, max_thinking_tokens: 8, max_answer_tokens: 128}
student:
  episode_steps: 6
  environments: 8
  rollout_steps: 8
  updates: 2
"""
ENGINEERS = {"network": "learnability", "language": "checkpoint, temperature: 1.5"}
"""The engineer of each player."""
PLAYERS = {
    "network": "  kind: network\n  learn: {iterations: 1, minibatches: 2}\n",
    "language": "  kind: player\n  chunk: 8\n"
    "  learn: {baseline: fitted, samples: 4, iterations: 1, minibatches: 2, kl_coefficient: 0.1}\n",
}
"""The kind of each player and its learning, in the section student."""
REWARDS = {"exact": "optimal", "outcome": "paper"}
"""The reward that goes with each credit."""
KINDS = {
    # Where a function is called from, its name there, and what the run does in it (the innermost counts).
    ("rl.learn.supervised", "warm_start"): "warm start",
    ("rl.loop.rounds", "run_rounds"): "between rounds",
    ("rl.students.WriterStudent", "train"): "within a round",
    ("rl.model.sampler.grammar.GrammarSampler", "write"): "engineer decoding",
    ("rl.students.writer.step", "sample"): "rollout",
    ("rl.learn.credit", "token_credit"): "credit",
    ("rl.students.writer.step", "add_logprobs"): "log-probs",
    ("rl.students.writer.step", "make_updates"): "update",
    ("rl.learn.supervised", "rehearse"): "rehearsal",
    ("rl.loop.rounds", "validate"): "validation",
    ("rl.students.writer.student", "validate"): "validation",
    ("rl.students.PlayerStudent", "train"): "update",
}
SAVING = "middle of a save"
WANTED = ("update", SAVING, "engineer decoding", "rollout", "validation", "between rounds")
COMPARED = ("metrics.jsonl", "config.yaml", "warm_start/*", "rounds/*/*", "best/*", "final/*")


@dataclasses.dataclass(frozen=True)
class Moment:
    """What a run does (of `KINDS`, or `SAVING`) with how many steps logged, and for how many seconds already."""

    kind: str
    rows: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Disturbance:
    """What became of a run that got a signal.

    Attributes:
      moment: at which it did; None if it went through before.
      number: of the signal.
      code: exit code.
      seconds: from the signal to the end.
      output: what it printed.
      said: what the next start said of where it goes on.
    """

    moment: Moment | None
    number: int
    code: int
    seconds: float
    output: str
    said: str


class Watcher(threading.Thread):
    """Looks at the main thread; writes down what it does, or sends a signal to the process at a moment.

    Args:
      run: directory of the run.
      doing: what the main thread is at, the innermost last; `noted` keeps it.
      log: gets a JSON line for each thing that the run did, or for the moment at which it got the signal.
      target: None to watch alone.
      number: of the signal.
    """

    def __init__(self, run: Path, doing: list[str], log: Path, target: Moment | None, number: int):
        super().__init__(daemon=True)
        self._folder, self._log, self._moment, self._began = run, log, target, time.time()
        self._doing, self._number = doing, number

    def run(self) -> None:
        """Until the process ends."""
        since, met, missed = {}, False, False
        while True:
            rows, now = self._rows(), time.monotonic()
            active = {(kind, rows) for kind in self._kinds()}
            for kind, at in since.keys() - active:
                begun = since.pop((kind, at))
                if self._moment is None:
                    self._write(Moment(kind, at, now - begun))
            since = dict.fromkeys(active, now) | since
            if self._moment is not None and active:
                here = (self._moment.kind, self._moment.rows) in active
                # It went by faster than in run A, or between two looks: then the next of its kind, at once.
                missed |= (met and not here) or rows > self._moment.rows
                met |= here
                spent = now - since.get((self._moment.kind, rows), now)
                if (self._moment.kind, rows) in active and (missed or (here and spent >= self._moment.seconds)):
                    self._write(Moment(self._moment.kind, rows, spent))
                    os.kill(os.getpid(), self._number)
                    return
            time.sleep(0.001)

    def _write(self, moment: Moment) -> None:
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(moment)) + "\n")

    def _kinds(self) -> set[str]:
        """Return what goes on: one thing in the main thread, and a save beside it."""
        doing = set(self._doing[-1:])
        return doing | {SAVING} if doing and self._saving() else doing

    def _saving(self) -> bool:
        """Whether Orbax is writing: its folder has another name until it is whole. One that a killed process left is
        older than this one."""
        try:
            with os.scandir(self._folder / "checkpoints") as entries:
                return any(".orbax-checkpoint-tmp" in e.name and e.stat().st_ctime > self._began for e in entries)
        except FileNotFoundError:  # none yet, or renamed while we looked
            return False

    def _rows(self) -> int:
        try:
            return (self._folder / "metrics.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0


def write_micro(folder: Path, credit: str, student: str = "policy") -> None:
    """Write this student's configuration of seconds, `micro.yaml`, and its shape; a policy gets this credit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shape.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    settings = MICRO.replace("CREDIT", credit).replace("REWARD", REWARDS[credit])
    if student in ENGINEERS:
        settings = PLAYER.replace("ENGINEER", ENGINEERS[student]) + PLAYERS[student]
    if student != "network":
        settings += f"  model: {{shape: {folder.absolute()}/shape.json}}\n"
    (folder / "micro.yaml").write_text(settings, encoding="utf-8")


def go(folder: Path, run: str, log: Path, target: Moment | None = None, number: int = signal.SIGKILL) -> Disturbance:
    """Run the command on a run, watched, to its end."""
    environment = os.environ | {
        # Nearly all the time of such a run is compilation: so without XLA's optimizations, and once for all runs.
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    values = {"run": str(folder / run), "log": str(log), "number": int(number)}
    values["target"] = target and dataclasses.asdict(target)
    command = [sys.executable, __file__, "--watched", json.dumps(values)]
    command += ["--config", str(folder / "micro.yaml"), "--run", str(folder / run)]
    before = len(read(log))
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ended, output = time.time(), done.stdout
    said = next((line for line in output.splitlines() if line.startswith("Resumes")), "begins")
    said = said.replace(f"Resumes {folder / run}: ", "")
    hit = None if target is None or len(read(log)) == before else read(log)[-1]
    return Disturbance(hit, number, done.returncode, 0.0 if hit is None else ended - log.stat().st_mtime, output, said)


def draw(trace: list[Moment], kinds: tuple[str, ...], count: int, rng: random.Random) -> list[Moment]:
    """`count` random moments in the order in which they come, equally many of each kind as far as that goes."""
    found = collections.defaultdict(list)
    for place, moment in enumerate(trace):
        if moment.seconds > 0.005:  # shorter ones go by between two looks
            found[moment.kind].append((place, moment))
    chosen = {}
    # The first of a kind compiles, and the machine is not always as busy: so in the first half of the shortest one. A
    # process that was started again is still loading its programs then, or calls them for the first time.
    shortest = {kind: min(m.seconds for _, m in moments) for kind, moments in found.items()}
    kinds = [kind for kind in kinds if kind in found]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        place, moment = rng.choice([x for x in found[kind] if x[0] not in chosen] or found[kind])
        last = place == found[kind][-1][0]  # no other comes where that is missed
        seconds = 0.0 if last else rng.uniform(0, shortest[kind] / 2)
        chosen[place] = dataclasses.replace(moment, seconds=seconds)
    return [chosen[place] for place in sorted(chosen)]


def read(log: Path) -> list[Moment]:
    """Read the moments in a log."""
    return [Moment(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def differences(one: Path, other: Path) -> list[str]:
    """Return what differs by a bit in two runs: files by name, arrays and progress of the last checkpoint."""
    names = sorted({str(f.relative_to(run)) for run in (one, other) for p in COMPARED for f in run.glob(p)})
    found = [name for name in names if not _same(one / name, other / name)]
    saved = [_last_record(run) for run in (one, other)]
    for part in ("arrays", "progress"):
        ours, theirs = (record[part] for record in saved)
        found += [f"last checkpoint: {name}" for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if _lines(one) != _lines(other):
        found.append("rows of timings.jsonl")
    return found


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and (one.is_dir() or one.read_bytes() == other.read_bytes())


def _last_record(run: Path) -> dict:
    """Return the last checkpoint: the bytes of every array, and the progress without the timings' length."""
    last = max((run / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name))
    record = json.loads((last / "progress" / "metadata").read_text(encoding="utf-8"))["record"]
    del record["progress"]["log_bytes"]["timings.jsonl"]
    arrays = ocp.PyTreeCheckpointHandler().restore(last / "arrays")
    return record | {
        "arrays": {jax.tree_util.keystr(path): np.asarray(x).tobytes() for path, x in jax.tree.leaves_with_path(arrays)}
    }


def _lines(run: Path) -> int:
    return (run / "timings.jsonl").read_text(encoding="utf-8").count("\n")


def disturb(folder: Path, one: str, other: str, kinds: tuple[str, ...], count: int, seed: int) -> list[Disturbance]:
    """Disturb the run `other` at moments of run `one`, which went through and was watched, and lets it end at last.

    Returns:
      What became of it, start for start.
    """
    rng, found = random.Random(seed), []
    targets = draw(read(folder / f"{one}.jsonl"), kinds, count, rng)
    for target in [*targets, None]:
        number = rng.choice((signal.SIGKILL, signal.SIGTERM))
        found.append(start := go(folder, other, folder / f"{other}.jsonl", target, number))
        if start.code not in (0, -signal.SIGKILL) or "cannot be read (" in start.output:
            raise SystemExit(f"run {other}: exit code {start.code}\n{start.output}")
        if start.moment is None:  # the last one; or the moment never came
            break
    return found


def main() -> int:
    """Return 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a moment of each student")
    parser.add_argument("--student", choices=("policy", *ENGINEERS), default="policy", help="(default: policy)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument(
        "--credit", choices=("exact", "outcome"), default="exact", help="student.learn.credit (default: exact)"
    )
    parser.add_argument("--work", type=Path, help="where the runs go, and stay (default: a folder that is deleted)")
    parser.add_argument("--json", type=Path, help="also writes the figures there")
    options = parser.parse_args()
    started, rows = time.perf_counter(), []
    students = ("policy", "language", "network") if options.quick else (options.student,)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(2) as pool:
        folder = options.work or Path(temporary)
        results = list(pool.map(lambda student: compare(folder / student, student, options), students))
    for student, (count, found, text) in zip(students, results, strict=True):
        print(text)
        row = {
            "name": f"{student}: differences after {count} signals",
            "ours": len(found),
            "peer": None,
            "ratio": None,
        }
        rows.append(row | {"target": 0, "met": not found})
    print(f"{time.perf_counter() - started:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return not all(row["met"] for row in rows)


def compare(folder: Path, student: str, options: argparse.Namespace) -> tuple[int, list[str], str]:
    """Compare a disturbed run of a student with one that is not; return the signals, what differs, and a text."""
    more = ("log-probs", "warm start", "rehearsal", *(["credit"] if options.credit == "exact" else []))
    kinds = WANTED if options.quick or student in ENGINEERS else (*WANTED, *more)
    write_micro(folder, options.credit, student)
    whole = go(folder, "a", folder / "a.jsonl")
    if whole.code:
        raise SystemExit(f"run a: exit code {whole.code}\n{whole.output}")
    starts = disturb(folder, "a", "b", kinds, 1 if options.quick else 20, options.seed)
    found = differences(folder / "a", folder / "b")
    lines = [
        f"{student + ', disturbed in':<24} {'by':<8} {'steps logged':>12} {'ms into it':>11}   "
        "the same command then goes on from"
    ]
    disturbed = starts[:-1]
    for start, after in zip(disturbed, starts[1:], strict=True):
        moment, name = start.moment, signal.Signals(start.number).name
        lines.append(f"{moment.kind:<24} {name:<8} {moment.rows:>12} {1000 * moment.seconds:>11.1f}   {after.said}")
    counts = collections.Counter(start.moment.kind for start in disturbed)
    lines.append(f"{len(disturbed)} moments: {', '.join(f'{n} x {kind}' for kind, n in counts.most_common())}")
    lines.append(f"differences: {len(found)}{''.join(f'{chr(10)}  {name}' for name in found)}\n")
    return len(disturbed), found, "\n".join(lines)


def watched(spec: str, arguments: list[str]) -> int:
    """Run the command in this process, with a watcher beside it."""
    values, doing = json.loads(spec), []
    for (place, name), kind in KINDS.items():
        owner = pkgutil.resolve_name(place)
        setattr(owner, name, noted(getattr(owner, name), kind, doing))
    target = values["target"] and Moment(**values["target"])
    Watcher(Path(values["run"]), doing, Path(values["log"]), target, values["number"]).start()
    return pkgutil.resolve_name("rl.train:main")(arguments)


def noted(function: Callable, kind: str, doing: list[str]) -> Callable:
    """Wrap the function; while it runs, `kind` is the last of `doing`."""

    @functools.wraps(function)
    def run(*arguments, **named):
        doing.append(kind)
        try:
            return function(*arguments, **named)
        finally:
            doing.pop()

    return run


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        sys.exit(watched(sys.argv[2], sys.argv[3:]))
    else:
        sys.exit(main())
