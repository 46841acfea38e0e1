"""The words that settings choose from, each list once: members inside, their words in files and on the command line.

Two more come from where they are used without a configuration: `jaxlake.Objective` and `jaxlake.PromptStyle`.
"""

import enum
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticKnownError
from pydantic_core.core_schema import no_info_before_validator_function


class Word(enum.StrEnum):
    """A word out of a few. In Python a setting takes a member or its word, as public functions of `jaxlake` do."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        *most, last = (repr(member.value) for member in cls)

        def member(value: Any) -> Any:
            try:
                return cls(value) if isinstance(value, str) else value
            except ValueError:
                raise PydanticKnownError("enum", {"expected": f"{', '.join(most)} or {last}"}) from None

        # Beforehand, and not by `strict`: until pydantic 2.13 a union asked its parts strictly whatever they say.
        return no_info_before_validator_function(member, handler(source))


class StudentKind(Word):
    """The student of the rounds: a language policy that writes plans, or a player that moves turn by turn."""

    LANGUAGE = "language"
    PLAYER = "player"


class ActorKind(Word):
    """The actor of a player: a small network that sees a window, or a language model that reads a view in words."""

    NETWORK = "network"
    LANGUAGE = "language"


class LearnerKind(Word):
    """What trains a player: PPO with a value of its own, or GRPO, which compares the plays of a board."""

    PPO = "ppo"
    GRPO = "grpo"


class Dtype(Word):
    """A type of floating-point numbers, by its name in JAX."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Remat(Word):
    """Parts of a layer's forward pass that are kept for the backward pass: all, the matrix products, or the input."""

    NONE = "none"
    DOTS = "dots"
    FULL = "full"


class AttentionKind(Word):
    """The attention kernel: cuDNN's on NVIDIA GPUs, splash on TPUs, plain XLA anywhere; AUTO goes by the platform."""

    AUTO = "auto"
    XLA = "xla"
    CUDNN = "cudnn"
    SPLASH = "splash"


class Projection(Word):
    """A matrix of a layer, by its name in a checkpoint."""

    Q = "q_proj"
    K = "k_proj"
    V = "v_proj"
    O = "o_proj"  # noqa: E741 - the checkpoint's letter
    GATE = "gate_proj"
    UP = "up_proj"
    DOWN = "down_proj"


class Schedule(Word):
    """Course of the learning rate after the warmup."""

    CONSTANT = "constant"
    LINEAR = "linear"
    COSINE = "cosine"


class Advantage(Word):
    """Baseline and unit of a reward.

    Attributes:
      GROUP_STD: the group's mean, in its standard deviations (GRPO, Shao et al. 2024).
      CENTERED: the group's mean, in the reward's own unit. Dividing by the deviation weighs up the groups that are
        nearly all right or all wrong (Dr. GRPO, Liu et al. 2025).
      BATCH_STD: the group's mean, in the standard deviation of all rewards of the batch, so that a group's weight does
        not hang on its own few answers (Liu et al. 2025, "Tricks or Traps?").
      RLOO: the mean of the group's other answers, a baseline independent of the answer itself (Ahmadian et al. 2024).
      FITTED: of a player's move, what is to come against a linear function of what it and its team see and of the
        group's other plays, fitted to the rollout (Duan et al. 2016); in the standard deviation of the batch.
    """

    GROUP_STD = "group_std"
    CENTERED = "centered"
    BATCH_STD = "batch_std"
    RLOO = "rloo"
    FITTED = "fitted"


class Credit(Word):
    """Credit of the tokens of an answer.

    Attributes:
      OUTCOME: every token gets the answer's reward against its group's, as in GRPO.
      EXACT: each token gets its effect on the best reward that is still possible, by the solver (`rl.learn.credit`).
    """

    OUTCOME = "outcome"
    EXACT = "exact"


class Optimizer(Word):
    """Optimizer of a stage.

    Attributes:
      ADAMW: Loshchilov & Hutter 2019.
      MUON: Muon for the layers' matrices (Jordan et al. 2024), AdamW for the rest.
    """

    ADAMW = "adamw"
    MUON = "muon"


class Aggregation(Word):
    """Divisor of the sum over the tokens' losses.

    Attributes:
      TOKEN_MEAN: all answer tokens: each weighs the same, a long answer more than a short one (DAPO, Yu et al. 2025).
      SEQUENCE_MEAN: each answer's own length, then the number of answers (GRPO, Shao et al. 2024): a token of a long
        answer weighs less, so that wrong answers may grow.
      CONSTANT: the number of answers times the most tokens that one may have (Dr. GRPO, Liu et al. 2025).
    """

    TOKEN_MEAN = "token_mean"
    SEQUENCE_MEAN = "sequence_mean"
    CONSTANT = "constant"


class PolicyLoss(Word):
    """Loss of a token by the ratio r of its new probability to its old one, and its advantage A.

    Attributes:
      CLIPPED: -min(r A, clip(r) A), PPO's loss (Schulman et al. 2017), as GRPO has it.
      GSPO: the same with one ratio for all tokens of an answer, the geometric mean of theirs (Zheng et al. 2025). Its
        bounds are narrow: the authors have 3e-4 and 4e-4.
      GSPO_TOKEN: the value of GSPO, and the gradient of each token times its own advantage, for `grpo.credit=exact`.
      CISPO: -clip(r) A log p with the clipped ratio as a constant, so that each token keeps a gradient (MiniMax-M1,
        Chen et al. 2025).
      DPPO: -r A, and nothing for a token whose probability has moved as the advantage wants it by more than the bound
        (Qi et al. 2026, with their estimate of the total variation by one token). Against the sampler's probability.
    """

    CLIPPED = "clipped"
    GSPO = "gspo"
    GSPO_TOKEN = "gspo_token"
    CISPO = "cispo"
    DPPO = "dppo"


class Correction(Word):
    """Importance weights of the trainer's probability against the sampler's.

    Attributes:
      NONE: no weights; the mismatch is measured all the same.
      TOKEN: a weight for each token, by its own ratio, truncated (Yao et al. 2025).
      SEQUENCE: all tokens of an answer by the product of their ratios, which is unbiased but for the truncation.
      ICEPOP: a weight for each token, by its own ratio, and 0 outside of .5 to 5 (IcePop, Ling Team 2025).
    """

    NONE = "none"
    TOKEN = "token"
    SEQUENCE = "sequence"
    ICEPOP = "icepop"


class RewardKind(Word):
    """Property of an answer that is rewarded (`rl.learn.reward.rewards` has the formulas)."""

    PAPER = "paper"
    ACCURACY = "accuracy"
    VALID = "valid"
    OPTIMAL = "optimal"
    CHECKS = "checks"


class PlayerReward(Word):
    """Reward of an agent's move, a function of `jaxlake.rewards`."""

    SPARSE = "sparse"
    COST = "cost"
    SHAPED = "shaped"


class LanguageKind(Word):
    """A language model as engineer; the other kinds are the rules of `engineer.RULES`.

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


class BranchKind(Word):
    """An engineer that trains on its designs before it proposes one.

    Attributes:
      HINDSIGHT: the best of `engineer.branches` designs: the ceiling of a comparison.
    """

    HINDSIGHT = "hindsight"


class WandbMode(Word):
    """Whether Weights & Biases is written, and whether it is sent."""

    OFF = "off"
    OFFLINE = "offline"
    ONLINE = "online"
