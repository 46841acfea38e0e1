"""Directories of runs that nobody made: their files hold drawn numbers in the forms that a run writes."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engineer.evidence import CHECKS, Evidence, TrainingEvidence, evidence_from_verdicts
from engineer.proposal import Proposal
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind

SIZES = (3, 4, 5, 6)
STEPS_PER_ROUND = 60
THINKING = "Weakest size 6; <b>holes</b> first."
RAW = f'<think>\n{THINKING}\n</think>\n\n{{"3":{{"data":0.1}}}}'
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


def as_file(path: Path, data: object) -> None:
    """Writes text as it is, everything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def fabricate_run(
    directory: Path, full: bool = False, kinds: Sequence[int | str] = SIZES, targets: Sequence[int | str] = SIZES
) -> Path:
    """Writes a finished run of three rounds over four kinds; if not full, with reward and validity as only metrics."""
    rng = np.random.default_rng(0)
    as_file(directory / "config.yaml", "seed: 7\nengineer:\n  kind: checkpoint\n  context: V6\nrounds: {count: 3}\n")
    as_file(directory / "before" / "evidence.json", draw_evidence(rng, -9, targets).to_json())
    as_file(directory / "warm_start" / "evidence.json", draw_evidence(rng, -0.3, targets).to_json())
    for stage in ("before", "warm_start", "rounds/0", "rounds/1", "rounds/2"):
        as_file(directory / stage / "samples.json", SAMPLES)
    metrics = [{"phase": "warm_start", "step": s, "plan_loss": 3 * 0.99**s} for s in range(1, 400)]
    for k in range(3):
        _fabricate_round(directory / "rounds" / str(k), k, kinds)
        after, within = draw_evidence(rng, 0.1 + 0.4 * k, targets), draw_evidence(rng, 0.4 * k - 0.2, kinds)
        after = dataclasses.replace(after, training=TrainingEvidence(within.by_kind, ()))
        as_file(directory / "rounds" / str(k) / "evidence.json", after.to_json())
        for step in range(STEPS_PER_ROUND):
            valid = 0.35 + 0.003 * (k * STEPS_PER_ROUND + step) / 3 - 0.06 * k + rng.normal(0, 0.05)
            place = {"phase": "round", "round": k, "step": step + 1}
            metrics.append(
                place | {"reward": 0.45 * valid, "valid": valid} | (_draw_metrics(rng, valid, kinds) if full else {})
            )
    as_file(directory / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in metrics))
    return directory


def draw_evidence(rng: np.random.Generator, skill: float, kinds: Sequence[int | str] = SIZES) -> Evidence:
    """Draws a validation of 64 boards of each of four kinds, the later the harder."""
    hard = 0.9 * (np.repeat(np.arange(4), 64) - 1.5)
    valid = rng.random(256) < 1 / (1 + np.exp(hard - skill))
    checks = np.ones((256, 8), bool)
    first = rng.choice(8, 256, p=(0.02, 0.02, 0.05, 0.05, 0.4, 0.1, 0.26, 0.1))
    checks[~valid, first[~valid]] = False
    checks[~valid, 7] &= rng.random((~valid).sum()) < 0.5  # who falls or collides seldom arrives
    return evidence_from_verdicts(
        kinds=np.array([Kind.of(kind) for kind in kinds for _ in range(64)], object),
        checks=checks,
        optimal=valid & (rng.random(256) < 0.9),
        tokens=rng.integers(10, 30, 256),
        truncated=rng.random(256) < 0.01,
        sampled_valid=rng.binomial(4, 1 / (1 + np.exp(hard - skill + 0.7))) / 4,
        samples_per_prompt=4,
    )


def _fabricate_round(folder: Path, k: int, kinds: Sequence[int | str]) -> None:
    config = LakeConfig(
        kinds=kinds,
        data=((0.1, 0.2, 0.3, 0.4), (0.25, 0.25, 0.25, 0.25), (0.11, 0.3, 0.34, 0.25))[k],
        hole=((0.45, 0.02, 0.3, 0.2), (0.2, 0.3, 0.25, 0.15), (0.25, 0.3, 0.2, 0.1))[k],
        wait=((0.9, 0.1, 0.6, 0.3), (0.4, 0.45, 0.35, 0.3), (0.35, 0.4, 0.4, 0.2))[k],
    )
    proposal = Proposal(engineer="random", projected=config)
    if k:
        repairs = ("size 4 is missing: kept from the previous round",)
        words = {"raw": RAW, "thinking": THINKING, "parsed": {"3": {"data": 0.1}}, "repairs": repairs}
        proposal = dataclasses.replace(proposal, engineer="checkpoint", **words)
        as_file(folder / "context.md", f"Design round {k}.\n")
    realised = config.to_dict()
    realised[str(kinds[0])] |= {"hole": 0.2, "wait": 0.125}
    as_file(folder / "config.json", config.to_dict())
    as_file(folder / "proposal.json", {**proposal.to_json(), "realised": realised})


def _draw_metrics(rng: np.random.Generator, valid: float, kinds: Sequence[int | str]) -> dict[str, float | None]:
    """Draws what a step logs beside reward and validity; now and then a kind is not seen and no update is made."""
    shares = rng.dirichlet((0.2, 0.2, 0.5, 0.5, 6, 1, 3, 1)) * (1 - valid)
    updated = rng.random() > 0.1
    names = [f"valid/{'size' if isinstance(kind, int) else 'kind'}_{kind}" for kind in kinds]
    return {
        **{f"failure/{check}": share for check, share in zip(CHECKS, shares, strict=True)},
        **{name: None if rng.random() < 0.05 else valid * (1.6 - 0.2 * i) for i, name in enumerate(names)},
        "learnable": rng.beta(30, 50),
        "answer_tokens": rng.normal(18, 1),
        "truncated": abs(rng.normal(0.02, 0.01)),
        "entropy": rng.normal(0.5, 0.05) if updated else None,
        "gradient_norm": rng.lognormal(-1, 0.4) if updated else None,
        "mismatch_max": rng.lognormal(-9, 0.3),
    }
