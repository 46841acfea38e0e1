"""The settings of a language policy's training: optimizers, the warm start, the rounds, GRPO and its reward."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from rl.config.choices import (
    Advantage,
    Aggregation,
    Correction,
    Credit,
    Optimizer,
    PolicyLoss,
    RewardKind,
    Schedule,
)
from rl.config.origins import ours, paper
from rl.config.types import (
    ContextName,
    Count,
    Holes,
    Kinds,
    OptimizerName,
    Own,
    PeakRate,
    Rate,
    Section,
    Temperature,
    WarmupSteps,
    WeightDecay,
)


class OptimizerFields(Section):
    """The optimizer and its schedule, for a section that trains."""

    optimizer: OptimizerName = Optimizer.ADAMW
    learning_rate: PeakRate = 1e-4
    schedule: Schedule = Field(Schedule.CONSTANT, description="course of the learning rate after the warmup")
    warmup_steps: WarmupSteps = 0
    weight_decay: WeightDecay = 0.0


class WarmStartSection(OptimizerFields):
    """Supervised steps before the first round; 0 steps for a model that can already plan and answer."""

    steps: Annotated[int, Field(ge=0), paper(0, "RL starts from the checkpoint as it is")] = Field(
        710, description="number of updates; 0: no warm start"
    )
    engineer_first: Annotated[int, Field(ge=0)] = Field(
        400, description="number of first updates, all on engineer examples"
    )
    instances: Count = Field(20_000, description="number of boards with solved plans")
    batch: Count = Field(32, description="plans an update")
    engineer_every: Annotated[int, Field(ge=0)] = Field(
        4,
        description="updates from one engineer batch to the next, after engineer_first; the others are of plans; 0: "
        "no further ones",
    )
    engineer_batch: Count = Field(8, description="engineer examples an update")
    max_context_tokens: Count = Field(72, description="most tokens of an example's message")
    max_answer_tokens: Count = Field(76, description="most tokens of an example's thought and answer")
    optimizer: OptimizerName = Optimizer.MUON
    learning_rate: PeakRate = 1e-2
    warmup_steps: WarmupSteps = 30
    weight_decay: WeightDecay = 0.1
    holes: Holes = (0.2, 0.3, 0.4)
    kinds: Kinds | None = Field(None, description="kinds of boards, with an equal share each; null: lake.kinds")
    contexts: tuple[ContextName, ...] = Field(
        ("V6",),
        min_length=1,
        description="contexts of the engineer examples, with an equal share each; see engineer.context",
    )

    @property
    def teaches_engineer(self) -> bool:
        """Whether any update is on engineer examples."""
        return min(self.steps, self.engineer_first + self.engineer_every) > 0


class RoundsSection(Section):
    """The outer loop: the number of designed environments, and the length of each round."""

    count: Annotated[Count, paper(3)] = Field(3, description="number of rounds; the first has a random configuration")
    instances: Annotated[Count, paper(4000)] = Field(11520, description="boards a round")
    epochs: Annotated[Count, paper(2)] = Field(1, description="passes over the boards of a round")


class GRPOSection(OptimizerFields):
    """The inner loop: the answers of a step, and the optimisation on them. The paper gives none of its values.

    Answers are drawn from the whole distribution, by temperature alone: the trainer takes log-probabilities of the
    whole, and where top-k or top-p cut something off, every ratio would be off by the mass cut away.
    """

    learning_rate: PeakRate = 1.2e-3
    schedule: Schedule = Field(Schedule.LINEAR, description="course of the learning rate after the warmup")
    warmup_steps: WarmupSteps = 10
    prompts: Count = Field(96, description="boards a step")
    samples: Annotated[int, Field(ge=2)] = Field(2, description="answers to each board")
    micro_batch: Count = Field(16, description="most answers in one backward pass")
    minibatches: Count = Field(1, description="parts of a step's answers, with an update each")
    iterations: Count = Field(1, description="passes over a step's answers")
    resampling: Annotated[int, Field(ge=0)] = Field(
        0,
        description="dynamic sampling: most further batches of prompts a step, in place of groups that are all valid "
        "or all invalid; 0: none",
    )
    credit: Annotated[Credit, paper(Credit.OUTCOME, "GRPO")] = Field(
        Credit.EXACT, description="advantage of a token; outcome: that of its answer; exact: its own, from the solver"
    )
    advantage: Advantage = Field(
        Advantage.GROUP_STD,
        description="baseline and unit of an answer's reward; with exact credit it affects only the evidence; fitted "
        "is for players",
    )
    gae_lambda: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="factor by which the end of a play counts less for a player's move for each step between the two; "
        "1: the same for all moves of a play",
    )
    loss: PolicyLoss = Field(
        PolicyLoss.CLIPPED, description="loss of a token; gspo and gspo_token have one ratio for a whole answer"
    )
    aggregation: Aggregation = Field(Aggregation.TOKEN_MEAN, description="divisor of the sum over all tokens")
    clip_low: Annotated[Rate, ours("DAPO's clip-higher")] = Field(
        0.2,
        description="lower clip of the ratio of probabilities, at 1 - clip_low; dppo: of their difference",
    )
    clip_high: Annotated[Rate, ours("DAPO's clip-higher")] = Field(
        0.28,
        description="upper clip of the ratio of probabilities, at 1 + clip_high; dppo: of their difference",
    )
    kl_coefficient: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="weight of the divergence from the policy at the start of the rounds, of which it keeps a copy",
    )
    entropy_coefficient: Annotated[float, Field(ge=0)] = Field(0.0, description="weight of the bonus on entropy")
    correction: Correction = Field(
        Correction.NONE,
        description="importance weights of the trainer's probabilities against the sampler's, bounded",
    )
    temperature: Temperature = Field(1.0, description="temperature of the answers")
    engineer_every: Annotated[int, Field(ge=0), paper(0, "none is mentioned")] = Field(
        4,
        description="steps from one rehearsal of the warm start's engineer examples to the next, with every engineer, "
        "so that runs compare; 0: none",
    )

    @pydantic.model_validator(mode="after")
    def _one_ratio_to_the_sampler(self) -> Self:
        if self.loss is PolicyLoss.DPPO and self.correction is not Correction.NONE:
            raise ValueError(f"correction = {self.correction} must be none: loss = dppo has its ratio to the sampler")
        return self

    @property
    def updates(self) -> int:
        """Number of updates that a step makes."""
        return self.minibatches * self.iterations

    @property
    def needs_advantage(self) -> bool:
        """Whether an answer without an advantage has no gradient: neither divergence nor entropy are in the loss."""
        return self.kl_coefficient == 0 and self.entropy_coefficient == 0


class RewardSection(Section):
    """The reward of an answer, and the lengths at which the penalty on tokens begins and ends."""

    kind: Annotated[RewardKind | Own, paper(RewardKind.PAPER)] = Field(
        RewardKind.OPTIMAL,
        description="rewarded property; paper: accuracy by cost, and length, by adaptive weights; others ignore length",
    )
    free_tokens: Annotated[Count, paper(1500, "L1")] = Field(24, description="L1, the most tokens without a penalty")
    limit_tokens: Annotated[Count, paper(4096, "L2")] = Field(
        40, description="L2, the least tokens with the full penalty"
    )

    @pydantic.model_validator(mode="after")
    def _free_below_limit(self) -> Self:
        if self.free_tokens >= self.limit_tokens:
            raise ValueError("free_tokens must be below limit_tokens")
        return self
