"""The settings of how a language policy learns: optimizers, the warm start, the rounds, GRPO and its reward."""

from typing import Annotated, Self

import pydantic
from pydantic import Field

from rl.config.choices import (
    Advantage,
    Aggregation,
    Correction,
    Credit,
    Optimizer,
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
    """AdamW and its schedule, for a section that trains."""

    optimizer: OptimizerName = Optimizer.ADAMW
    learning_rate: PeakRate = 1e-4
    schedule: Schedule = Field(Schedule.CONSTANT, description="course of the rate after the warmup")
    warmup_steps: WarmupSteps = 0
    weight_decay: WeightDecay = 0.0


class WarmStartSection(OptimizerFields):
    """Supervised steps before the first round; 0 steps for a model that can already plan and answer."""

    steps: Annotated[int, Field(ge=0), paper(0, "RL starts from the checkpoint as it is")] = Field(
        460, description="updates; 0: no warm start"
    )
    engineer_first: Annotated[int, Field(ge=0)] = Field(
        150, description="updates at the beginning, all on engineer examples"
    )
    instances: Count = Field(20_000, description="boards with solved plans to learn from")
    batch: Count = Field(32, description="plans a step")
    engineer_every: Count = Field(
        4, description="steps from one batch of engineer examples to the next after those; the others are plans"
    )
    engineer_batch: Count = Field(8, description="examples in such a batch")
    max_context_tokens: Count = Field(72, description="room for what an example shows the engineer")
    max_answer_tokens: Count = Field(76, description="room for its thought and answer")
    optimizer: OptimizerName = Optimizer.MUON
    learning_rate: PeakRate = 1e-2
    warmup_steps: WarmupSteps = 30
    weight_decay: WeightDecay = 0.1
    holes: Holes = (0.2, 0.3, 0.4)
    kinds: Kinds | None = Field(None, description="an equal share of the boards each; null: lake.kinds")
    contexts: tuple[ContextName, ...] = Field(
        ("V6",),
        min_length=1,
        description="contexts of the engineer examples, an equal share each; see engineer.context",
    )


class RoundsSection(Section):
    """The outer loop: how often the environment is designed anew, and how long each round trains."""

    count: Annotated[Count, paper(3)] = Field(3, description="rounds, the first with a random configuration")
    instances: Annotated[Count, paper(4000)] = Field(11520, description="boards of a round")
    epochs: Annotated[Count, paper(2)] = Field(1, description="times that a round goes through them")


class GRPOSection(OptimizerFields):
    """The inner loop: what is rolled out in a step, and what is optimised on it. The paper gives none of its values.

    Answers are drawn from the whole distribution, by temperature alone: the trainer takes log-probabilities of the
    whole, and where top-k or top-p cut something off, every ratio would be off by the mass cut away.
    """

    learning_rate: PeakRate = 1.2e-3
    schedule: Schedule = Field(Schedule.LINEAR, description="course of the rate after the warmup")
    warmup_steps: WarmupSteps = 10
    prompts: Count = Field(96, description="instances a step")
    samples: Annotated[int, Field(ge=2)] = Field(2, description="answers to each")
    micro_batch: Count = Field(16, description="answers that go through the backward pass at once, at most")
    minibatches: Count = Field(1, description="parts that a step's answers are split into, an update each")
    iterations: Count = Field(1, description="passes over a step's answers")
    resampling: Annotated[int, Field(ge=0)] = Field(
        0,
        description="dynamic sampling: at most so many further batches of prompts a step, for groups that are all "
        "valid or all invalid; 0: none",
    )
    credit: Annotated[Credit, paper(Credit.OUTCOME, "GRPO")] = Field(
        Credit.EXACT, description="outcome: every token has its answer's advantage; exact: its own, from the solver"
    )
    advantage: Advantage = Field(
        Advantage.GROUP_STD,
        description="baseline and unit of an answer's reward; with exact credit for the evidence alone",
    )
    aggregation: Aggregation = Field(Aggregation.TOKEN_MEAN, description="divisor of the sum over all tokens")
    clip_low: Annotated[Rate, ours("DAPO's clip-higher")] = Field(
        0.2, description="the ratio of probabilities is clipped below 1 - clip_low"
    )
    clip_high: Annotated[Rate, ours("DAPO's clip-higher")] = Field(
        0.28, description="the ratio of probabilities is clipped above 1 + clip_high"
    )
    kl_coefficient: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="weight of the divergence from the policy at the start of the rounds; above 0 a copy of it is kept",
    )
    entropy_coefficient: Annotated[float, Field(ge=0)] = Field(0.0, description="weight of the bonus on entropy")
    correction: Correction = Field(
        Correction.NONE, description="importance weights of the trainer's policy against the sampler's, at most 2"
    )
    temperature: Temperature = Field(1.0, description="temperature of the answers")
    engineer_every: Annotated[int, Field(ge=0), paper(0, "it speaks of none")] = Field(
        4,
        description="every so many steps the policy rehearses engineer examples of the warm start, whoever designs, so "
        "that runs can be compared; 0: never",
    )

    @property
    def updates(self) -> int:
        """Number of updates that a step makes."""
        return self.minibatches * self.iterations

    @property
    def needs_advantage(self) -> bool:
        """Whether an answer without an advantage has no gradient: neither divergence nor entropy are in the loss."""
        return self.kl_coefficient == 0 and self.entropy_coefficient == 0


class RewardSection(Section):
    """Reward of an answer, and lengths at which the penalty on tokens starts and is full."""

    kind: Annotated[RewardKind | Own, paper(RewardKind.PAPER)] = Field(
        RewardKind.OPTIMAL,
        description="paper: accuracy by cost and length with adaptive weights; the others see no length",
    )
    free_tokens: Annotated[Count, paper(1500, "L1")] = Field(
        24, description="L1, the length up to which an answer loses nothing"
    )
    limit_tokens: Annotated[Count, paper(4096, "L2")] = Field(
        40, description="L2, the length from which on it loses all that length can cost"
    )

    @pydantic.model_validator(mode="after")
    def _free_below_limit(self) -> Self:
        if self.free_tokens >= self.limit_tokens:
            raise ValueError("free_tokens must be below limit_tokens")
        return self
