"""The words of an engineer in a round and what became of them on the way to boards, as parts of a page."""

from collections.abc import Mapping
from typing import Any

from engineer.proposal import distance
from jaxlake.kinds import row_name
from rl.report import html
from rl.report.run import RATIOS, Round
from rl.report.tables import ratios
from rl.table import Table


def design(past: Round, level: int) -> str:
    """Show one round: the engineer's words verbatim, refused answers, repairs, gate, and the log raw to realised."""
    proposal = past.proposal
    words, faults = proposal.get("raw", ""), proposal.get("errors", ())
    blocks = [html.verbatim(words) if words else "", html.paragraph(_without_words(proposal) if not words else "")]
    if faults:
        blocks.append(html.paragraph("Answers that held no configuration:"))
        blocks.append(html.bullets(f"attempt {i}: {fault}" for i, fault in enumerate(faults, start=1)))
    if proposal.get("repairs"):
        blocks += [html.paragraph("Repairs:"), html.bullets(proposal["repairs"])]
    blocks += [html.paragraph(line) for line in (_outcome(proposal), _choice(proposal), _gate(proposal.get("gate")))]
    blocks += [html.paragraph(_distances(past)), html.table(_log(past))]
    blocks.append(html.folded("What it read", [html.verbatim(past.context)] if past.context else []))
    return html.section(f"{past.name.capitalize()}: {proposal.get('engineer', 'unknown')}", blocks, level)


def _without_words(proposal: Mapping[str, Any]) -> str:
    if proposal.get("errors"):
        return ""
    draw = proposal.get("engineer") in ("random", "fixed_random")
    return "No text: the configuration is a random draw." if draw else "No text: the configuration follows a rule."


def _outcome(proposal: Mapping[str, Any]) -> str:
    if proposal.get("fallback"):
        return "No answer held a configuration; the previous round's stayed in force."
    return "Taken as it is: nothing was repaired." if proposal.get("raw") and not proposal.get("repairs") else ""


def _choice(proposal: Mapping[str, Any]) -> str:
    count = len(proposal.get("candidates", ()))
    return f"Chosen: answer {proposal['chosen'] + 1} of {count}." if count > 1 else ""


def _gate(gate: Mapping[str, Any] | None) -> str:
    if not gate:
        return ""
    if gate.get("without_signal") is None:
        return f"Gate: {gate['verdict']}."
    return (
        f"Gate: {gate['verdict']} and {gate['action']}; {100 * gate['without_signal']:.0f} % of the piloted boards had "
        f"answers that were all valid or all invalid, allowed are {100 * gate['bound']:.0f} %."
    )


def _distances(past: Round) -> str:
    """Say how far what was read, what was legal and what the boards were are from each other."""
    repaired = past.proposal.get("distances", {}).get("parsed_projected")
    measured = {str(kind): {ratio: past.realised(kind, ratio) for ratio in RATIOS} for kind in past.config.kinds}
    realised = {kind: {r: x for r, x in entry.items() if x is not None} for kind, entry in measured.items()}
    parts = {"parsed to projected": repaired, "requested to realised": distance(past.config, realised)}
    known = [f"{name} {value:.3f}" for name, value in parts.items() if value is not None]
    text = "data: sum of absolute differences; hole and wait: mean of them"
    return f"Distances ({text}): {', '.join(known)}." if known else ""


def _log(past: Round) -> Table:
    candidates = past.proposal.get("candidates", ())
    answers = dict(enumerate(candidates, start=1)) if len(candidates) > 1 else {}
    ways = {"parsed": past.proposal.get("parsed") or {}}
    ways |= {f"answer {i}": candidate for i, candidate in answers.items()}
    ways |= {name: past.proposal.get(name, {}) for name in ("projected", "realised")}
    return Table.grid(
        "From answer to boards: data / hole / wait",
        row_name(past.config.kinds),
        past.config.kinds,
        list(ways),
        lambda kind, way: ratios(map(entry.get, RATIOS)) if (entry := ways[way].get(str(kind))) else "-",
    )
