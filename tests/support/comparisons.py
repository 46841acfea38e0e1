"""Directories of comparisons that nobody ran: their files hold drawn numbers in the forms that a comparison writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from lab import LAB
from runs import SIZES, as_file, draw_evidence

from engineer.evidence import CHECKS
from jaxlake.config import LakeConfig
from rl.config import Config
from rl.lab.comparison import EvaluationSection, Resolved

ENGINEERS = {
    "uniform": {"kind": "uniform"},
    "fixed_random": {"kind": "fixed_random"},
    "V6": {"kind": "checkpoint"},
    "V1": {"kind": "checkpoint", "context": "V1"},
}
TWO = {name: ENGINEERS[name] for name in ("fixed_random", "V6")}
SKILL = {"uniform": 0.5, "fixed_random": 0.0, "V6": 0.4, "V1": -0.1}
CONFIG = Config()
WAITS = {2: (0.5,), 3: (0.25, 0.5, 0.75), 4: (0.25, 0.5, 0.75), 5: (0.25, 0.5, 0.75)}


def fabricate(
    out: Path,
    engineers: dict = ENGINEERS,
    seeds: int = 3,
    boards: int = 4,
    samples: bool = False,
    kinds: Sequence[int | str] = SIZES,
    rounds: int = 2,
    run: Config = CONFIG,
    **changes: Any,
) -> Path:
    """Write a finished comparison of so many rounds after 0; ``boards`` in each slice of agents, size and wait.

    Further arguments are of `Resolved`.
    """
    values = {"seeds": tuple(range(seeds)), "baseline": "fixed_random", "engineers": engineers} | changes
    resolved = Resolved(evaluation=EvaluationSection(), run=run, **values)
    out.mkdir()
    (out / "compare.yaml").write_text(yaml.safe_dump(resolved.model_dump(mode="json"), sort_keys=False))
    cells = [(a, n, w) for a in WAITS for n in SIZES if n >= a for w in WAITS[a] for _ in range(boards)]
    agents, size, wait = np.array(cells).T
    named = dict(zip(SIZES, kinds, strict=True))
    columns = {
        "id": [f"{a}ag_{n}_{w}_{i}" for i, (a, n, w) in enumerate(cells)],
        "agents": agents.astype(int).tolist(),
        "size": [named[int(n)] for n in size],
        "wait_subset": wait.tolist(),
        "needs_wait": [False] * len(cells),
        "hole_ratio": [0.1] * len(cells),
    }
    rng = np.random.default_rng(0)
    difficulty = 0.5 * (size - 4) + 0.9 * (agents - 3) + wait + rng.normal(0, 1.2, len(cells))

    def evaluation(skill: float) -> dict:
        chance = 1 / (1 + np.exp(difficulty - skill))
        valid = rng.random(len(cells)) < chance
        answers = {
            "valid": valid.astype(int).tolist(),
            "optimal": (valid & (rng.random(len(cells)) < 0.8)).astype(int).tolist(),
            "first_failure": [None if ok else CHECKS[4] for ok in valid],
            "tokens": rng.integers(10, 60, len(cells)).tolist(),
            "truncated": [False] * len(cells),
            "sampled_valid": (rng.binomial(8, chance) / 8).tolist() if samples else None,
        }
        return {"boards": columns, "answers": answers}

    for seed in range(seeds):
        level, first = rng.normal(0.3, 0.15), _config(rng, kinds)
        as_file(out / "start" / f"seed{seed}" / "evaluation.json", evaluation(level))
        start = draw_evidence(rng, level, kinds).to_json()
        for name in engineers:
            arm = out / "arms" / name / f"seed{seed}"
            gain = SKILL.get(name, 0.2) + rng.normal(0, 0.15)
            as_file(arm / "evaluation.json", evaluation(level + 0.5 + gain))
            for k in range(rounds + 1):
                reached = level + (0.5 + gain) * k / rounds
                config, evidence = (
                    (_config(rng, kinds), draw_evidence(rng, reached, kinds).to_json()) if k else (first, start)
                )
                as_file(arm / "rounds" / str(k) / "config.json", config.to_dict())
                as_file(arm / "rounds" / str(k) / "evidence.json", evidence)
    return out


def fabricate_lab(out: Path, curves: dict[str, list[list[float | None]]], **changes: Any) -> Path:
    """Write a comparison of networks that play: by engineer and seed the sampled valid share after each round.

    An engineer's kind is its name. Further arguments are of `Resolved`.
    """
    by_seed = curves["fixed_random"]
    engineers = {name: {"kind": name} for name in curves}
    fabricate(out, engineers, len(by_seed), boards=1, rounds=len(by_seed[0]) - 1, run=Config(**LAB), **changes)
    for name, own in curves.items():
        for seed, curve in enumerate(own):
            for k, share in enumerate(curve):
                path = out / "arms" / name / f"seed{seed}" / "rounds" / str(k) / "evidence.json"
                sampled = {"sampled_valid": share, "sampled_se": None if share is None else 0.01}
                as_file(path, json.loads(path.read_text()) | sampled)
    return out


def _config(rng: np.random.Generator, kinds: Sequence[int | str]) -> LakeConfig:
    data = rng.dirichlet(3 * np.ones(len(SIZES)))
    hole, wait = rng.uniform(0, 0.5, len(SIZES)), rng.uniform(0, 1, len(SIZES))
    return LakeConfig(kinds, *(tuple(ratios.tolist()) for ratios in (data, hole, wait)))
