"""Designers of the next configuration, behind one interface: ``propose(evidence, history, key) -> Proposal``.

`base` has the interface and what all share, `language` the engineers that are language models and `shuffle` their
control; `rules`, `sampling` and `features` are plain functions of evidence and history.
"""

from engineer.engineers import features, rules, sampling
from engineer.engineers.base import Rule

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        rules.fixed_random,
        rules.uniform,
        rules.previous,
        rules.paper_v6_replay,
        rules.threshold_rule,
        rules.learnability,
        sampling.bandit,
        rules.adarft,
        rules.ladder,
        sampling.plr,
        sampling.mutate_best,
        rules.targets_only,
        rules.easy_only,
        rules.agents_ladder,
        rules.frontier,
        features.procurl_target,
        rules.cactus,
        features.ridge,
    )
}
"""Rules by the names that configuration files give them."""
BOARD_RULES = ("paper_v6_replay", "agents_ladder", "procurl_target", "cactus", "ridge")
"""Rules that read sides or agents; the others read shares by kind, and the kinds' order by difficulty."""

__all__ = ["BOARD_RULES", "RULES", "Rule"]
