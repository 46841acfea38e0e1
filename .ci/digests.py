"""Do shortened runs write what they wrote at another commit, byte for byte? For changes that should change nothing.

python .ci/digests.py FOLDER [NAME ...]     the runs of this checkout, of all names or of some; prints the digests
python .ci/digests.py --against COMMIT [NAME ...]     here and there, each by its own script; 1 if a file differs

Both on one machine: another processor rounds otherwise.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORT = (
    "student.warm_start.instances=2000",
    "rounds.instances=384",
    "validation.instances=200",
    "validation.samples=1",
)
RUNS = {
    "tiny": ("tiny.yaml", *SHORT, "student.warm_start.steps=24", "student.warm_start.engineer_first=12"),
    "lab": ("lab.yaml", "rounds.count=3"),
    "turns": ("turns.yaml", "student.warm_start.steps=12", "rounds.count=2"),
    "smollm2": (
        *(
            "smollm2-135m.yaml",
            "student.model.path=null",
            "student.warm_start.steps=2",
            "student.warm_start.instances=32",
        ),
        *("student.warm_start.engineer_every=2", "rounds.count=2", "rounds.instances=16", "validation.instances=12"),
    ),
}
"""The configuration of each run and what shortens it; that of SmolLM2 has random weights of its shape."""
KEPT = ("metrics.jsonl", "**/evidence.json", "**/samples.json", "**/proposal.json", "final/**/*", "**/scores.json")


def work(folder: Path, names: list[str]) -> None:
    """Make the runs in a folder and let a policy that writes answer a suite; print a line for each file."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}

    def command(*words: str) -> None:
        subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, check=True, stdout=sys.stderr)

    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        config, *overrides = RUNS[name]
        command("rl.train", "--config", str(ROOT / "configs" / config), "--run", name, *overrides)
        if name == "tiny":
            command("rl.evaluate", "--run", name, "--suite", "validation", "--limit", "80")
        for file in sorted({path for pattern in KEPT for path in (folder / name).glob(pattern) if path.is_file()}):
            print(hashlib.sha256(file.read_bytes()).hexdigest(), file.relative_to(folder), flush=True)


def compare(commit: str, names: list[str]) -> int:
    """Make the runs here and at a commit; print which files differ, and return 1 if any does."""
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(scratch, "checkout")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", there, commit], cwd=ROOT, check=True)
        try:
            lines = []
            for root in (there, ROOT):
                program = [sys.executable, root / ".ci/digests.py", Path(scratch, root.name), *names]
                lines.append(subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines())
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", there], cwd=ROOT, check=True)
    before, after = ({path: digest for digest, path in map(str.split, part)} for part in lines)
    differ = sorted(path for path in before | after if before.get(path) != after.get(path))
    print(*(f"differs: {path}" for path in differ), f"{len(before | after)} files, {len(differ)} differ", sep="\n")
    return int(bool(differ))


def main() -> int:
    """Make the runs here, or compare them with those of a commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT")
    parser.add_argument("words", nargs="*", metavar="FOLDER or NAME")
    options = parser.parse_args()
    folder, names = ([], options.words) if options.against else (options.words[:1], options.words[1:])
    if unknown := [name for name in names if name not in RUNS] or (not options.against and not folder):
        parser.error(f"{unknown}: give a folder, and names among {', '.join(RUNS)}")
    if options.against:
        return compare(options.against, names or list(RUNS))
    work(Path(folder[0]).resolve(), names or list(RUNS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
