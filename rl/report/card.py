"""The card of a run: its seed, settings with their origins, and hashes."""

import hashlib
import json
import re
from collections import Counter

from rl.report.run import Run
from rl.table import Table

UNKNOWN = "unknown"
"""Origin of a setting of a run that does not say."""


def tables(run: Run) -> list[Table]:
    """Return the tables of the card, all but the settings."""
    return [table for table in (_facts(run), _hashes(run)) if table is not None]


def settings(run: Run) -> Table | None:
    """Show every setting with its value and its origin."""
    rows = [
        (key, value if isinstance(value, str) else json.dumps(value), run.origins.get(key, UNKNOWN))
        for key, value in run.settings.items()
    ]
    return Table("Settings", ("setting", "value", "origin"), rows) if rows else None


def _facts(run: Run) -> Table:
    """Show what tells this run from others."""
    tags = (re.split(r"\W", run.origins.get(key) or UNKNOWN)[0] for key in run.settings)
    kind, context = (run.settings.get(f"engineer.{key}") for key in ("kind", "context"))
    path = run.directory / "config.yaml"
    rows = {
        "seed": str(run.settings.get("seed", UNKNOWN)),
        "engineer": UNKNOWN if kind is None else f"{kind}, context {context}",
        "rounds with an environment": str(len(run.rounds)),
        "training steps": f"{len(run.warm_start)} of the warm start, {len(run.steps)} of the rounds",
        "seconds in those steps": f"{run.seconds:,.0f} (boards, validations and designs not counted)",
        "settings by origin": ", ".join(f"{count} {tag}" for tag, count in Counter(tags).most_common()) or UNKNOWN,
        "config.yaml": f"sha256 {_hash(path.read_text(encoding='utf-8'))}" if path.exists() else UNKNOWN,
    }
    return Table("This run", ("", ""), tuple(rows.items()))


def _hashes(run: Run) -> Table | None:
    """Show by round sha256 of the engineer's prompt, the configuration, and the policy's parameters at that time."""
    rows = tuple(
        (
            past.name,
            past.proposal.get("engineer", UNKNOWN),
            _hash(past.context) if past.context else "-",
            _hash(json.dumps(past.config.to_dict(), sort_keys=True)),
            str(past.proposal.get("parameters", UNKNOWN))[:23],
        )
        for past in run.rounds
    )
    header = ("round", "engineer", "prompt", "configuration", "parameters")
    return Table("Rounds by sha256", header, rows) if rows else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
