"""The hours of other configurations at the rates of a finished run, from its own logs."""

import json
from collections.abc import Mapping
from pathlib import Path

from jaxlake.table import Table
from rl.config import SHIPPED, Config, ConfigError, load

TRAINING = ("host", "credit", "logprob", "update")
"""The parts of a step that train on answers; ``rollout`` writes them."""


def configurations(config: Config) -> dict[str, Config]:
    """Return the configurations that `tracking.forecast` names; ConfigError if one cannot be read, or is a player's."""
    others = {}
    for name in config.tracking.forecast or ():
        others[name] = load(SHIPPED / name if (SHIPPED / name).exists() else Path(name))
        if others[name].plays:
            raise ConfigError(f"tracking.forecast = {name}: its student must write plans, and is a player")
    return others


def hours(run: Path, others: Mapping[str, Config]) -> Table | None:
    """Tabulate the hours of configurations at a run's rates, for answers as long as its own and as long as may be.

    Steps that waited for the compiler are left out, unless all of them did.

    Returns:
      None if the run has no step of GRPO.
    """
    logs = ((run / f"{name}.jsonl").read_text(encoding="utf-8").splitlines() for name in ("metrics", "timings"))
    metrics, timings = ([row for row in map(json.loads, log) if row["phase"] == "round"] for log in logs)
    if not metrics:
        return None
    measured = [i for i, seconds in enumerate(timings) if not seconds["compilations"]] or range(len(metrics))
    samples = load(run / "config.yaml").grpo.samples
    answers = written = computed = writing = training = 0.0
    for row, seconds in ((metrics[i], timings[i]) for i in measured):
        count = row["groups_sampled"] * samples
        answers, written = answers + count, written + count * row["answer_tokens"]
        computed += count * row["answer_tokens"] * row["rows_computed"]
        writing, training = writing + seconds["rollout"], training + sum(seconds.get(part, 0.0) for part in TRAINING)
    to_write, to_train = writing / written, training / computed if computed else float("nan")

    rows = []
    for name, config in others.items():
        rounds, validation, most = config.rounds, config.validation, config.text.max_new_tokens
        steps = rounds.count * rounds.epochs * (rounds.instances // config.grpo.prompts)
        trained = steps * config.grpo.prompts * config.grpo.samples
        validated = (rounds.count + 1) * validation.instances * (1 + validation.samples)
        for tokens in sorted({min(round(written / answers), most), most}):
            parts = [count * tokens * rate / 3600 for count, rate in ((trained, to_write), (trained, to_train))]
            parts.append(validated * tokens * to_write / 3600)
            total = f"{(trained + validated) * tokens / 1e9:.2f}"
            rows.append((name, f"{steps:,}", f"{tokens:,}", total, *(f"{x:,.1f}" for x in (*parts, sum(parts)))))
    note = (
        f"From {len(measured)} of {len(metrics)} steps, those that compiled nothing if there are any: "
        f"{1e3 * to_write:.3g} ms to write a token, {1e3 * to_train:.3g} ms to train on it (nan: no answer had a "
        f"gradient); answers of {written / answers:,.0f} tokens on average. Model and devices are this run's, and "
        "every answer counts as trained on. Each token of longer answers costs more, with more rows at a time less."
    )
    header = ("hours of", "steps", "tokens", "G tokens", "write", "train", "validate", "all")
    return Table("Hours of larger runs at the rates of this one", header, rows, note)
