"""Files of branches that nobody trained."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.config import LakeConfig

KINDS = ("3", "5x3", "5x4", "7")


def alone(kind: str) -> LakeConfig:
    """Return a design with all data on one kind."""
    return LakeConfig(KINDS, [float(one == kind) for one in KINDS], [0.1] * 4, [0.0] * 4)


def branch(design: int = 0, repeat: int = 0, gain: float = 0.1, **changes: Any) -> dict[str, Any]:
    """Return a line of a random design."""
    line = {
        "state": "runs/lab round 2",
        "round": 3,
        "updates": 10,
        "design": design,
        "repeat": repeat,
        "config": LakeConfig.uniform(KINDS, 0.2, 0.1).to_dict(),
        "origin": "random",
        "before": 0.3,
        "after": 0.3 + gain,
        "gain": gain,
        "gain_se": 0.01,
        "by_kind": {kind: {"before": 0.3, "after": 0.3 + gain} for kind in KINDS},
    }
    return line | changes


def save(folder: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """Write ``gains.jsonl``."""
    folder.mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "gains.jsonl").write_text("".join(f"{text}\n" for text in texts))
    return folder


def mixed(repeats: int = 2, states: int = 2, noise: float = 0.02) -> list[dict[str, Any]]:
    """Lines of 20 random designs, one on each of two kinds, and two engineers', from some states, in the file's order.

    A kind is learned by training on it or, a quarter as well, on its neighbour.
    """
    rng = np.random.default_rng(0)
    lines = []
    for state, repeat in itertools.product(range(states), range(repeats)):
        levels = np.random.default_rng(100 + state).uniform(-0.1, 0.2, 24)
        for design, level in enumerate(levels):
            kind = {20: "3", 21: "7"}.get(design)
            changes: dict[str, Any] = {"state": f"runs/lab round {state}", "round": state + 1}
            if kind is not None:
                changes |= {"origin": f"kind:{kind}", "config": alone(kind).to_dict()}
                after = {one: 0.5 if one == kind else 0.3 + (0.05 if one in ("5x3", "5x4") else 0.0) for one in KINDS}
                jitter = dict(zip(KINDS, rng.normal(0, 0.01, 4), strict=True))
                changes["by_kind"] = {one: {"before": 0.3, "after": after[one] + jitter[one]} for one in KINDS}
            elif design >= 22:
                changes["origin"] = ("hindsight, ladder", "fixed_random")[design - 22]
            gain = float(np.clip(level + rng.normal(0, noise), -0.3, 0.7))
            lines.append(branch(design, repeat, gain, **changes))
    return lines
