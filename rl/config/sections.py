"""Every setting of a run, declared once: type, default, meaning, bounds, and the paper's value."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field

from jaxlake.kinds import Kind
from rl.config.choices import OWN, SHUFFLED, LanguageKind, WandbMode
from rl.config.students import NetworkSection, PlayerSection, StudentSection, WriterSection
from rl.config.types import (
    ContextName,
    Count,
    Holes,
    Kinds,
    Own,
    RuleName,
    Section,
    Seed,
    Temperature,
    TopK,
    TopP,
    Weight,
    inferred,
    paper,
)


class MeshSection(Section):
    """The layout of devices, which always has both axes."""

    fsdp: Count | Literal[-1] = Field(-1, description="devices that share batch and parameters; -1: all that tp leaves")
    tp: Count = Field(1, description="devices that share each matrix product")


class LakeSection(Section):
    """The boards of the testbed."""

    kinds: Annotated[Kinds, paper((3, 4, 5, 6, 7, 8, 9, 10))] = Field(
        (3, 4, 5, 6),
        validate_default=True,
        description="kinds of boards to train on: sizes, or names with a family or agents such as rooms6 and 8x3",
    )


class RoundsSection(Section):
    """The outer loop: the number of designed environments, and the length of each round."""

    count: Annotated[Count, paper(3)] = Field(3, description="number of rounds; the first has a random configuration")
    instances: Annotated[Count, paper(4000)] = Field(11520, description="boards a round")


class ValidationSection(Section):
    """The fixed boards that the student answers greedily, and by sampling, before and after every stage."""

    instances: Count = Field(800, description="number of boards")
    kinds: Kinds | None = Field(None, description="target kinds, an equal share of the boards each; null: lake.kinds")
    samples: Count = Field(4, description="sampled answers to each board, beside the greedy one")
    temperature: Temperature = Field(1.0, description="temperature of the sampled answers")
    top_k: TopK = 0
    top_p: TopP = 1.0
    holes: Annotated[Holes, inferred((0.1, 0.2, 0.3, 0.4, 0.5), "the benchmark's")] = (0.2, 0.3, 0.4)


class ApiSection(Section):
    """The server that engineer.kind = api asks. A resumed run may change these values."""

    url: str | None = Field(None, description="OpenAI-compatible server, such as http://localhost:8000/v1")
    model: str | None = Field(None, description="name of the model on the server")
    max_tokens: Count = Field(8192, description="most tokens of one answer with its thought, which may take thousands")


class EngineerSection(Section):
    """The engineer, which reads the evidence and writes the next configuration."""

    kind: Annotated[LanguageKind | Literal["hindsight"] | RuleName | Own, paper(LanguageKind.CHECKPOINT)] = Field(
        LanguageKind.CHECKPOINT,
        description="kind of engineer; checkpoint: the policy with its current parameters; hindsight: the best of "
        "several designs that it trains on, the ceiling of a comparison",
    )
    context: Annotated[ContextName, paper("V6", "its best variant")] = Field(
        "V6", description="modules of the message: V1 to V6, V6-full, or a sum such as F+G+H+T+R"
    )
    model: str | None = Field(
        None, description="folder of the language model of engineer.kind = model; null: the shipped model"
    )
    template: str | None = Field(
        "terse",
        description="file with the words of the message; terse: hardly any, for taught models; null: full sentences",
    )
    api: ApiSection = ApiSection()
    temperature: Weight = Field(0.6, description="temperature of the engineer's answers; 0: greedy")
    top_k: TopK = 0
    top_p: TopP = 1.0
    max_prompt_tokens: Count = Field(72, description="most tokens of the message")
    max_thinking_tokens: Count = Field(48, description="most tokens of a thought; the sampler ends a longer one")
    max_answer_tokens: Count = Field(64, description="most tokens of the configuration")

    @pydantic.model_validator(mode="after")
    def _api_is_named(self) -> Self:
        if self.kind == LanguageKind.API and not (self.api.url and self.api.model):
            raise ValueError("kind = api needs engineer.api.url and engineer.api.model")
        if self.kind == LanguageKind.API and self.template == "terse":
            raise ValueError("template = terse says nothing of the task to a server; set engineer.template=null")
        return self


class CheckpointSection(Section):
    """Checkpoints: the steps between them, and the number that stays."""

    every_steps: Count = Field(20, description="steps from one checkpoint to the next")
    keep: Count = Field(2, description="number of latest checkpoints that stay")


class TrackingSection(Section):
    """Trackers of the metrics beside metrics.jsonl, of the extra `track`."""

    tensorboard: bool = Field(False, description="write TensorBoard events in the run's directory too")
    wandb: WandbMode = Field("disabled", description="mode of Weights & Biases")


class Config(Section):
    """The configuration of a run."""

    seed: Seed = Field(0, description="seed of every random draw of the run")
    student: StudentSection = WriterSection()
    mesh: MeshSection = MeshSection()
    lake: LakeSection = LakeSection()
    rounds: RoundsSection = RoundsSection()
    validation: ValidationSection = ValidationSection()
    engineer: EngineerSection = EngineerSection()
    checkpoint: CheckpointSection = CheckpointSection()
    tracking: TrackingSection = TrackingSection()

    @pydantic.model_validator(mode="after")
    def _goes_together(self) -> Self:
        student, kind = self.student, self.engineer.kind
        count, each = self.validation.instances, len(self.target_kinds) * len(self.validation.holes)
        if count < each:
            raise ValueError(f"validation.instances = {count} must be at least {each}, one of each kind and hole ratio")
        if kind in (*SHUFFLED, LanguageKind.CHECKPOINT_RENAMED) and len(self.lake.kinds) < 2:
            raise ValueError(f"engineer.kind = {kind} needs at least two kinds in lake.kinds")
        if kind in OWN and isinstance(student, NetworkSection):
            raise ValueError(f"engineer.kind = {kind} needs student.kind = writer or player: a network writes nothing")
        if isinstance(student, WriterSection):
            if kind == "hindsight":
                raise ValueError("engineer.kind = hindsight needs student.kind = player or network, fast enough for it")
            if self.rounds.instances % student.learn.prompts:
                raise ValueError(
                    f"rounds.instances = {self.rounds.instances} must be a multiple of student.learn.prompts = "
                    f"{student.learn.prompts}"
                )
        return self

    @property
    def writer(self) -> WriterSection:
        """The student's section where it writes plans, and an error elsewhere."""
        assert isinstance(self.student, WriterSection)
        return self.student

    @property
    def player(self) -> PlayerSection:
        """The student's section where it is a language model that moves turn by turn, and an error elsewhere."""
        assert isinstance(self.student, PlayerSection)
        return self.student

    @property
    def target_kinds(self) -> tuple[Kind, ...]:
        """The kinds of boards that the run is validated on."""
        return self.validation.kinds or self.lake.kinds

    @property
    def all_kinds(self) -> tuple[Kind, ...]:
        """Every kind of boards that the run meets; their largest size and number of agents give its arrays' shapes."""
        taught = self.student.warm_start.kinds if isinstance(self.student, WriterSection) else None
        return tuple(sorted({*self.lake.kinds, *self.target_kinds, *(taught or ())}))

    @property
    def needs_reference(self) -> bool:
        """Whether a run keeps the model of the start of its rounds: for the divergence, or as the engineer `base`."""
        return self.student.learn.kl_coefficient > 0 or self.engineer.kind == LanguageKind.BASE
