"""The hours of other configurations at the rates of a finished run, from its own logs."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlake.table import Table
from rl.config import SHIPPED, Config, ConfigError, load

WRITING = "rollout"
"""The part of a step that generates answers; all others but the rehearsal are for training on them."""
TRAINING = ("host", "credit", "logprob", "update")


@dataclasses.dataclass(frozen=True)
class Rates:
    """Rates of a run.

    Attributes:
      generated, trained: seconds per token of an answer, to write it and to train on it; the latter is None where no
        answer had a gradient.
      tokens: mean length of the run's answers.
      steps, of: number of steps that were measured, and of all steps.
      compiled: True if the measured steps waited for the compiler.
    """

    generated: float
    trained: float | None
    tokens: float
    steps: int
    of: int
    compiled: bool


def configurations(config: Config) -> dict[str, Config]:
    """Return the configurations that `tracking.forecast` names; names of shipped files need no folder.

    Raises:
      ConfigError: if one cannot be read, or its student is a network.
    """
    others = {}
    for name in config.tracking.forecast or ():
        path = SHIPPED / name if (SHIPPED / name).exists() else Path(name)
        others[name] = load(path)
        if others[name].is_network:
            raise ConfigError(f"tracking.forecast = {name}: its student must write answers, and is a network")
    return others


def measure(run: Path) -> Rates | None:
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
    return Rates(
        generated=writing / sum(tokens),
        trained=training / computed if computed else None,
        tokens=sum(tokens) / sum(answers),
        steps=len(steady),
        of=len(pairs),
        compiled=compiled,
    )


def hours(run: Path, others: Mapping[str, Config]) -> Table | None:
    """Tabulate the hours of configurations at a run's rates, for answers as long as its own and as long as may be.

    Returns:
      None if the run has no rates.
    """
    rates = measure(run)
    if rates is None:
        return None
    rows = []
    for name, config in others.items():
        rounds, validation, most = config.rounds, config.validation, config.text.max_new_tokens
        steps = rounds.count * rounds.epochs * (rounds.instances // config.grpo.prompts)
        trained = steps * config.grpo.prompts * config.grpo.samples
        validated = (rounds.count + 1) * validation.instances * (1 + validation.samples)
        for tokens in sorted({min(round(rates.tokens), most), most}):
            train = trained * tokens * (rates.trained or 0.0) / 3600
            write, validate = (answers * tokens * rates.generated / 3600 for answers in (trained, validated))
            rows.append(
                (
                    name,
                    f"{steps:,}",
                    f"{tokens:,}",
                    f"{(trained + validated) * tokens / 1e9:.2f}",
                    f"{write:,.1f}",
                    "-" if rates.trained is None else f"{train:,.1f}",
                    f"{validate:,.1f}",
                    f"{write + train + validate:,.1f}",
                )
            )
    training = "no answer had a gradient" if rates.trained is None else f"{1e3 * rates.trained:.3g} ms to train on it"
    compiled = "all of which waited for the compiler, too" if rates.compiled else "those that compiled nothing"
    note = (
        f"From {rates.steps} of {rates.of} steps, {compiled}: {1e3 * rates.generated:.3g} ms to write a token, "
        f"{training}; answers of {rates.tokens:,.0f} tokens on average. Model and devices are this run's, and every "
        "answer counts as trained on. Each token of longer answers costs more, with more rows at a time less."
    )
    header = ("hours of", "steps", "tokens", "G tokens", "write", "train", "validate", "all")
    return Table("Hours of larger runs at the rates of this one", header, rows, note)
