"""The settings of students: a language model that writes plans, one that moves turn by turn, or a small network."""

from typing import Annotated, Any, ClassVar, Literal, Self

import pydantic
from pydantic import Discriminator, Field, Tag

from jaxlake import PromptStyle
from jaxlake.types import MAX_STEPS
from rl.config.choices import Advantage, Baseline, Credit, Dtype, PlayerReward, Remat, RewardKind, Schedule
from rl.config.types import (
    ClipHigh,
    ContextName,
    Count,
    EntropyWeight,
    GroupSize,
    Holes,
    Kinds,
    Natural,
    OptimizerName,
    Own,
    PeakRate,
    Rate,
    Section,
    Temperature,
    WarmupSteps,
    Weight,
    WeightDecay,
    inferred,
    paper,
)


class LoRASection(Section):
    """Low-rank adapters (Hu et al. 2021): training changes small products beside the checkpoint, and not itself."""

    rank: Natural = Field(0, description="rank of the adapters; 0: no adapters, all parameters are trained")
    alpha: float = Field(32.0, gt=0, description="the scale of the adapters' products is alpha / rank")


class ModelSection(Section):
    """The language model: a checkpoint in Hugging Face format, or a shape to start from scratch."""

    shape: Annotated[str | None, paper("qwen3-4b", "the backbone")] = Field(
        "tiny", description="name of a preset, or a config.json (file or its folder); null: the shape in model.path"
    )
    path: Annotated[str | None, paper("Qwen/Qwen3-4B", "the backbone")] = Field(
        None,
        description="folder of a checkpoint, or a Hugging Face id; null: random weights and the shipped tokenizer, but "
        "with shape = tiny the shipped weights, which read tables and cannot plan",
    )
    dtype: Dtype = Field("float32", description="type of the matrix work; trained parameters are float32")
    remat: Remat = Field(
        "full",
        description="parts of the forward pass that the backward pass computes again; dots: all but matrix products",
    )
    lora: LoRASection = LoRASection()
    early_stop: str | None = Field(
        None, description="words that the sampler adds where it ends a thought at its cap; null: none"
    )

    @pydantic.model_validator(mode="after")
    def _shape_is_known(self) -> Self:
        if self.shape is None and self.path is None:
            raise ValueError("one of shape and path must be given")
        return self


class TextSection(Section):
    """The words of an instance's prompt, and the room for its answer."""

    style: PromptStyle | Own = Field(PromptStyle.COORDINATES, description="the words of the prompt")
    thinking: Annotated[bool, paper(True)] = Field(False, description="let the policy think before its plan")
    max_prompt_tokens: Count = Field(40, description="most tokens of a prompt; no run begins with a longer one")
    max_new_tokens: Annotated[Count, inferred(8192)] = Field(40, description="most tokens of an answer, cut off there")
    max_thinking_tokens: Count | None = Field(
        None, description="most tokens of a thought, which the sampler ends there; null: no cap"
    )

    @property
    def thinking_cap(self) -> int | None:
        """Tokens after which the sampler ends the policy's thought; None without a cap or without thoughts."""
        return self.max_thinking_tokens if self.thinking else None


class SamplerSection(Section):
    """The generation of answers."""

    rows: Count = Field(192, description="answers generated at once, over all devices; others wait for a free row")


class OptimizerFields(Section):
    """The optimizer and its schedule, for a section that trains."""

    optimizer: OptimizerName = "adamw"
    learning_rate: PeakRate = 1e-4
    schedule: Schedule = Field("constant", description="course of the learning rate after the warmup")
    warmup_steps: WarmupSteps = 0


class EngineerExamplesSection(OptimizerFields):
    """Supervised steps before the first round, on examples of an engineer's answers; 0 steps: none."""

    steps: Annotated[Natural, paper(0)] = Field(0, description="number of updates; 0: no warm start")
    engineer_batch: Count = Field(8, description="engineer examples an update")
    max_context_tokens: Count = Field(72, description="most tokens of an example's message")
    max_answer_tokens: Count = Field(76, description="most tokens of an example's thought and answer")
    optimizer: OptimizerName = "muon"
    learning_rate: PeakRate = 1e-2
    warmup_steps: WarmupSteps = 30
    weight_decay: WeightDecay = 0.1
    contexts: tuple[ContextName, ...] = Field(
        ("V6",), min_length=1, description="contexts of the engineer examples, an equal share each"
    )


class WarmStartSection(EngineerExamplesSection):
    """Supervised steps before the first round, on engineer examples and on plans; 0 for a model that can do both."""

    steps: Annotated[Natural, paper(0)] = Field(710, description="number of updates; 0: no warm start")
    engineer_first: Natural = Field(400, description="number of first updates, all on engineer examples")
    instances: Count = Field(20_000, description="number of boards with solved plans")
    batch: Count = Field(32, description="plans an update")
    engineer_every: Natural = Field(
        4, description="updates from one engineer batch to the next, after engineer_first; 0: no further ones"
    )
    holes: Holes = (0.2, 0.3, 0.4)
    kinds: Kinds | None = Field(None, description="kinds of boards, with an equal share each; null: lake.kinds")

    @property
    def teaches_engineer(self) -> bool:
        """Whether any update is on engineer examples."""
        return min(self.steps, self.engineer_first + self.engineer_every) > 0

    def is_of_engineer(self, step: int) -> bool:
        """Return whether an update is on engineer examples, and not on plans."""
        return step < self.engineer_first or (self.engineer_every > 0 and step % self.engineer_every == 0)


class LossFields(OptimizerFields):
    """The loss of a token or a move by the ratio of its probabilities, for a section that learns by reward."""

    loss: Literal["clipped"] | Own = Field("clipped", description="loss of a token, or of a move")
    clip_low: Rate = Field(0.2, description="lower clip of the ratio of probabilities, at 1 - clip_low")
    clip_high: ClipHigh = 0.28
    kl_coefficient: Weight = Field(
        0.0, description="weight of the divergence from the policy at the start of the rounds, which keep a copy of it"
    )
    entropy_coefficient: EntropyWeight = 0.0
    temperature: Temperature = Field(1.0, description="temperature of the answers")

    @property
    def needs_advantage(self) -> bool:
        """Whether an answer without an advantage has no gradient: neither divergence nor entropy are in the loss."""
        return self.kl_coefficient == 0 and self.entropy_coefficient == 0


class LearnSection(LossFields):
    """The inner loop: the answers of a step, and the optimisation on them. The paper gives none of its values.

    Answers are drawn from the whole distribution, by temperature alone: the trainer takes log-probabilities of the
    whole, and where top-k or top-p cut something off, every ratio would be off by the mass cut away.
    """

    learning_rate: PeakRate = 1.2e-3
    schedule: Schedule = Field("linear", description="course of the learning rate after the warmup")
    warmup_steps: WarmupSteps = 10
    prompts: Count = Field(96, description="boards a step")
    samples: GroupSize = Field(2, description="answers to each board")
    micro_batch: Count = Field(16, description="most answers in one backward pass")
    minibatches: Count = Field(1, description="parts of a step's answers, with an update each")
    credit: Annotated[Credit, paper("outcome", "GRPO")] = Field(
        "exact", description="advantage of a token; outcome: that of its answer; exact: its own, from the solver"
    )
    advantage: Advantage = Field(
        "group_std", description="baseline and unit of a reward; exact credit uses it for the evidence alone"
    )
    engineer_every: Annotated[Natural, paper(0)] = Field(
        4, description="steps from one rehearsal of engineer examples to the next, with every engineer; 0: none"
    )

    @pydantic.model_validator(mode="after")
    def _parts_are_equal(self) -> Self:
        if self.prompts % self.minibatches:
            raise ValueError(f"prompts = {self.prompts} must be a multiple of minibatches = {self.minibatches}")
        return self


class RewardSection(Section):
    """The reward of an answer, and the lengths at which the penalty on tokens begins and ends."""

    kind: Annotated[RewardKind | Own, paper("paper")] = Field(
        "optimal", description="rewarded property; paper: accuracy by cost, and length; others ignore length"
    )
    free_tokens: Annotated[Count, paper(1500)] = Field(24, description="L1, the most tokens without a penalty")
    limit_tokens: Annotated[Count, paper(4096)] = Field(40, description="L2, the least tokens with the full penalty")

    @pydantic.model_validator(mode="after")
    def _free_below_limit(self) -> Self:
        if self.free_tokens >= self.limit_tokens:
            raise ValueError("free_tokens must be below limit_tokens")
        return self


class WriterSection(Section):
    """kind = writer: a language model that writes whole plans, as the paper's policy does."""

    kind: Annotated[Literal["writer"], paper("writer")] = Field(
        "writer", description="a language model that writes plans, the default"
    )
    model: ModelSection = ModelSection()
    text: TextSection = TextSection()
    sampler: SamplerSection = SamplerSection()
    warm_start: WarmStartSection = WarmStartSection()
    epochs: Annotated[Count, paper(2)] = Field(1, description="passes over the boards of a round")
    learn: LearnSection = LearnSection()
    reward: RewardSection = RewardSection()

    @pydantic.model_validator(mode="after")
    def _credit_is_known(self) -> Self:
        exact = self.learn.credit == "exact"
        if exact and (self.reward.kind != "optimal" or self.text.thinking):
            raise ValueError(
                "learn.credit = exact needs reward.kind = optimal and text.thinking = false; or set "
                "student.learn.credit=outcome"
            )
        return self


class TurnLearnSection(LossFields):
    """The learning of a student that moves turn by turn: a policy gradient against the baseline of its choice."""

    baseline: Baseline = Field("value", description="expectation that what follows a move is compared with")
    learning_rate: PeakRate = 2e-3
    samples: GroupSize = Field(8, description="plays of each board side by side, with baseline = group or fitted")
    iterations: Count = Field(4, description="passes over the steps of an update")
    minibatches: Count = Field(4, description="parts of a pass, an optimizer step each")
    gae_lambda: Rate = Field(0.9, description="factor by which what comes later counts less for a move, for each step")
    clip_high: ClipHigh = 0.2
    entropy_coefficient: EntropyWeight = 0.01


class PlaySection(Section):
    """The plays and the learning of a student that moves turn by turn.

    Attributes:
      epochs: passes over the boards of a round, in the words of an engineer's message; plays draw their boards.
      text: the words of boards, which it does not read.
    """

    epochs: ClassVar[int] = 1
    text: ClassVar[TextSection] = TextSection()
    episode_steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = Field(32, description="steps after which a play is over")
    environments: Count = Field(128, description="boards played at once")
    rollout_steps: Count = Field(
        32,
        description="steps of an update; without a learned value those in which plays begin, all of which are played "
        "to their end",
    )
    updates: Count = Field(6, description="updates a round")
    reward: PlayerReward | Own = Field(
        "sparse",
        description="reward of a move: sparse, 1 when all have arrived; cost, -1 a move before that; shaped, sparse "
        "and 0.1 for each cell nearer to the goal",
    )
    learn: TurnLearnSection = TurnLearnSection()

    @pydantic.model_validator(mode="after")
    def _groups_are_whole(self) -> Self:
        if self.learn.baseline != "value" and self.environments % self.learn.samples:
            raise ValueError(
                f"environments = {self.environments} must be a multiple of learn.samples = {self.learn.samples}"
            )
        return self


class PlayerSection(PlaySection):
    """kind = player: a language model that reads a view of a board in each turn, and names a move."""

    kind: Literal["player"] = Field("player", description="a language model that moves turn by turn")
    model: ModelSection = ModelSection()
    sampler: SamplerSection = SamplerSection()
    tokens: bool = Field(
        True, description="a new token of the vocabulary for each phrase of a view; false: the tokenizer's own"
    )
    chunk: Count = Field(128, description="decisions computed at once")
    max_prompt_tokens: Count = Field(40, description="most tokens of a view in the tokenizer's own words")
    warm_start: EngineerExamplesSection = EngineerExamplesSection()


class NetworkSection(PlaySection):
    """kind = network: a small network of two hidden layers that moves turn by turn, at first with random weights."""

    warm_start: ClassVar[EngineerExamplesSection] = EngineerExamplesSection()
    kind: Literal["network"] = Field("network", description="a small network that moves turn by turn")
    radius: Natural = Field(2, description="cells that an agent sees around it")
    width: Count = Field(64, description="width of the hidden layers")


def _kind(student: Any) -> Any:
    return student.get("kind", "writer") if isinstance(student, dict) else getattr(student, "kind", None)


StudentSection = Annotated[
    Annotated[WriterSection, Tag("writer")]
    | Annotated[PlayerSection, Tag("player")]
    | Annotated[NetworkSection, Tag("network")],
    Discriminator(_kind, "student_kind", "kind must be writer, player or network"),
]
"""The student, which learns in the rounds; engineers design for it. Without `kind` it is a writer."""
