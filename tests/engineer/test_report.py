"""A report of a fabricated run says what the run's files say, from the files alone."""

import json
import shutil
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from engineer.evidence import Evidence, gather
from engineer.proposal import Proposal
from engineer.report import samples_markdown, summary_table, table_text, write
from jaxlake.config import LakeConfig

SIZES = (3, 4, 5, 6)
STEPS_PER_ROUND = 60
RAW = '<think>\nWeakest size 6; ```holes``` first.\n</think>\n\n{"3":{"data":0.1}}'

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

SAMPLES = [
    {
        # a..b    Agent 1 leaves the corner before agent 0 comes through it: both take 5 steps.
        # .##.
        # B..A
        # ....
        "instance": {"size": 4, "holes": [[1, 1], [1, 2]], "starts": [[0, 0], [0, 3]], "goals": [[2, 3], [2, 0]]},
        "prompt": "4x4 holes(1,1)(1,2) 0(0,0)(2,3) 1(0,3)(2,0)",
        "answer": "0:(0,0)(0,1)(0,2)(0,3)(1,3)(2,3)\n1:(0,3)(1,3)(2,3)(2,2)(2,1)(2,0)",
        "checks": dict.fromkeys(CHECKS, True),
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
        "checks": {**dict.fromkeys(CHECKS, True), "conflict_free": False},
        "optimal": False,
        "cost": -1,
        "optimum": 15,
    },
]


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


def fabricated_step(rng: np.random.Generator, valid: float) -> dict[str, float | None]:
    """What a step logs beside reward and validity; now and then a size is not seen and no update is made."""
    shares = rng.dirichlet((0.2, 0.2, 0.5, 0.5, 6, 1, 3, 1)) * (1 - valid)
    updated = rng.random() > 0.1
    return {
        **{f"failure/{check}": share for check, share in zip(CHECKS, shares, strict=True)},
        **{f"valid/size_{n}": None if rng.random() < 0.05 else valid * (1.6 - 0.2 * (n - 3)) for n in SIZES},
        "answer_tokens": rng.normal(18, 1),
        "answer_tokens_ended": rng.normal(17, 1),
        "answer_tokens_max": 40.0,
        "truncated": abs(rng.normal(0.02, 0.01)),
        "all_invalid_groups": rng.beta(30, 40),
        "all_valid_groups": rng.beta(10, 50),
        "learnable": rng.beta(30, 50),
        "entropy": rng.normal(0.5, 0.05) if updated else None,
        "gradient_norm": rng.lognormal(-1, 0.4) if updated else None,
        "ratio_max": 1 + rng.lognormal(-1, 0.4) if updated else None,
        "clipped_low": abs(rng.normal(0.004, 0.002)),
        "clipped_high": abs(rng.normal(0.006, 0.002)),
        "clipped_dual": 0.0,
        "mismatch_mean": rng.lognormal(-12, 0.3),
        "mismatch_max": rng.lognormal(-9, 0.3),
        "mismatch_k3": rng.lognormal(-22, 0.5),
        "kl_reference": rng.lognormal(-4, 0.3),
    }


def fabricated_timings(rng: np.random.Generator, step: int) -> dict[str, float]:
    slow = 10 if step == 0 else 1
    return {
        "rollout": slow * rng.normal(0.4, 0.03),
        "logprob": 0.1,
        "update": slow * rng.normal(0.3, 0.02),
        "host": 0.02,
        "rollout_tokens_per_second": rng.normal(9000, 300),
        "logprob_tokens_per_second": rng.normal(36000, 900),
        "update_tokens_per_second": rng.normal(12000, 300),
        "host_tokens_per_second": rng.normal(180000, 3000),
        "tokens_per_second": rng.normal(4400, 100),
        "memory_gb": 0.9 + 0.0005 * step,
        "compilations": 12 if step == 0 else 0,
    }


def fabricate(directory: Path, full: bool = False) -> Path:
    """A finished run of three rounds over sizes 3 to 6; if not full, with the few metrics of earlier versions."""
    rng = np.random.default_rng(0)
    as_file(directory / "config.yaml", "seed: 0\n")
    as_file(directory / "before" / "evidence.json", fabricated_evidence(rng, -9).to_json())
    as_file(directory / "warm_start" / "evidence.json", fabricated_evidence(rng, -0.3).to_json())
    for stage in ("before", "warm_start", "rounds/0", "rounds/1", "rounds/2"):
        as_file(directory / stage / "samples.json", SAMPLES)
        as_file(directory / stage / "samples.md", samples_markdown(SAMPLES))
    metrics = [{"phase": "warm_start", "step": s, "plan_loss": 3 * 0.99**s} for s in range(1, 400)]
    timings = [{"phase": "warm_start", "step": s, "host": 0.01, "update": 0.1} for s in range(1, 400)]
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
            attempts=1,
            errors=(),
        )
        realised = config.to_dict()
        realised["3"]["hole"] = 0.2
        realised["3"]["wait"] = 0.125
        folder = directory / "rounds" / str(k)
        as_file(folder / "config.json", config.to_dict())
        as_file(folder / "proposal.json", {**proposal.to_json(), "realised": realised, "parameters": f"sha256:{k}{k}"})
        as_file(folder / "evidence.json", fabricated_evidence(rng, 0.1 + 0.4 * k).to_json())
        for step in range(STEPS_PER_ROUND):
            valid = 0.35 + 0.003 * (k * STEPS_PER_ROUND + step) / 3 - 0.06 * k + rng.normal(0, 0.05)
            place = {"phase": "round", "round": k, "step": step + 1}
            metrics.append(
                place | {"reward": 0.45 * valid, "valid": valid} | (fabricated_step(rng, valid) if full else {})
            )
            timings.append(place | (fabricated_timings(rng, step) if full else {}))
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in metrics))
    as_file(directory / "timings.jsonl", "".join(json.dumps(row) + "\n" for row in timings))
    return directory


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricate(tmp_path_factory.mktemp("runs") / "tiny", full=True)


@pytest.fixture(scope="module")
def report(run_dir: Path) -> Path:
    return write(run_dir)


def test_report_and_its_pictures_are_written_and_nothing_else(run_dir, report):
    assert report == run_dir / "report" / "report.md"
    names = ("learning", "training", "allocation", "failures", "boards", "samples", "time")
    pictures = {f"{name}.png" for name in names}
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
    errors = ["it holds no object", "the context has 900 tokens: 640 fit"]
    told = {"raw": "", "fallback": True, "repairs": [], "attempts": 2, "errors": errors}
    as_file(path, {**json.loads(path.read_text()), **told})
    page = write(directory).read_text()
    assert "the previous round's stayed in force" in page
    assert "- attempt 2: the context has 900 tokens: 640 fit" in page


def test_a_run_of_an_earlier_version_is_reported_with_what_it_has(tmp_path):
    directory = fabricate(tmp_path / "old")
    for path in [*directory.rglob("samples.md"), directory / "timings.jsonl"]:
        path.unlink()
    for path in (directory / "rounds").glob("*/proposal.json"):
        proposal = json.loads(path.read_text())
        as_file(path, {key: proposal[key] for key in proposal.keys() - {"attempts", "errors"}})
    page = write(directory)
    assert "Valid % of greedy answers" in page.read_text()
    assert {"Time and memory", "samples.md"}.isdisjoint(page.read_text().split("](../"))
    drawn = {path.name for path in page.parent.glob("*.png")}
    assert drawn == {"learning.png", "allocation.png", "failures.png", "boards.png", "samples.png"}


def test_a_warm_start_alone_is_reported_with_its_curve(tmp_path):
    directory = fabricate(tmp_path / "taught")
    shutil.rmtree(directory / "rounds")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    taught = [row for row in rows if row["phase"] == "warm_start"]
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in taught))
    page = write(directory)
    assert "From before to warm start, valid plans on validation went from 0 % to " in page.read_text()
    assert "](learning.png)" in page.read_text() and (page.parent / "learning.png").exists()


def test_rounds_without_a_warm_start_are_reported_from_before_them(tmp_path):
    directory = fabricate(tmp_path / "straight", full=True)
    shutil.rmtree(directory / "warm_start")
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rounds = [row for row in rows if row["phase"] == "round"]
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rounds))
    page = write(directory)
    assert "From before to round 2, valid plans on validation went from 0 % to " in page.read_text()
    assert "](learning.png)" in page.read_text()


def test_a_run_that_logged_nulls_alone_is_reported(tmp_path):
    directory = fabricate(tmp_path / "run", full=True)
    for name in ("metrics.jsonl", "timings.jsonl"):
        rows = [json.loads(line) for line in (directory / name).read_text().splitlines()]
        kept = ("phase", "round", "step")
        nulls = [{key: value if key in kept else None for key, value in row.items()} for row in rows]
        as_file(directory / name, "".join(json.dumps(row) + "\n" for row in nulls))
    page = write(directory).read_text()
    assert "learning.png" in page
    assert "training.png" not in page
    assert "## Time and memory" not in page


def test_time_is_summed_by_part_with_its_share(run_dir, report):
    rows = [json.loads(line) for line in (run_dir / "timings.jsonl").read_text().splitlines()]
    seconds = {
        part: sum(row[part] for row in rows if row["phase"] == "round")
        for part in ("rollout", "logprob", "update", "host")
    }
    share = 100 * seconds["host"] / sum(seconds.values())
    [line] = [line for line in report.read_text().splitlines() if line.startswith("| host |")]
    assert [cell.strip() for cell in line.split("|")[2:4]] == [f"{seconds['host']:.1f}", f"{share:.1f}"]


def test_samples_page_holds_prompt_answer_verdict_and_the_board_with_its_paths():
    page = samples_markdown(SAMPLES)
    assert "| 0 | 4x4 | optimal | 10 | 10 |" in page
    assert "| 1 | 5x5 | fails: conflict | - | 15 |" in page
    # Agent 0 comes along the top, agent 1 goes along the third row, and both leave the cell between.
    assert "a..b   a>>b\n.##.   .##+\nB..A   B<<A\n....   ....\n" in page
    for sample in SAMPLES:
        assert f"```text\n{sample['prompt']}\n```" in page
        assert f"```text\n{sample['answer']}\n```" in page


def test_samples_page_shows_an_unreadable_answer_verbatim_beside_no_paths():
    checks = {**dict.fromkeys(CHECKS, True), "parsable": False, "goal_reached": False}
    page = samples_markdown([SAMPLES[0] | {"answer": "``` no plan", "checks": checks, "optimal": False, "cost": -1}])
    assert "## Sample 0: 4x4, fails: parse (then goal)" in page
    assert "```text\na..b\n.##.\nB..A\n....\n```" in page
    assert "````text\n``` no plan\n````" in page


def test_samples_page_shows_begin_and_end_of_a_long_thought():
    thought = "".join(f"<{i}>" for i in range(5000))
    page = samples_markdown([SAMPLES[0] | {"answer": f"{thought}\n{SAMPLES[0]['answer']}"}])
    assert len(page) < 6000
    assert "<0><1>" in page
    assert SAMPLES[0]["answer"] in page
    assert " characters ...]" in page
