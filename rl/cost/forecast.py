"""The hours of other configurations at the rates of a finished run, from its own logs."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl.config import SHIPPED, Config, ConfigError, load
from rl.cost.work import work_of
from rl.table import Table

WRITING = "rollout"
"""The part of a step that generates answers; all others but the rehearsal are for training on them."""
TRAINING = ("host", "credit", "logprob", "update")


@dataclasses.dataclass(frozen=True)
class Target:
    """A configuration whose hours are forecast."""

    name: str
    config: Config


@dataclasses.dataclass(frozen=True)
class Measured:
    """Rates of a run.

    Attributes:
      generated, trained: seconds per token of an answer, to write it and to train on it; the latter is None where no
        answer had a gradient.
      tokens: mean length of its answers.
      steps, of: how many steps this is the mean of, and how many there were.
      compiled: whether these waited for the compiler.
    """

    generated: float
    trained: float | None
    tokens: float
    steps: int
    of: int
    compiled: bool


def targets(config: Config) -> list[Target]:
    """Return the configurations that `tracking.forecast` names, those beside the others that come with the package.

    Raises:
      ConfigError: if one cannot be read, or its student is a network.
    """
    found = []
    for name in config.tracking.forecast or ():
        path = SHIPPED / name if (SHIPPED / name).exists() else Path(name)
        target = load(path)
        if target.plays:
            raise ConfigError(f"tracking.forecast = {name}: its student must write answers, and is a network")
        found.append(Target(name, target))
    return found


def measure(run: Path) -> Measured | None:
    """Read the rates of a run; None if it has no step of GRPO.

    Steps that waited for the compiler are left out, unless all of them did.
    """
    metrics, timings = (
        [
            row
            for row in map(json.loads, (run / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
            if row["phase"] == "round"
        ]
        for name in ("metrics", "timings")
    )
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = list(zip(metrics, timings, strict=True))
    if not pairs:
        return None
    samples = load(run / "config.yaml").grpo.samples
    steady = [pair for pair in pairs if not pair[1]["compilations"]]
    compiled, steady = not steady, steady or pairs
    answers = [row["groups_sampled"] * samples for row, _ in steady]
    tokens = [count * row["answer_tokens"] for count, (row, _) in zip(answers, steady, strict=True)]
    computed = sum(count * row["rows_computed"] for count, (row, _) in zip(tokens, steady, strict=True))
    writing = sum(seconds[WRITING] for _, seconds in steady)
    training = sum(seconds.get(part, 0.0) for _, seconds in steady for part in TRAINING)
    return Measured(
        generated=writing / sum(tokens),
        trained=training / computed if computed else None,
        tokens=sum(tokens) / sum(answers),
        steps=len(steady),
        of=len(pairs),
        compiled=compiled,
    )


def forecast(run: Path, wanted: Sequence[Target]) -> Table | None:
    """Tabulate the hours of configurations at a run's rates, for answers as long as its own and as long as may be.

    Returns:
      None if the run has no rates.
    """
    rates = measure(run)
    if rates is None:
        return None
    rows = []
    for target in wanted:
        work, most = work_of(target.config), target.config.text.max_new_tokens
        for tokens in sorted({min(round(rates.tokens), most), most}):
            train = work.trained_answers * tokens * (rates.trained or 0.0) / 3600
            write = work.trained_answers * tokens * rates.generated / 3600
            validate = work.validations * work.validation_answers * tokens * rates.generated / 3600
            rows.append(
                (
                    target.name,
                    f"{work.steps:,}",
                    f"{tokens:,}",
                    f"{work.generated_answers * tokens / 1e9:.2f}",
                    f"{write:,.1f}",
                    "-" if rates.trained is None else f"{train:,.1f}",
                    f"{validate:,.1f}",
                    f"{write + train + validate:,.1f}",
                )
            )
    trained = "no answer had a gradient" if rates.trained is None else f"{1e3 * rates.trained:.3g} ms to train on it"
    compiled = "all of which waited for the compiler, too" if rates.compiled else "those that compiled nothing"
    note = (
        f"From {rates.steps} of {rates.of} steps, {compiled}: {1e3 * rates.generated:.3g} ms to write a token, "
        f"{trained}; answers of {rates.tokens:,.0f} tokens on average. Model and devices are this run's, and every "
        "answer counts as trained on. Of longer answers each token costs more, with more rows at a time less: "
        "python -m rl.plan has both."
    )
    header = ("hours of", "steps", "tokens", "G tokens", "write", "train", "validate", "all")
    return Table("Hours of larger runs at the rates of this one", header, rows, note)
