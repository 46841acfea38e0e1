"""A report of a fabricated run says what the run's files say, from the files alone."""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from engineer.evidence import Evidence, gather
from engineer.proposal import Proposal
from engineer.report import summary_table, table_text, write
from jaxlake.config import LakeConfig

SIZES = (3, 4, 5, 6)
STEPS_PER_ROUND = 60
RAW = '<think>\nWeakest size 6; ```holes``` first.\n</think>\n\n{"3":{"data":0.1}}'

SAMPLES = [
    {
        # a..b    Agent 1 leaves the corner before agent 0 comes through it: both take 5 steps.
        # .##.
        # B..A
        # ....
        "instance": {"size": 4, "holes": [[1, 1], [1, 2]], "starts": [[0, 0], [0, 3]], "goals": [[2, 3], [2, 0]]},
        "prompt": "4x4 holes(1,1)(1,2) 0(0,0)(2,3) 1(0,3)(2,0)",
        "answer": "0:(0,0)(0,1)(0,2)(0,3)(1,3)(2,3)\n1:(0,3)(1,3)(2,3)(2,2)(2,1)(2,0)",
        "checks": {},
        "optimal": True,
        "cost": 10,
        "optimum": 10,
    },
    {
        # a.#.B    Both enter the gap between the holes at step 4.
        # .....
        # .#.#.
        # ....A
        # b...#
        "instance": {
            "size": 5,
            "holes": [[0, 2], [2, 1], [2, 3], [4, 4]],
            "starts": [[0, 0], [4, 0]],
            "goals": [[3, 4], [0, 4]],
        },
        "prompt": "5x5 holes(0,2)(2,1)(2,3)(4,4) 0(0,0)(3,4) 1(4,0)(0,4)",
        "answer": "0:(0,0)(1,0)(1,1)(1,2)(2,2)(3,2)(3,3)(3,4)\n1:(4,0)(3,0)(3,1)(3,2)(2,2)(1,2)(1,3)(1,4)(0,4)",
        "checks": {"conflict_free": False},
        "optimal": False,
        "cost": -1,
        "optimum": 15,
    },
]
CHECKS = (
    "parsable",
    "agent_count",
    "start_correct",
    "in_bounds",
    "hole_free",
    "legal_move",
    "conflict_free",
    "goal_reached",
)


def fabricated_evidence(rng: np.random.Generator, skill: float) -> Evidence:
    sizes = np.repeat(SIZES, 64)
    valid = rng.random(256) < 1 / (1 + np.exp(-(skill - 0.9 * (sizes - 4.5))))
    checks = np.ones((256, 8), bool)
    first = rng.choice(8, 256, p=(0.02, 0.02, 0.05, 0.05, 0.4, 0.1, 0.26, 0.1))
    checks[~valid, first[~valid]] = False
    shares = rng.binomial(4, 1 / (1 + np.exp(-(skill - 0.7 - 0.9 * (sizes - 4.5))))) / 4
    return gather(
        sizes=sizes,
        checks=checks,
        optimal=valid & (rng.random(256) < 0.9),
        tokens=rng.integers(10, 30, 256),
        truncated=rng.random(256) < 0.01,
        sampled_valid=shares,
        samples_per_prompt=4,
    )


def as_file(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def fabricate(directory: Path) -> Path:
    """A finished run of three rounds over sizes 3 to 6."""
    rng = np.random.default_rng(0)
    as_file(directory / "config.yaml", "seed: 0\n")
    as_file(directory / "before" / "evidence.json", fabricated_evidence(rng, -9).to_json())
    as_file(directory / "warm_start" / "evidence.json", fabricated_evidence(rng, -0.3).to_json())
    metrics = [{"phase": "warm_start", "step": s, "plan_loss": 3 * 0.99**s} for s in range(1, 400)]
    for k in range(3):
        config = LakeConfig(
            sizes=SIZES,
            data=((0.1, 0.2, 0.3, 0.4), (0.25, 0.25, 0.25, 0.25), (0.11, 0.3, 0.34, 0.25))[k],
            hole=((0.45, 0.02, 0.3, 0.2), (0.2, 0.3, 0.25, 0.15), (0.25, 0.3, 0.2, 0.1))[k],
            wait=((0.9, 0.1, 0.6, 0.3), (0.4, 0.45, 0.35, 0.3), (0.35, 0.4, 0.4, 0.2))[k],
        )
        proposal = Proposal(
            engineer="checkpoint" if k else "random",
            raw=RAW if k else "",
            thinking="Weakest size 6; ```holes``` first." if k else "",
            parsed={"3": {"data": 0.1}} if k else None,
            projected=config,
            repairs=("size 4 is missing: kept from the previous round",) if k else (),
            fallback=False,
        )
        realised = config.to_dict()
        realised["3"]["hole"] = 0.2
        realised["3"]["wait"] = 0.125
        folder = directory / "rounds" / str(k)
        as_file(folder / "config.json", config.to_dict())
        as_file(folder / "proposal.json", {**proposal.to_json(), "realised": realised, "parameters": f"sha256:{k}{k}"})
        as_file(folder / "evidence.json", fabricated_evidence(rng, 0.1 + 0.4 * k).to_json())
        as_file(
            folder / "samples.json",
            [{**sample, "checks": {**dict.fromkeys(CHECKS, True), **sample["checks"]}} for sample in SAMPLES],
        )
        for step in range(STEPS_PER_ROUND):
            valid = 0.35 + 0.003 * (k * STEPS_PER_ROUND + step) / 3 - 0.06 * k + rng.normal(0, 0.05)
            metrics.append({"phase": "round", "round": k, "step": step + 1, "reward": 0.45 * valid, "valid": valid})
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in metrics))
    return directory


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricate(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def report(run_dir: Path) -> Path:
    return write(run_dir)


def test_report_and_its_pictures_are_written_and_nothing_else(run_dir, report):
    assert report == run_dir / "report" / "report.md"
    pictures = {"learning.png", "allocation.png", "failures.png", "boards.png"}
    assert {path.name for path in report.parent.iterdir()} == {"report.md", *pictures}
    for name in pictures:
        assert f"]({name})" in report.read_text()
        drawn = matplotlib.image.imread(report.parent / name)
        assert min(drawn.shape[:2]) > 300
        assert drawn[..., :3].std() > 0.05


def test_writing_again_gives_the_same_files(run_dir, report):
    before = {path.name: path.read_bytes() for path in report.parent.iterdir()}
    write(run_dir)
    assert {path.name: path.read_bytes() for path in report.parent.iterdir()} == before


def test_summary_has_every_size_and_their_total_for_every_stage(run_dir):
    rows = summary_table(run_dir)
    stages = ["before", "warm start", "round 0", "round 1", "round 2"]
    assert [(row.stage, row.size) for row in rows] == [(stage, size) for stage in stages for size in (*SIZES, None)]
    for stage in stages:
        *parts, total = (row for row in rows if row.stage == stage)
        assert total.n == sum(row.n for row in parts) == 256
        assert total.valid[0] * total.n == pytest.approx(sum(row.valid[0] * row.n for row in parts))
        assert total.valid[1] < total.valid[0] or total.valid[0] == 0
        assert total.optimal[0] <= total.valid[0]
        assert len(total.sampled) == 1 or total.sampled[1] < total.sampled[0] < total.sampled[2]


def test_terminal_tables_fit_and_hold_the_evidence(run_dir):
    printed = table_text(run_dir)
    assert max(map(len, printed.splitlines())) <= 100
    evidence = Evidence.from_json(json.loads((run_dir / "rounds" / "2" / "evidence.json").read_text()))
    row = next(line for line in printed.splitlines() if line.startswith("all"))
    assert f"{100 * evidence.valid / evidence.n:.0f} [" in row.split("]")[-2]
    configs = printed.split("Configurations as requested")[1].split("Configurations as realised")
    assert "0.340 / 0.200 / 0.400" in configs[0]
    assert "0.110 / 0.200 / 0.125" in configs[1]


def test_many_rounds_still_fit_the_terminal(run_dir, tmp_path):
    long = fabricate(tmp_path / "long")
    for k in range(3, 12):
        (long / "rounds" / str(k)).mkdir()
        for name in ("config.json", "proposal.json", "evidence.json"):
            (long / "rounds" / str(k) / name).write_text((run_dir / "rounds" / "2" / name).read_text())
    printed = table_text(long)
    assert max(map(len, printed.splitlines())) <= 100
    headers = [line for line in printed.split("\n\n")[0].splitlines() if line.startswith("size")]
    assert " ".join(headers).count("round") == 12
    assert write(long).exists()


def test_the_engineers_words_stand_verbatim_with_their_repairs(report):
    page = report.read_text()
    # The words hold three backticks, so the block around them needs four.
    assert f"````text\n{RAW}\n````" in page
    assert "- size 4 is missing: kept from the previous round" in page
    assert "`sha256:11`" in page
    assert "random draw" in page


def test_a_fallback_is_reported(tmp_path):
    directory = fabricate(tmp_path / "run")
    path = directory / "rounds" / "1" / "proposal.json"
    as_file(path, {**json.loads(path.read_text()), "fallback": True, "repairs": []})
    assert "the previous round's stayed in force" in write(directory).read_text()


def test_an_unfinished_run_is_reported_as_far_as_it_goes(tmp_path):
    directory = fabricate(tmp_path / "run")
    (directory / "rounds" / "2" / "evidence.json").unlink()
    (directory / "rounds" / "1" / "samples.json").unlink()
    page = write(directory).read_text()
    assert "From warm start to round 1" in page
    assert "0.340 / 0.200 / 0.400" in page


def test_a_run_without_rounds_has_its_warm_start_reported(tmp_path):
    rng = np.random.default_rng(1)
    as_file(tmp_path / "before" / "evidence.json", fabricated_evidence(rng, -9).to_json())
    page = write(tmp_path)
    assert {path.name for path in page.parent.iterdir()} == {"report.md", "failures.png"}
    assert "Environments" not in page.read_text()


def test_a_directory_without_validation_is_refused_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="holds no validation to report on"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []
