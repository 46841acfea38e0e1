"""The policy as the loop sees it: instances in, answers and plans out; the caller says which parameters answer."""

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxlake import text
from jaxlake.record import Array
from jaxlake.types import MAX_STEPS, Instance, Plan
from rl import distributed
from rl.config import (
    ConfigError,
    EngineerSection,
    MeshSection,
    ModelSection,
    PlayerSection,
    RunError,
    Section,
    TextSection,
    WriterSection,
    extensions,
)
from rl.model import lora, presets, weights
from rl.model.decoder import Decoder, DecoderConfig, abstract, create
from rl.model.sampler import Rollout, Sampler, ThinkingBudget
from rl.model.sampler.grammar import GrammarSampler
from rl.model.sampler.thinking import closing
from rl.model.sharding import fingerprint, for_rollout, make_mesh
from rl.model.tokenizer import TINY_TOKENIZER, Tokenizer, check_fit

StudentT = TypeVar("StudentT", bound=Section)

SHIPPED_MODEL = Path(__file__).parents[1] / "tiny_engineer"
"""Folder of a small language model that reads evidence, which `configs/tiny-engineer.yaml` says how to make."""


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Instances put to the model: numpy arrays ``[n, ...]``, and the tokens of each, of any length."""

    instances: Instance
    tokens: list[list[int]]

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: np.ndarray | slice) -> "Prompts":
        """Return the prompts at `rows`, in that order."""
        indices = np.arange(len(self))[rows]
        return Prompts(self.instances[indices], [self.tokens[i] for i in indices])


@dataclasses.dataclass(frozen=True)
class Policy:
    """The static half of the model with its tokenizer, its text format and the mesh it runs on.

    Attributes:
      text: the words for boards, and the room for prompts and answers.
      rows: answers in the sampler at once, on all devices together.
      early_stop: words that the sampler adds where it ends a thought at its cap.
      base_model: path or name of the checkpoint with the first parameters; None if they were drawn.
    """

    graph: nnx.GraphDef[Decoder]
    shape: DecoderConfig
    tokenizer: Tokenizer
    mesh: Mesh
    text: TextSection
    rows: int
    early_stop: str | None = None
    base_model: str | None = None

    @classmethod
    def create(
        cls, student: WriterSection | PlayerSection, layout: MeshSection, seed_key: jax.Array
    ) -> tuple["Policy", nnx.State]:
        """Return the policy and its first parameters: a checkpoint's, or random ones drawn by `seed_key`.

        The checkpoint is `model.path`'s, or without one the shipped model's where `model.shape` is its name.
        """
        mesh, settings, words = make_mesh(layout.fsdp, layout.tp), student.model, student.text
        folder = SHIPPED_MODEL if settings.shape == "tiny" else None
        if settings.path is not None:
            folder = weights.resolve(settings.path)
        shape, tokenizer = shape_of(settings, folder), Tokenizer(folder or TINY_TOKENIZER)
        if len(tokenizer) > shape.vocab_size:
            raise ConfigError(
                f"{tokenizer.folder}: the embedding has {shape.vocab_size} rows, and the tokenizer {len(tokenizer)} "
                "tokens, which must not be more"
            )
        if words.thinking and tokenizer.end_think_id is None:
            raise ConfigError(
                f"student.text.thinking = true: must be false, as {tokenizer.folder} has no token </think>"
            )
        if folder is None:
            graph, parameters = create(shape, seed_key, mesh)
        else:
            graph, parameters = weights.load(folder, shape, mesh, seed_key)
        base = settings.path or (None if folder is None else str(folder))
        policy = cls(graph, shape, tokenizer, mesh, words, student.sampler.rows, settings.early_stop, base)
        if not distributed.is_same(json.dumps(policy.identity | policy.revision)):
            raise ConfigError(f"student.model.path = {base}: must be the same model on all processes of this job")
        return policy, parameters

    @classmethod
    def load(
        cls, student: WriterSection | PlayerSection, layout: MeshSection, folder: Path | str, seed_key: jax.Array
    ) -> tuple["Policy", nnx.State]:
        """Load the policy from a folder that `save` wrote, or from any checkpoint's where the student has no adapters.

        With adapters it is what was trained, the base of `model` and they beside it, and not their rounded merge. Of a
        hub's model it is the revision that they were trained from.

        Args:
          student: the student's settings in the run that `folder` is from; its model is loaded from there.
          layout: the mesh's settings.
          folder: a checkpoint, or an id of the Hugging Face hub.
          seed_key: the key by which the run drew its first parameters.
        """
        if student.model.lora.rank:
            adapters = Path(folder) / "adapters"
            policy, parameters = cls.create(pin(student, lora.read_source(adapters)), layout, seed_key)
            return policy, lora.load(adapters, parameters, policy.source(parameters))
        model = student.model.model_copy(update={"path": str(folder), "shape": None})
        return cls.create(student.model_copy(update={"model": model}), layout, seed_key)

    def prompts(self, instances: Instance) -> Prompts:
        """Write and tokenize the user message of each instance ``[n]``, within `text.max_prompt_tokens`."""
        prompts = self.unbounded_prompts(instances)
        check_fit(prompts.tokens, self.text.max_prompt_tokens, "student.text.max_prompt_tokens")
        return prompts

    def unbounded_prompts(self, instances: Instance) -> Prompts:
        """Write and tokenize the user message of each instance ``[n]``, however long it is; see `prompts`."""
        if not self.text.thinking:
            self.tokenizer.check_answers_at_once("student.text.thinking")
        instances, write = jax.tree.map(np.asarray, instances), writer(self.text)
        messages = [write(instances[i]) for i in range(len(instances.size))]
        return Prompts(instances, [self.tokenizer.chat(message, thinking=self.text.thinking) for message in messages])

    def describe(self, parameters: nnx.State) -> str:
        """Return a line for the user: how large the policy is, how much of it is trained, and what it runs on."""
        devices, trained = self.mesh.devices, lora.split(parameters)[0]
        count, part = (sum(x.size for x in jax.tree.leaves(tree)) for tree in (parameters, trained))
        name = presets.family_of(self.shape).capitalize()
        of_them = "" if part == count else f", {part / 1e6:.2f} M of them trained,"
        return f"{name} with {count / 1e6:.2f} M parameters{of_them} on {devices.size} x {devices.flat[0].device_kind}"

    def rollout_parameters(self, parameters: nnx.State) -> nnx.State:
        """Return the parameters for the samplers: cast to the compute dtype, whole on every row of the mesh."""
        return for_rollout(parameters, self.shape.dtype, self.mesh)

    @functools.cached_property
    def sampler(self) -> Sampler:
        """The sampler of answers to boards."""
        settings, tokenizer, thinking = self.text, self.tokenizer, None
        if (cap := settings.thinking_cap) is not None:
            end = tuple(closing(tokenizer, self.early_stop))
            if cap + len(end) >= settings.max_new_tokens:
                raise ConfigError(
                    f"student.text.max_thinking_tokens = {cap} must be below {settings.max_new_tokens - len(end)}, "
                    "max_new_tokens less those that close a thought"
                )
            open_id = None if tokenizer.opened(thinking=True) else tokenizer.id_of("<think>")
            assert tokenizer.end_think_id is not None  # as `create` makes sure
            thinking = ThinkingBudget(cap, end, open_id, tokenizer.end_think_id)
        return Sampler(
            graph=self.graph,
            config=self.shape,
            mesh=self.mesh,
            rows=self.rows,
            max_prompt_tokens=settings.max_prompt_tokens,
            max_new_tokens=settings.max_new_tokens,
            stop_ids=tokenizer.stop_ids,
            thinking=thinking,
        )

    def read(self, instances: Instance, rollout: Rollout) -> Plan:
        """Return the plans ``[B]`` that answers to these instances tell, with room for ``MAX_STEPS``."""
        return text.parse_batch(
            self.texts(rollout.tokens, rollout.mask),
            max_size=instances.max_size,
            max_agents=instances.max_agents,
            max_steps=MAX_STEPS,
        )

    def texts(self, tokens: Array, mask: Array) -> list[str]:
        """Return the texts of answers ``[B, T]``, each with the tag of a thought that its prompt has begun.

        Without it a thought that is cut off would read as an answer, and a plan that it only considers would count.
        """
        opened = self.tokenizer.opened(thinking=self.text.thinking)
        return [opened + self.tokenizer.decode(row[keep].tolist()) for row, keep in zip(tokens, mask, strict=True)]

    def grammar_sampler(self, settings: EngineerSection) -> GrammarSampler:
        """Return the sampler that writes the next configuration: it thinks first, then a grammar holds it."""
        return GrammarSampler(self.sampler, self.tokenizer, settings, self.early_stop)

    @property
    def identity(self) -> dict[str, str]:
        """What the model's numbers depend on beside its parameters and the settings.

        That is a digest of the ``tokenizer``, and the fields of config.json, such as ``rope_theta``.
        """
        settings = ("dtype", "remat", "lora")
        fields = {name: str(value) for name, value in vars(self.shape).items() if name not in settings}
        return {"tokenizer": self.tokenizer.digest} | fields

    @property
    def revision(self) -> dict[str, str]:
        """The commit of a model of the Hugging Face hub, as ``revision``; of any other model nothing."""
        folder = self.tokenizer.folder
        return {"revision": folder.name} if folder.parent.name == "snapshots" else {}  # of the hub's cache

    def source(self, parameters: nnx.State) -> dict[str, str]:
        """Return what trained parameters stand on and no checkpoint holds.

        That is `identity` and, under adapters, their rank and alpha and a digest of the ``base``, which must stay what
        they are, and `revision`. The digest reads each number of the base where it lies: some 5 s a billion on a CPU.
        """
        if self.shape.lora is None:
            return self.identity | self.revision
        adapters = {"lora": str(self.shape.lora), "base": fingerprint(lora.split(parameters)[1])}
        return self.identity | self.revision | adapters

    def save(self, folder: Path, parameters: nnx.State) -> None:
        """Write model and tokenizer as a Hugging Face folder; every process of a job calls this.

        Adapters are merged into the model, and written for themselves, in PEFT's format, to `adapters` in that folder:
        merged into a base in bfloat16 they are rounded. `load` reads what was trained.
        """
        if self.shape.lora is None:
            shape = self.shape
        else:
            base = self.base_model.partition("@")[0] if self.base_model and self.revision else self.base_model
            lora.save(folder / "adapters", self.shape.lora, parameters, base, self.source(parameters))
            shape, parameters = dataclasses.replace(self.shape, lora=None), lora.merge(parameters, self.shape.lora)
        weights.save(folder, shape, parameters, self.tokenizer, dtype=shape.dtype)


def pin(student: StudentT, source: Mapping[str, str]) -> StudentT:
    """Return a student's settings with the revision of the hub's model that a source names, see `Policy.source`."""
    model = getattr(student, "model", None)  # a network has none
    if model is None or model.path is None or "revision" not in source:
        return student
    path = at_revision(model.path, source["revision"])
    return student.model_copy(update={"model": model.model_copy(update={"path": path})})


def at_revision(path: str, revision: str) -> str:
    """Return the id of a model of the hub at a revision; a folder, which may be in the hub's cache, as it is."""
    return path if Path(path).expanduser().is_dir() else f"{path.partition('@')[0]}@{revision}"


def abstract_model(settings: ModelSection, mesh: Mesh) -> tuple[DecoderConfig, nnx.GraphDef[Decoder], nnx.State]:
    """Return the shape of a run's model and its two halves without numbers, see `rl.model.decoder.abstract`.

    A checkpoint is looked for only where it alone gives the shape.
    """
    shape = shape_of(settings, weights.resolve(settings.path) if settings.path and settings.shape is None else None)
    return shape, *abstract(shape, mesh)


def shape_of(settings: ModelSection, folder: Path | None) -> DecoderConfig:
    """Return `model.shape`, computed as the settings say; where it is null, that of the checkpoint in `folder`."""
    where = settings.shape or folder
    assert where is not None  # the settings' own check: one of shape and path is given
    shape = presets.shape_of(where)
    if settings.shape and settings.path and folder and shape != presets.read_config(folder):
        raise ConfigError(
            f"student.model.shape = {settings.shape}: must be that of path = {settings.path}; null takes its own"
        )
    adapters = settings.lora if settings.lora.rank else None
    return dataclasses.replace(shape, dtype=jnp.dtype(settings.dtype), remat=settings.remat, lora=adapters)


def writer(settings: TextSection) -> Callable[[Instance], str]:
    """Return how an instance is put into words: by a style of `jaxlake.text`, or by a function of the user's own."""
    if isinstance(settings.style, text.PromptStyle):
        return functools.partial(text.prompt, style=settings.style)
    own = extensions.find("student.text.style", settings.style)

    def write(instance: Instance) -> str:
        message = own(instance)
        if not isinstance(message, str):  # which a chat template would write as "None"
            raise RunError(f"student.text.style = {settings.style}: must return a str, not {type(message).__name__}")
        return message

    return write
