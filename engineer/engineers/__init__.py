"""Who designs the next configuration: one interface, ``propose(evidence, history, key) -> Proposal``.

`base` has the interface and what all share, `language` the engineers that are language models and `shuffle` their
control; `rules` and `sampling` are plain functions of evidence and history.
"""

from engineer.engineers.base import Rule
from engineer.engineers.rules import (
    adarft,
    agents_ladder,
    easy_only,
    fixed_random,
    frontier,
    ladder,
    learnability,
    paper_v6_replay,
    previous,
    targets_only,
    threshold_rule,
    uniform,
)
from engineer.engineers.sampling import bandit, mutate_best, plr

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        fixed_random,
        uniform,
        previous,
        paper_v6_replay,
        threshold_rule,
        learnability,
        bandit,
        adarft,
        ladder,
        plr,
        mutate_best,
        targets_only,
        easy_only,
        agents_ladder,
        frontier,
    )
}
"""Rules by the names that configuration files give them."""

__all__ = ["RULES", "Rule"]
