"""Every setting of a run, declared once: type, default, meaning, bounds, and the paper's value."""

from typing import Annotated, Any, Self

import pydantic
import yaml
from pydantic import Field, Strict

from jaxlake import Objective, PromptStyle
from jaxlake.kinds import Kind
from jaxlake.types import MAX_STEPS
from rl.config.choices import (
    OWN,
    SHUFFLED,
    ActorKind,
    Advantage,
    AttentionKind,
    BranchKind,
    Credit,
    Dtype,
    LanguageKind,
    LearnerKind,
    PlayerReward,
    PolicyLoss,
    Projection,
    Remat,
    RewardKind,
    StudentKind,
    WandbMode,
)
from rl.config.origins import as_override, inferred, ours, paper
from rl.config.readers import choices, given, is_read, read_by, readers
from rl.config.training import GRPOSection, RewardSection, RoundsSection, WarmStartSection
from rl.config.types import (
    ContextName,
    Count,
    Holes,
    Kinds,
    Own,
    Rate,
    RequestField,
    RuleName,
    Section,
    Temperature,
    TopK,
    TopP,
    once_each,
)


class LoRASection(Section):
    """Low-rank adapters (Hu et al. 2021): training changes small products beside the checkpoint, and not itself."""

    rank: Annotated[int, Field(ge=0), inferred(0, "no adapters are mentioned")] = Field(
        0, description="rank of the adapters; 0: no adapters, all parameters are trained"
    )
    alpha: Annotated[float, Field(gt=0)] = Field(
        32.0, description="the scale of the adapters' products is alpha / rank"
    )
    targets: Annotated[tuple[Projection, ...], Field(min_length=1), once_each("projection")] = Field(
        tuple(Projection), description="projections with an adapter, in every layer"
    )


class ModelSection(Section):
    """The policy: a checkpoint in Hugging Face format, or a shape to start from scratch."""

    shape: Annotated[str | None, paper("qwen3-4b", "the backbone")] = Field(
        "tiny", description="name of a preset, or a config.json (file or its folder); null: the shape in model.path"
    )
    path: Annotated[str | None, paper("Qwen/Qwen3-4B", "the backbone")] = Field(
        None,
        description="folder of a checkpoint, or a Hugging Face id; null: random weights and the shipped tokenizer, but "
        "with shape = tiny the shipped weights, which read tables and cannot plan",
    )
    dtype: Dtype = Field(Dtype.FLOAT32, description="type of the matrix work; trained parameters are float32")
    remat: Remat = Field(
        Remat.FULL,
        description="parts of the forward pass that the backward pass computes again; dots: all but matrix products",
    )
    attention: AttentionKind = Field(
        AttentionKind.AUTO, description="kernel of the attention; auto: the best for the devices"
    )
    lora: LoRASection = LoRASection()

    @pydantic.model_validator(mode="after")
    def _shape_is_known(self) -> Self:
        if self.shape is None and self.path is None:
            raise ValueError("one of shape and path must be given")
        return self


class MeshSection(Section):
    """The layout of devices, which always has both axes."""

    fsdp: int = Field(-1, description="devices that share batch and parameters; -1: all that tp leaves")
    tp: Count = Field(1, description="devices that share each matrix product")

    @pydantic.field_validator("fsdp")
    @classmethod
    def _a_number_of_devices(cls, fsdp: int) -> int:
        if fsdp < 1 and fsdp != -1:
            raise ValueError("must be at least 1, or -1 for all devices that tp leaves")
        return fsdp


class TextSection(Section):
    """The words of an instance's prompt, and the room for its answer."""

    style: Annotated[Annotated[PromptStyle, Strict(False)] | Own, ours("the paper's prompt is not published")] = Field(
        PromptStyle.COORDINATES, description="the words of the prompt"
    )
    thinking: Annotated[bool, paper(True)] = Field(False, description="let the policy think before its plan")
    max_prompt_tokens: Count = Field(
        40, description="most tokens of a prompt; a longer one ends the run before it begins"
    )
    max_new_tokens: Annotated[Count, inferred(8192, "its base model's answers have up to 7,464 on average")] = Field(
        40, description="most tokens of an answer, which is cut off there"
    )
    max_thinking_tokens: Annotated[Count | None, ours("no cap is mentioned")] = Field(
        None,
        description="most tokens of a thought, a part of the answer's; the sampler ends a longer thought; null: no cap",
    )
    early_stop: Annotated[str | None, ours("none is mentioned")] = Field(
        None,
        description="words that the sampler adds where it ends a thought at its cap; null: none",
    )

    @property
    def thinking_cap(self) -> int | None:
        """Tokens after which the sampler ends the policy's thought; None without a cap or without thoughts."""
        return self.max_thinking_tokens if self.thinking else None


class SamplerSection(Section):
    """The generation of answers."""

    rows: Count = Field(192, description="answers generated at once, over all devices; others wait for a free row")


class LakeSection(Section):
    """The boards of the testbed."""

    kinds: Annotated[Kinds, paper((3, 4, 5, 6, 7, 8, 9, 10))] = Field(
        (3, 4, 5, 6),
        validate_default=True,
        description="kinds of boards to train on: sizes, or names with a family or agents such as rooms6 and 8x3",
    )
    objective: Annotated[Objective, Strict(False), inferred(Objective.SUM_OF_COSTS, "best supported reading")] = Field(
        Objective.SUM_OF_COSTS, description="cost that an optimal plan minimises"
    )


class PPOSection(Section):
    """The learning of a player by PPO (Schulman et al. 2017)."""

    epochs: Count = Field(4, description="passes over the steps of an update")
    minibatches: Count = Field(4, description="parts of a pass, an optimizer step each")
    learning_rate: Rate = Field(2e-3, description="learning rate of Adam")


class NetworkSection(Section):
    """The small network of student.actor = network: two hidden layers."""

    radius: Annotated[int, Field(ge=0)] = Field(2, description="cells that an agent sees around it")
    width: Count = Field(64, description="width of the hidden layers")


class TurnsSection(Section):
    """The moves of student.actor = language: the model of the section model reads a view and names a move."""

    tokens: bool = Field(
        True, description="a token of the vocabulary for each phrase of a view, added to it; false: the tokenizer's own"
    )
    chunk: Count = Field(128, description="decisions computed at once")


class StudentSection(Section):
    """The student, which learns in the rounds; engineers design for it."""

    kind: Annotated[StudentKind, paper(StudentKind.LANGUAGE)] = Field(
        StudentKind.LANGUAGE, description="language: the policy of the section model writes plans; player: see actor"
    )
    actor: ActorKind = Field(
        ActorKind.NETWORK, description="who plays the boards turn by turn: a small network, or the section model"
    )
    learner: LearnerKind = Field(
        LearnerKind.PPO, description="what trains a player: PPO, or GRPO by the section grpo, without a value"
    )
    episode_steps: Annotated[int, Field(ge=1, le=MAX_STEPS)] = Field(32, description="steps after which a play is over")
    environments: Count = Field(128, description="boards played at once")
    rollout_steps: Count = Field(
        32, description="steps of each board from one update to the next; GRPO plays what has begun by then to its end"
    )
    updates: Count = Field(6, description="updates a round")
    reward: PlayerReward | Own = Field(
        PlayerReward.SPARSE,
        description="reward of a move: sparse, 1 when all have arrived; cost, -1 a move before that; shaped, sparse "
        "and 0.1 for each cell nearer to the goal",
    )
    ppo: PPOSection = PPOSection()
    network: NetworkSection = NetworkSection()
    turns: TurnsSection = TurnsSection()


class ValidationSection(Section):
    """The fixed boards that the student answers greedily, and by sampling, before and after every stage."""

    instances: Annotated[Count, ours("size and composition are not published")] = Field(
        800, description="number of boards"
    )
    kinds: Kinds | None = Field(
        None, description="target kinds, with an equal share of the boards each; null: lake.kinds"
    )
    samples: Count = Field(4, description="sampled answers to each board, beside the greedy one")
    temperature: Temperature = Field(1.0, description="temperature of the sampled answers")
    top_k: TopK = 0
    top_p: TopP = 1.0
    holes: Annotated[Holes, inferred((0.1, 0.2, 0.3, 0.4, 0.5), "the benchmark's")] = (0.2, 0.3, 0.4)


class ApiSection(Section):
    """The server that engineer.kind = api asks. A resumed run may change these values."""

    url: str | None = Field(
        None, description="address of an OpenAI-compatible server, such as http://localhost:8000/v1"
    )
    model: str | None = Field(None, description="name of the model on the server")
    key_env: str = Field("OPENAI_API_KEY", description="environment variable that contains the key")
    omit: tuple[RequestField, ...] = Field(
        (), description="optional fields that requests leave out, as the server refuses them; its own defaults hold"
    )
    max_tokens: Count = Field(8192, description="most tokens of one answer with its thought, which may take thousands")


class EngineerSection(Section):
    """The engineer, which reads the evidence and writes the next configuration."""

    kind: Annotated[LanguageKind | BranchKind | RuleName | Own, paper(LanguageKind.CHECKPOINT)] = Field(
        LanguageKind.CHECKPOINT, description="kind of engineer; checkpoint: the policy with its current parameters"
    )
    context: Annotated[ContextName, paper("V6", "its best variant")] = Field(
        "V6", description="modules of the message: V1 to V6, V6-full, or a sum such as F+G+H+T+R"
    )
    model: str | None = Field(
        None, description="folder of the language model of engineer.kind = model; null: the shipped model"
    )
    branches: Annotated[int, Field(ge=2)] = Field(
        16, description="designs that engineer.kind = hindsight tries in each round"
    )
    template: str | None = Field(
        "terse",
        description="file with the words of the message; terse: hardly any, for taught models; null: full sentences",
    )
    api: ApiSection = ApiSection()
    temperature: Annotated[float, Field(ge=0)] = Field(
        0.6, description="temperature of the engineer's answers; 0: greedy"
    )
    top_k: TopK = 0
    top_p: TopP = 1.0
    max_prompt_tokens: Count = Field(72, description="most tokens of the message")
    max_thinking_tokens: Count = Field(
        48, description="most tokens of the engineer's thought; the sampler ends a longer one"
    )
    max_answer_tokens: Count = Field(64, description="most tokens of the configuration")
    attempts: Count = Field(3, description="answers without a configuration before the previous one stays in force")

    @pydantic.model_validator(mode="after")
    def _api_is_named(self) -> Self:
        if self.kind == LanguageKind.API and not (self.api.url and self.api.model):
            raise ValueError("kind = api needs engineer.api.url and engineer.api.model")
        if self.kind == LanguageKind.API and self.template == "terse":
            raise ValueError(
                "template = terse says nothing of the task, which a server does not know; set engineer.template=null"
            )
        return self


class CheckpointSection(Section):
    """Checkpoints: the steps between them, and the number that stays."""

    every_steps: Count = Field(20, description="steps from one checkpoint to the next")
    keep: Count = Field(2, description="number of latest checkpoints that stay")


class TrackingSection(Section):
    """Trackers of the metrics beside metrics.jsonl."""

    tensorboard: bool = Field(False, description="write TensorBoard events in the run's directory too (extra `track`)")
    wandb: WandbMode = Field(WandbMode.OFF, description="log to Weights & Biases (extra `track`)")


def _check_multiple(name: str, value: int, divisor: str, count: int, words: str = "") -> None:
    if value % count:
        raise ValueError(f"{name} = {value} must be a multiple of {divisor} = {words or count}")


class Config(Section):
    """The configuration of a run."""

    seed: Annotated[int, Field(ge=0, lt=2**31), ours("the paper gives none")] = Field(
        0, description="seed of every random draw of the run"
    )
    student: StudentSection = StudentSection()
    model: ModelSection = ModelSection()
    mesh: MeshSection = MeshSection()
    text: TextSection = TextSection()
    sampler: SamplerSection = SamplerSection()
    lake: LakeSection = LakeSection()
    warm_start: WarmStartSection = WarmStartSection()
    rounds: RoundsSection = RoundsSection()
    grpo: GRPOSection = GRPOSection()
    reward: RewardSection = RewardSection()
    validation: ValidationSection = ValidationSection()
    engineer: EngineerSection = EngineerSection()
    checkpoint: CheckpointSection = CheckpointSection()
    tracking: TrackingSection = TrackingSection()

    @pydantic.model_validator(mode="after")
    def _whole_batches(self) -> Self:
        if self.warm_start.batch > self.warm_start.instances * 0.99:
            raise ValueError(
                f"warm_start.batch = {self.warm_start.batch} is too large for warm_start.instances = "
                f"{self.warm_start.instances}"
            )
        count, each = self.validation.instances, len(self.target_kinds) * len(self.validation.holes)
        if count < each:
            raise ValueError(
                f"validation.instances = {count} must be at least {each}, a board of each of {len(self.target_kinds)} "
                f"kinds and {len(self.validation.holes)} hole ratios: evidence says nothing of a kind without boards"
            )
        if self.engineer.kind in (*SHUFFLED, LanguageKind.CHECKPOINT_RENAMED) and len(self.lake.kinds) < 2:
            raise ValueError(f"engineer.kind = {self.engineer.kind} needs at least two kinds in lake.kinds")
        if self.plays:
            return self
        if self.grpo.advantage is Advantage.FITTED:
            raise ValueError("grpo.advantage = fitted needs student.kind = player, whose moves see the board")
        _check_multiple("rounds.instances", self.rounds.instances, "grpo.prompts", self.grpo.prompts)
        _check_multiple("grpo.prompts", self.grpo.prompts, "grpo.minibatches", self.grpo.minibatches)
        return self

    @pydantic.model_validator(mode="after")
    def _plays_divide(self) -> Self:
        student, samples = self.student, self.grpo.samples
        if not self.plays:
            return self
        if self.by_ppo:
            steps, of = student.rollout_steps, "student.rollout_steps"
            parts, name = student.ppo.minibatches, "student.ppo.minibatches"
        else:
            if self.grpo.loss in (PolicyLoss.GSPO, PolicyLoss.GSPO_TOKEN):
                raise ValueError(f"grpo.loss = {self.grpo.loss} needs student.kind = language, which has whole answers")
            plays = f"{samples}, the plays of a board"
            _check_multiple("student.environments", student.environments, "grpo.samples", samples, plays)
            steps = student.rollout_steps + student.episode_steps - 1
            of = "(student.rollout_steps + student.episode_steps - 1)"
            parts, name = self.grpo.minibatches, "grpo.minibatches"
        _check_multiple(f"student.environments * {of}", student.environments * steps, name, parts)
        return self

    @pydantic.model_validator(mode="after")
    def _credit_is_known(self) -> Self:
        if self.plays or self.grpo.credit is Credit.OUTCOME:
            return self
        for name, value, must in (
            ("reward.kind", self.reward.kind, RewardKind.OPTIMAL),
            ("lake.objective", self.lake.objective, Objective.SUM_OF_COSTS),
            ("text.thinking", self.text.thinking, False),
        ):
            if value != must:
                raise ValueError(
                    f"{name} = {as_override(value)} must be {as_override(must)} with grpo.credit = exact; or set "
                    "grpo.credit=outcome"
                )
        return self

    @pydantic.model_validator(mode="after")
    def _student_can(self) -> Self:
        kind, first, steps = self.engineer.kind, self.warm_start.engineer_first, self.warm_start.steps
        if kind == BranchKind.HINDSIGHT and not self.plays:
            raise ValueError("engineer.kind = hindsight needs student.kind = player, which trains a branch in seconds")
        if kind in OWN and self.is_network:
            raise ValueError(
                f"engineer.kind = {kind} needs a student that writes, and a network writes nothing: set "
                "student.actor=language or student.kind=language; model, api and the rules design for any student"
            )
        if self.is_network and steps:
            raise ValueError(
                f"warm_start.steps = {steps} must be 0 with student.actor = network, which learns from nothing"
            )
        if self.plays and first < steps:
            raise ValueError(
                f"warm_start.engineer_first = {first} must be at least warm_start.steps = {steps} with student.kind = "
                "player, which is taught to design and learns no plans"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _everything_is_read(self) -> Self:
        chosen = self._chosen()
        for key in given(self):
            if not is_read(key, chosen):
                raise ValueError(f"nothing reads {key} with {' and '.join(chosen)}; {' or '.join(readers(key))} does")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _without_unread(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return read_by(handler(self), self._chosen())

    def _chosen(self) -> tuple[str, ...]:
        return choices({"student": dict(self.student)})

    @property
    def plays(self) -> bool:
        """Whether the student plays the boards turn by turn, and writes no plans."""
        return self.student.kind is StudentKind.PLAYER

    @property
    def by_ppo(self) -> bool:
        """Whether the student learns by PPO, and not by GRPO."""
        return self.plays and self.student.learner is LearnerKind.PPO

    @property
    def is_network(self) -> bool:
        """Whether the student is a small network, which writes nothing."""
        return self.plays and self.student.actor is ActorKind.NETWORK

    @property
    def target_kinds(self) -> tuple[Kind, ...]:
        """The kinds of boards that the run is validated on."""
        return self.validation.kinds or self.lake.kinds

    @property
    def all_kinds(self) -> tuple[Kind, ...]:
        """Every kind of boards that the run meets; their largest size and number of agents give its arrays' shapes."""
        return tuple(sorted({*self.lake.kinds, *self.target_kinds, *(self.warm_start.kinds or ())}))

    def to_yaml(self) -> str:
        """Return every value of the run, as YAML that `load` reads back to an equal configuration."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
