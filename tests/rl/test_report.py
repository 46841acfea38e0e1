"""A report of a fabricated run says what the run's files say, from the files alone."""

import dataclasses
import html.parser
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from engineer.evidence import Evidence, KindEvidence, TrainingEvidence, evidence_from_verdicts
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.report import curves, pictures
from rl.report.__main__ import main
from rl.report.changes import changes, excerpt
from rl.report.design import design
from rl.report.heat import entropy
from rl.report.page import write
from rl.report.published import comparable
from rl.report.run import read
from rl.report.tables import adapter_table, shares, table_text
from rl.run.samples import marked, samples_markdown

SIZES = (3, 4, 5, 6)
STEPS_PER_ROUND = 60
THINKING = "Weakest size 6; <b>holes</b> first."
RAW = f'<think>\n{THINKING}\n</think>\n\n{{"3":{{"data":0.1}}}}'

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


def fabricated_evidence(rng: np.random.Generator, skill: float, kinds: Sequence[int | str] = SIZES) -> Evidence:
    sizes = np.repeat((3, 4, 5, 6), 64)  # how hard the kinds are
    valid = rng.random(256) < 1 / (1 + np.exp(-(skill - 0.9 * (sizes - 4.5))))
    checks = np.ones((256, 8), bool)
    first = rng.choice(8, 256, p=(0.02, 0.02, 0.05, 0.05, 0.4, 0.1, 0.26, 0.1))
    checks[~valid, first[~valid]] = False
    checks[~valid, 7] &= rng.random((~valid).sum()) < 0.5  # who falls or collides seldom arrives
    shares = rng.binomial(4, 1 / (1 + np.exp(-(skill - 0.7 - 0.9 * (sizes - 4.5))))) / 4
    return evidence_from_verdicts(
        kinds=np.array([Kind.of(kind) for kind in kinds for _ in range(64)], object),
        checks=checks,
        optimal=valid & (rng.random(256) < 0.9),
        tokens=rng.integers(10, 30, 256),
        truncated=rng.random(256) < 0.01,
        sampled_valid=shares,
        samples_per_prompt=4,
    )


def trained_on(
    rng: np.random.Generator, skill: float, kinds: Sequence[int | str], targets: Sequence[int | str]
) -> Evidence:
    """The validation after a round whose training answers it holds too."""
    after, within = fabricated_evidence(rng, skill, targets), fabricated_evidence(rng, skill - 0.3, kinds)
    return dataclasses.replace(after, training=TrainingEvidence(within.by_kind, ()))


def as_file(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def fabricated_step(rng: np.random.Generator, valid: float, kinds: Sequence[int | str]) -> dict[str, float | None]:
    """What a step logs beside reward and validity; now and then a size is not seen and no update is made."""
    shares = rng.dirichlet((0.2, 0.2, 0.5, 0.5, 6, 1, 3, 1)) * (1 - valid)
    updated = rng.random() > 0.1
    return {
        **{f"failure/{check}": share for check, share in zip(CHECKS, shares, strict=True)},
        **{
            f"valid/{'size' if isinstance(kind, int) else 'kind'}_{kind}": None
            if rng.random() < 0.05
            else valid * (1.6 - 0.2 * place)
            for place, kind in enumerate(kinds)
        },
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


def fabricate(
    directory: Path,
    full: bool = False,
    kinds: Sequence[int | str] = SIZES,
    targets: Sequence[int | str] = SIZES,
) -> Path:
    """A finished run of three rounds over four kinds; if not full, with the few metrics of earlier versions."""
    rng = np.random.default_rng(0)
    as_file(directory / "config.yaml", "seed: 7\nengineer:\n  kind: checkpoint\n  context: V6\nrounds: {count: 3}\n")
    as_file(directory / "provenance.json", {"seed": "ours", "engineer.kind": "paper", "rounds.count": "changed"})
    as_file(directory / "before" / "evidence.json", fabricated_evidence(rng, -9, targets).to_json())
    as_file(directory / "warm_start" / "evidence.json", fabricated_evidence(rng, -0.3, targets).to_json())
    for stage in ("before", "warm_start", "rounds/0", "rounds/1", "rounds/2"):
        as_file(directory / stage / "samples.json", SAMPLES)
        as_file(directory / stage / "samples.md", samples_markdown(SAMPLES))
    metrics = [{"phase": "warm_start", "step": s, "plan_loss": 3 * 0.99**s} for s in range(1, 400)]
    timings = [{"phase": "warm_start", "step": s, "host": 0.01, "update": 0.1} for s in range(1, 400)]
    for k in range(3):
        config = LakeConfig(
            kinds=kinds,
            data=((0.1, 0.2, 0.3, 0.4), (0.25, 0.25, 0.25, 0.25), (0.11, 0.3, 0.34, 0.25))[k],
            hole=((0.45, 0.02, 0.3, 0.2), (0.2, 0.3, 0.25, 0.15), (0.25, 0.3, 0.2, 0.1))[k],
            wait=((0.9, 0.1, 0.6, 0.3), (0.4, 0.45, 0.35, 0.3), (0.35, 0.4, 0.4, 0.2))[k],
        )
        proposal = Proposal(
            engineer="checkpoint" if k else "random",
            raw=RAW if k else "",
            thinking=THINKING if k else "",
            parsed={"3": {"data": 0.1}} if k else None,
            projected=config,
            repairs=("size 4 is missing: kept from the previous round",) if k else (),
            fallback=False,
            attempts=1,
            errors=(),
        )
        realised = config.to_dict()
        realised[str(kinds[0])] |= {"hole": 0.2, "wait": 0.125}
        folder = directory / "rounds" / str(k)
        as_file(folder / "config.json", config.to_dict())
        as_file(folder / "proposal.json", {**proposal.to_json(), "realised": realised, "parameters": f"sha256:{k}{k}"})
        as_file(folder / "evidence.json", trained_on(rng, 0.1 + 0.4 * k, kinds, targets).to_json())
        if k:
            as_file(folder / "context.md", f"Design round {k}.\n")
        for step in range(STEPS_PER_ROUND):
            valid = 0.35 + 0.003 * (k * STEPS_PER_ROUND + step) / 3 - 0.06 * k + rng.normal(0, 0.05)
            place = {"phase": "round", "round": k, "step": step + 1}
            metrics.append(
                place | {"reward": 0.45 * valid, "valid": valid} | (fabricated_step(rng, valid, kinds) if full else {})
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


def test_a_run_with_adapters_shows_how_far_they_move_its_answers_and_merging_would(run_dir, tmp_path):
    directory = shutil.copytree(run_dir, tmp_path / "run")
    assert adapter_table(read(directory)) is None
    for name, training, merging in (("before", 0.0, 0.0), ("rounds/1", 0.43448, 0.0066460)):
        (directory / name / "adapters.json").write_text(json.dumps({"training": training, "merging": merging}))
    table = adapter_table(read(directory))
    assert list(table.rows) == [("before", "0", "0"), ("round 1", "0.43", "0.0066")]


class Page(html.parser.HTMLParser):
    """What a browser would make of a page: its text, what it refers to, its ids; an element that stays open fails."""

    EMPTY = frozenset({"meta", "img", "br"})

    def __init__(self, path: Path):
        super().__init__()
        self.text, self.refers, self.ids, self.open = "", [], [], []
        self.feed(path.read_text())
        assert not self.open

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.refers += [found[key] for key in ("src", "href") if key in found]
        self.ids += [found["id"]] if "id" in found else []
        self.open += [tag] if tag not in self.EMPTY else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass  # of a drawing

    def handle_data(self, data):
        self.text += data


@pytest.mark.heavy
def test_report_and_its_pictures_are_written_and_nothing_else(run_dir, report):
    assert report == run_dir / "report" / "report.html"
    names = (
        "learning",
        "training",
        "allocation",
        "failures",
        "learnability",
        "forgetting",
        "boards",
        "samples",
        "time",
    )
    drawings = {f"{name}.png" for name in names}
    assert {path.name for path in report.parent.iterdir()} == {"report.html", *drawings}
    for name in drawings:
        drawn = matplotlib.image.imread(report.parent / name)
        assert min(drawn.shape[:2]) > 300
        assert drawn[..., :3].std() > 0.05


@pytest.mark.heavy
def test_the_page_stands_alone_and_is_small(report):
    page = Page(report)
    assert report.stat().st_size < 3e6
    assert len(page.ids) == len(set(page.ids))
    for place in page.refers:
        assert place.startswith("data:image/png;base64,") or place.removeprefix("#") in page.ids
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", report.read_text())


@pytest.mark.heavy
def test_writing_again_gives_the_same_files(run_dir, report):
    before = {path.name: path.read_bytes() for path in report.parent.iterdir()}
    write(run_dir)
    assert {path.name: path.read_bytes() for path in report.parent.iterdir()} == before


def test_summary_has_every_size_and_their_total_for_every_stage(run_dir):
    stages = read(run_dir).stages
    assert [stage.name for stage in stages] == ["before", "warm start", "round 0", "round 1", "round 2"]
    for stage in stages:
        found, counts = shares(stage), {row.kind: row.n for row in stage.evidence.by_kind}
        assert tuple(found) == (*map(Kind.of, SIZES), None) and stage.evidence.n == sum(counts.values()) == 256
        total = found[None]["valid"]
        assert total.value * 256 == pytest.approx(sum(found[kind]["valid"].value * n for kind, n in counts.items()))
        assert total.low < total.value or total.value == 0
        assert found[None]["optimal"].value <= total.value
        sampled = found[None]["sampled"]
        assert sampled.low is None or sampled.low < sampled.value < sampled.high


def test_terminal_tables_fit_and_hold_the_evidence(run_dir):
    printed = table_text(run_dir)
    assert max(map(len, printed.splitlines())) <= 80
    evidence = Evidence.from_json(json.loads((run_dir / "rounds" / "2" / "evidence.json").read_text()))
    row = next(line for line in printed.splitlines() if line.startswith("all"))
    assert f"{100 * evidence.valid / evidence.n:.0f} [" in row.split("]")[-2]
    configs = printed.split("Configurations as requested")[1].split("Configurations as realised")
    assert "0.340 / 0.200 / 0.400" in configs[0]
    assert "0.110 / 0.200 / 0.125" in configs[1]


@pytest.mark.heavy
def test_many_rounds_still_fit_the_terminal(run_dir, tmp_path):
    long = fabricate(tmp_path / "long")
    for k in range(3, 12):
        (long / "rounds" / str(k)).mkdir()
        for name in ("config.json", "proposal.json", "evidence.json"):
            (long / "rounds" / str(k) / name).write_text((run_dir / "rounds" / "2" / name).read_text())
    printed = table_text(long)
    assert max(map(len, printed.splitlines())) <= 80
    headers = [line for line in printed.split("\n\n")[0].splitlines() if line.startswith("size")]
    assert " ".join(headers).count("round") == 12
    names = ("allocation.png", "forgetting.png", "failures.png")
    assert set(pictures.draw_all(read(long), names)) == set(names)


def test_the_engineers_words_stand_verbatim_with_their_repairs(report):
    page = Page(report)
    assert RAW in page.text
    assert "<b>holes</b>" not in report.read_text()
    assert "size 4 is missing: kept from the previous round" in page.text
    assert "Design round 2." in page.text
    assert "sha256:11" in page.text
    assert "random draw" in page.text


def test_a_fallback_is_reported(tmp_path):
    directory = fabricate(tmp_path / "run")
    path = directory / "rounds" / "1" / "proposal.json"
    errors = ["it holds no object", "the context has 900 tokens: 640 fit"]
    told = {"raw": "", "fallback": True, "repairs": [], "attempts": 2, "errors": errors}
    as_file(path, {**json.loads(path.read_text()), **told})
    page = design(read(directory).rounds[1], 3)
    assert "the previous round&#x27;s stayed in force" in page
    assert "attempt 2: the context has 900 tokens: 640 fit" in page


def test_the_gate_and_the_choice_are_reported(tmp_path):
    directory = fabricate(tmp_path / "run")
    path = directory / "rounds" / "1" / "proposal.json"
    gate = {"verdict": "refused", "action": "mixed", "without_signal": 0.95, "bound": 0.9}
    as_file(path, {**json.loads(path.read_text()), "gate": gate, "candidates": [{}, {}, {}], "chosen": 1})
    page = design(read(directory).rounds[1], 3)
    assert "Gate: refused and mixed; 95 % of the piloted boards" in page
    assert "Chosen: answer 2 of 3." in page


def test_a_run_is_reported_with_what_it_has(tmp_path):
    directory = fabricate(tmp_path / "bare")
    for name in ("timings.jsonl", "config.yaml", "provenance.json"):
        (directory / name).unlink()
    for path in directory.rglob("evidence.json"):
        evidence = Evidence.from_json(json.loads(path.read_text()))
        unsampled = {"groups": 0, "learnable": 0, "all_valid": 0, "all_invalid": 0}
        unsampled |= {"sampled_valid": None, "sampled_se": None}
        rows = tuple(dataclasses.replace(row, **unsampled) for row in evidence.by_kind)
        bare = dataclasses.replace(evidence, by_kind=rows, sampled_valid=None, sampled_se=None, samples_per_prompt=0)
        as_file(path, dataclasses.replace(bare, training=None).to_json())
    for path in (directory / "rounds").glob("*/proposal.json"):
        proposal = json.loads(path.read_text())
        kept = ("engineer", "raw", "thinking", "parsed", "projected", "repairs", "fallback")
        as_file(path, {key: proposal[key] for key in kept})
    page = write(directory)
    assert "Valid % of greedy answers" in Page(page).text
    assert "Time and memory" not in Page(page).text
    drawn = {path.stem for path in page.parent.glob("*.png")}
    assert drawn == {"learning", "allocation", "failures", "forgetting", "boards", "samples"}


def keep_rows_of(directory: Path, phase: str) -> None:
    """Drops the metrics of all other phases."""
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    kept = (json.dumps(row) + "\n" for row in rows if row["phase"] == phase)
    as_file(directory / "metrics.jsonl", "".join(kept))


def test_a_warm_start_alone_is_reported_with_its_curve(tmp_path):
    directory = fabricate(tmp_path / "taught")
    shutil.rmtree(directory / "rounds")
    keep_rows_of(directory, "warm_start")
    page = write(directory)
    assert "From before to warm start, valid plans on validation went from 0 % to " in page.read_text()
    assert (page.parent / "learning.png").exists() and not (page.parent / "allocation.png").exists()


@pytest.mark.heavy
def test_rounds_without_a_warm_start_are_reported_from_before_them(tmp_path):
    directory = fabricate(tmp_path / "straight")
    shutil.rmtree(directory / "warm_start")
    keep_rows_of(directory, "round")
    page = write(directory)
    assert "From before to round 2, valid plans on validation went from 0 % to " in page.read_text()
    assert (page.parent / "learning.png").exists()


@pytest.mark.heavy
def test_a_run_that_logged_nulls_alone_is_reported(tmp_path):
    directory = fabricate(tmp_path / "run", full=True)
    for name in ("metrics.jsonl", "timings.jsonl"):
        rows = [json.loads(line) for line in (directory / name).read_text().splitlines()]
        kept = ("phase", "round", "step")
        nulls = [{key: value if key in kept else None for key, value in row.items()} for row in rows]
        as_file(directory / name, "".join(json.dumps(row) + "\n" for row in nulls))
    page = write(directory)
    assert {"learning.png", "training.png", "time.png"} & {path.name for path in page.parent.iterdir()} == {
        "learning.png"
    }
    assert "Time and memory" not in page.read_text()


def test_time_is_summed_by_part_with_its_share(run_dir, report):
    rows = [json.loads(line) for line in (run_dir / "timings.jsonl").read_text().splitlines()]
    seconds = {
        part: sum(row[part] for row in rows if row["phase"] == "round")
        for part in ("rollout", "logprob", "update", "host")
    }
    share = 100 * seconds["host"] / sum(seconds.values())
    assert f"<tr><td>host</td><td>{seconds['host']:.1f}</td><td>{share:.1f}</td>" in report.read_text()


def test_every_setting_stands_with_its_origin(report):
    page = report.read_text()
    assert "<tr><td>seed</td><td>7</td><td>ours</td></tr>" in page
    assert "<tr><td>rounds.count</td><td>3</td><td>changed</td></tr>" in page
    assert "<tr><td>engineer.context</td><td>V6</td><td>unknown</td></tr>" in page


def evidence_of(valid: dict[int, int], holes: dict[int, int], conflicts: dict[int, int], n: int = 100) -> Evidence:
    rows = []
    for size in valid:
        failures = dict.fromkeys(CHECKS, 0) | {"hole_free": holes[size], "conflict_free": conflicts[size]}
        failures["goal_reached"] = n - valid[size] - holes[size] - conflicts[size]
        rows.append(KindEvidence(Kind.of(size), n, valid[size], 0, failures, failures))
    return Evidence(tuple(rows), None, None, 0, 20.0, 0.0)


def two_rounds(directory: Path, evidence: Evidence, before: LakeConfig, after: LakeConfig) -> Path:
    """A run whose second round was designed from that evidence."""
    for k, config in enumerate((before, after)):
        as_file(directory / "rounds" / str(k) / "config.json", config.to_dict())
        as_file(directory / "rounds" / str(k) / "evidence.json", evidence.to_json())
    return directory


def test_a_change_without_evidence_is_marked(tmp_path):
    # Sizes 3 and 4 are as valid as all are, 5 is better, 6 worse. Holes are what 3 and 6 fail at, conflicts 4.
    evidence = evidence_of(
        valid={3: 50, 4: 50, 5: 80, 6: 20},
        holes={3: 40, 4: 0, 5: 10, 6: 70},
        conflicts={3: 0, 4: 40, 5: 10, 6: 0},
    )
    before = LakeConfig((3, 4, 5, 6), data=(0.25,) * 4, hole=(0.3,) * 4, wait=(0.3,) * 4)
    after = LakeConfig((3, 4, 5, 6), data=(0.3, 0.26, 0.15, 0.29), hole=(0.2, 0.2, 0.2, 0.4), wait=(0.2, 0.5, 0.5, 0.5))
    run = read(two_rounds(tmp_path, evidence, before, after))
    assert changes(run, run.rounds[0]) == {}
    assert {(kind.label, ratio): backed for (kind, ratio), backed in changes(run, run.rounds[1]).items()} == {
        (3, "data"): False,  # no different from all
        (5, "data"): True,
        (6, "data"): True,
        (3, "hole"): True,
        (4, "hole"): False,  # nobody falls
        (5, "hole"): False,  # perhaps 10 % fall, perhaps fewer
        (6, "hole"): False,  # more holes where most fall
        (3, "wait"): True,  # nobody collides
        (4, "wait"): True,
        (5, "wait"): False,
        (6, "wait"): False,
    }


def test_what_the_generator_already_realised_is_no_change(tmp_path):
    same = dict.fromkeys((3, 4), 50)
    evidence = evidence_of(same, dict.fromkeys((3, 4), 20), dict.fromkeys((3, 4), 20))
    before = LakeConfig((3, 4), (0.5, 0.5), hole=(0.3, 0.3), wait=(0.9, 0.9))
    after = LakeConfig((3, 4), (0.5, 0.5), hole=(0.3, 0.315), wait=(0.4, 0.6))
    directory = two_rounds(tmp_path, evidence, before, after)
    realised = {size: {"data": 0.5, "hole": 0.3, "wait": 0.4} for size in ("3", "4")}
    as_file(directory / "rounds" / "0" / "proposal.json", {"realised": realised})
    run = read(directory)
    assert list(changes(run, run.rounds[1])) == [(Kind.of(4), "wait")]


def test_the_sentence_that_names_the_size_stands_beside_it():
    thinking = "Hard so far. Weakest size 6 (19% valid), most learnable size 5. Sizes 3 and 4 are solved; fewer 10x10."
    four, five, six, seven, ten = map(Kind.of, (4, 5, 6, 7, 10))
    assert excerpt(thinking, five) == excerpt(thinking, six) == "Weakest size 6 (19% valid), most learnable size 5."
    assert excerpt(thinking, four).startswith("Sizes 3 and 4")
    assert excerpt(thinking, ten).startswith("Sizes 3 and 4")
    assert excerpt(thinking, seven) == "(size not named) Hard so far."
    assert excerpt("", seven) == "-"
    assert len(excerpt("size 7 " * 100, seven)) == 160


def test_the_sentence_that_names_the_kind_stands_beside_it():
    thinking = "Hard so far. Fewer 6x3. Weakest kind rooms6 (19% valid). Rooms5x3 is solved, corridor8x3 not."
    assert excerpt(thinking, Kind.of("6x3")) == "Fewer 6x3."
    assert excerpt(thinking, Kind.of("rooms6")) == "Weakest kind rooms6 (19% valid)."
    assert excerpt(thinking, Kind.of("rooms5x3")) == "Rooms5x3 is solved, corridor8x3 not."
    for name in ("rooms5", "corridor8", "maze6"):
        assert excerpt(thinking, Kind.of(name)) == "(kind not named) Hard so far."


DESIGNED, TARGETS = (3, "4x3", "rooms5", "corridor5x3"), ("rooms5", "maze6", "corridor5x3", "corridor8")


@pytest.fixture(scope="module")
def kinds_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that designs some kinds of boards and is validated on others."""
    return fabricate(tmp_path_factory.mktemp("kinds") / "run", True, DESIGNED, TARGETS)


def test_tables_have_a_row_for_each_kind_and_none_of_them_for_what_was_not_asked(kinds_dir):
    validation, *_, requested, realised = table_text(kinds_dir).split("\n\n")
    assert max(len(line) for line in table_text(kinds_dir).splitlines()) <= 80
    for table, kinds in ((validation, (*TARGETS, "all")), (requested, DESIGNED), (realised, DESIGNED)):
        block = table.splitlines()[1:]  # without the title
        assert {line.split()[0] for line in block} == {"kind", *map(str, kinds)}
    assert "0.110 / 0.200 / 0.125" in realised


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("allocation.png", DESIGNED),
        ("forgetting.png", TARGETS),
        ("failures.png", TARGETS),
        ("learnability.png", {*DESIGNED, *TARGETS}),
    ],
)
def test_kinds_stand_on_the_axes_of_pictures(kinds_dir, name, kinds):
    figure = pictures.PICTURES[name][0](read(kinds_dir))
    figure.draw_without_rendering()
    axes = figure.axes
    ticks = {label.get_text() for one in axes for label in (*one.get_xticklabels(), *one.get_yticklabels())}
    assert ticks & {*map(str, (*DESIGNED, *TARGETS))} - {"3"} == {*map(str, kinds)} - {"3"}  # 3 may be a number
    labels = {label for one in axes for label in (one.get_xlabel(), one.get_ylabel())}
    assert "kind of boards" in labels and "board size" not in labels


def test_what_was_trained_on_has_a_curve_for_each_kind(kinds_dir):
    figure = curves.training(read(kinds_dir))
    (axes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "valid answers by kind of boards, %"]
    assert [line.get_label() for line in axes.get_lines() if not line.get_label().startswith("_")] == [
        *("size 3", "kind 4x3", "kind rooms5", "kind corridor5x3")
    ]


@pytest.mark.heavy
def test_a_page_of_kinds_is_written(kinds_dir):
    page = write(kinds_dir)
    assert {path.stem for path in page.parent.glob("*.png")} >= {"training", "allocation", "forgetting", "learnability"}
    text = Page(page).text
    assert "By kind of boards" in text and "corridor5x3" in text and "board size" not in text


def test_entropy_is_largest_for_equal_shares():
    assert entropy((1.0, 0.0)) == 0
    assert entropy((0.25,) * 4) == pytest.approx(np.log(4))
    assert entropy((0.5, 0.25, 0.25)) == pytest.approx(1.5 * np.log(2))


def test_the_papers_rows_stand_beside_those_boards_alone_that_it_has_too(run_dir, tmp_path):
    assert comparable(read(run_dir)) == {}
    directory = shutil.copytree(run_dir, tmp_path / "run")
    agents, size = [2, 3, 3, 3, 4], [5, 3, 3, 6, 3]  # the paper has no 2 agents, and 4 of them on 4x4 at least
    answers = {"valid": [1, 1, 0, 1, 1]}
    as_file(directory / "evaluation.json", {"boards": {"agents": agents, "size": size}, "answers": answers})
    found = comparable(read(directory))
    assert {agents: {size: share.value for size, share in by_size.items()} for agents, by_size in found.items()} == {
        3: {3: 0.5, 6: 1}
    }
    assert "published.png" in pictures.draw_all(read(directory), ["published.png"])


def test_several_runs_stand_side_by_side(run_dir, tmp_path, capsys):
    other = fabricate(tmp_path / "other")
    assert main([str(run_dir), str(other), "-o", str(tmp_path / "both" / "page.html")]) == 0
    page = Page(tmp_path / "both" / "page.html")
    assert capsys.readouterr().out.strip() == str(tmp_path / "both" / "page.html")
    assert {str(path.relative_to(tmp_path / "both")) for path in (tmp_path / "both").rglob("*.*")} == {
        "page.html",
        "tiny/allocation.png",
        "other/allocation.png",
    }
    assert "Last validation of each run" in page.text
    with pytest.raises(SystemExit):
        main([str(run_dir), str(run_dir), "-o", str(tmp_path / "twice.html")])
    assert "two of the runs are called tiny: give each a page of its own" in capsys.readouterr().err


def test_a_comparison_stands_with_its_statistics_before_its_runs(tmp_path, capsys):
    out, rng = tmp_path / "out", np.random.default_rng(0)
    engineers = {"fixed_random": {"kind": "fixed_random"}, "rule": {"kind": "learnability"}}
    run = {"engineer": {"kind": "checkpoint", "context": "V6"}}
    asked = {"baseline": "fixed_random", "seeds": [0, 1], "engineers": engineers, "run": run}
    as_file(out / "compare.yaml", asked)
    boards = {"id": [f"{i}" for i in range(40)], "agents": [2] * 20 + [3] * 20, "size": [3, 4] * 20}
    boards |= {"wait_subset": [0.25] * 40, "needs_wait": [0] * 40, "hole_ratio": [0.3] * 40}
    for place in ("start", "arms/fixed_random", "arms/rule"):
        for seed in (0, 1):
            valid = rng.integers(0, 2, 40).tolist()
            answers = {"valid": valid, "optimal": valid, "tokens": [20] * 40, "truncated": [0] * 40}
            answers |= {"first_failure": [None if passed else "hole_free" for passed in valid], "sampled_valid": None}
            directory = out / place / f"seed{seed}"
            fabricate(directory)
            as_file(directory / "evaluation.json", {"boards": boards, "answers": answers})
    assert main([str(out)]) == 0
    page = Page(out / "report" / "report.html")
    assert page.text.index("40 held-out boards") < page.text.index("out/fixed_random/seed0")
    assert "out/rule/seed1" in page.text
    written = {str(path.relative_to(out / "report")) for path in (out / "report").rglob("*.png")}
    assert {"out/differences.png", "out/rule/seed1/allocation.png"} <= written
    namesake = shutil.copytree(out / "arms" / "rule" / "seed1", tmp_path / "other" / "out")
    with pytest.raises(SystemExit):
        main([str(out), str(namesake), "-o", str(tmp_path / "page.html")])
    assert "two of the runs are called out" in capsys.readouterr().err


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "rounds/1/evidence.json",
            '{"version": 1}',
            "evidence.json: evidence has version 1; it must be 2, which this program reads",
        ),
        ("rounds/1/evidence.json", "{", "evidence.json: Expecting"),
        ("rounds/1/config.json", '{"3": {}}', "config.json: entry of size 3"),
        ("rounds/1/proposal.json", "", "proposal.json: Expecting value"),
        ("rounds/1/proposal.json", "[]", "proposal.json: holds []: it must be an object"),
        ("metrics.jsonl", "{}\nnot json\n", "metrics.jsonl: Expecting value"),
        ("metrics.jsonl", "3\n", "metrics.jsonl: holds 3: it must be an object"),
        ("evaluation.json", "{}", "evaluation.json: no scores of a benchmark: 'boards'"),
        ("evaluations/a/scores.json", "[", "scores.json: no scores of a benchmark: Expecting value"),
        ("config.yaml", "a: [", "config.yaml: while parsing"),
        ("config.yaml", "- a", "config.yaml: holds ['a']: it must be an object"),
    ],
)
def test_a_broken_file_is_named_in_one_line(run_dir, tmp_path, capsys, name, content, words):
    directory = shutil.copytree(run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("report"))
    as_file(directory / name, content)
    with pytest.raises(SystemExit) as stop:
        main([str(directory)])
    [line] = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert words in line
    assert not (directory / "report").exists()


def test_a_folder_without_a_run_is_named_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert (
        capsys.readouterr().err == f"python -m rl.report: error: {tmp_path}: holds no validation to report on; "
        "a run has one from its first minute on\n"
    )
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])
    assert "none: there is no such directory" in capsys.readouterr().err


def test_a_row_that_is_still_being_written_is_left_out(run_dir, tmp_path):
    directory = shutil.copytree(run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("report"))
    whole = (directory / "metrics.jsonl").read_text()
    as_file(directory / "metrics.jsonl", f'{whole}{{"phase": "round", "ro')
    assert read(directory).steps == read(run_dir).steps


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


@pytest.mark.parametrize(
    ("lost_at", "shown"),
    [
        (11, "0:(0,0)»(1,0)«\n1:(2,2)"),
        (12, "0:(0,0)(1,0)»↵«\n1:(2,2)"),  # the path ends too early
        (20, "0:(0,0)(1,0)\n1:(2,2)»«"),  # the answer does
        (None, "0:(0,0)(1,0)\n1:(2,2)"),
    ],
)
def test_a_failed_answer_shows_what_loses_the_last_valid_plan(lost_at, shown):
    failed = {**dict.fromkeys(CHECKS, True), "hole_free": False}
    sample = SAMPLES[0] | {"answer": "0:(0,0)(1,0)\n1:(2,2)", "lost_at": lost_at, "optimal": False}
    assert marked(sample | {"checks": failed}) == shown
    assert shown in samples_markdown([sample | {"checks": failed}])
    assert marked(sample) == sample["answer"]  # a valid one has lost nothing


def test_samples_page_shows_begin_and_end_of_a_long_thought():
    thought = "".join(f"<{i}>" for i in range(5000))
    page = samples_markdown([SAMPLES[0] | {"answer": f"{thought}\n{SAMPLES[0]['answer']}"}])
    assert len(page) < 6000
    assert "<0><1>" in page
    assert SAMPLES[0]["answer"] in page
    assert " characters ...]" in page
