"""The words that settings choose from, each list once.

One more comes from where it is used without a configuration: `jaxlake.PromptStyle`.
"""

import enum
from typing import Literal

Dtype = Literal["float32", "bfloat16"]
"""Type of floating-point numbers, by its name in JAX."""
Remat = Literal["none", "dots", "full"]
"""Parts of a layer's forward pass that are computed again for the backward pass: none, all but products, all."""
Schedule = Literal["constant", "linear", "cosine"]
"""Course of the learning rate after the warmup."""
Optimizer = Literal["adamw", "muon"]
"""AdamW (Loshchilov & Hutter 2019), or Muon for the layers' matrices (Jordan et al. 2024) and AdamW for the rest."""
Credit = Literal["outcome", "exact"]
"""Credit of the tokens of an answer: the answer's reward against its group's for each, as in GRPO, or each token's own
effect on the best reward that is still possible, by the solver (`rl.learn.credit`).
"""
Advantage = Literal["group_std", "centered", "batch_std", "rloo"]
"""Baseline and unit of a reward: the group's mean, in its standard deviations (GRPO, Shao et al. 2024), in the reward's
own unit, as a deviation weighs up the groups that are nearly all right or all wrong (Dr. GRPO, Liu et al. 2025), or in
the standard deviation of the batch (Liu et al. 2025, "Tricks or Traps?"); or the mean of the group's other answers,
which is independent of the answer itself (Ahmadian et al. 2024).
"""
Baseline = Literal["value", "group", "fitted"]
"""Expectation that a move turn by turn is compared with: a value learned beside the policy, as in PPO (Schulman et al.
2017); the mean of the plays of one board, in their standard deviations (GRPO, Shao et al. 2024); or a linear function
of what an agent and its team see and of the group's other plays, fitted by least squares (Duan et al. 2016).
"""
RewardKind = Literal["paper", "accuracy", "valid", "optimal", "checks"]
"""Property of an answer that is rewarded (`rl.learn.reward.rewards` has the formulas)."""
PlayerReward = Literal["sparse", "cost", "shaped"]
"""Reward of an agent's move, a function of `jaxlake.rewards`."""
WandbMode = Literal["disabled", "offline", "online"]
"""Mode of Weights & Biases, in its own words."""


class LanguageKind(enum.StrEnum):
    """A language model as engineer; the other kinds are the rules of `engineer.RULES`, and hindsight.

    Attributes:
      CHECKPOINT: the policy with its current parameters.
      CHECKPOINT_SHUFFLED: the policy again, with each size's evidence under another size's name: a control.
      CHECKPOINT_RENAMED: the policy again, with each kind under another kind's name in all that it reads and writes: a
        control in which reading helps, and a habit does not.
      BASE: the policy at the start of the rounds.
      MODEL: a model that is only an engineer, from the folder `engineer.model`.
      MODEL_SHUFFLED: that model with shuffled evidence: a control.
      API: a model behind a server, see `ApiSection`.
    """

    CHECKPOINT = "checkpoint"
    CHECKPOINT_SHUFFLED = "checkpoint_shuffled"
    CHECKPOINT_RENAMED = "checkpoint_renamed"
    BASE = "base"
    MODEL = "model"
    MODEL_SHUFFLED = "model_shuffled"
    API = "api"


MODELS = (LanguageKind.MODEL, LanguageKind.MODEL_SHUFFLED)
"""Engineers that are a language model of their own."""
SHUFFLED = (LanguageKind.CHECKPOINT_SHUFFLED, LanguageKind.MODEL_SHUFFLED)
"""Engineers that read each kind's evidence under another kind's name."""
OWN = (*(kind for kind in LanguageKind if kind.startswith("checkpoint")), LanguageKind.BASE)
"""Engineers that are the student itself."""
