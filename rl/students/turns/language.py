"""The language model that plays: it reads a view as a prompt, and its next token is the move; and it as a student.

The same parameters write as an engineer.
"""

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from jaxlake import view
from jaxlake.arguments import seed_key
from jaxlake.record import Array
from jaxlake.types import Instance
from rl.config import Config, ConfigError, PlayerSection, PlaySection
from rl.learn.state import TrainState, restore
from rl.model import lora, sharding
from rl.model.decoder import Decoder, abstract, token_positions
from rl.model.policy import Policy, abstract_model
from rl.model.tokenizer import check_fit
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.tracking import Display
from rl.students.base import Program
from rl.students.turns.actor import lane, lanes, log_probabilities
from rl.students.turns.rollout import Boards
from rl.students.turns.student import Player, PlayerStudent, make_trainer
from rl.students.turns.trainer import Learner, TurnTrainer
from rl.students.turns.views import MOVES, Prompt, in_words, properties
from rl.students.writer.student import Writer, abstract_reference


@dataclasses.dataclass(frozen=True)
class LanguageActor:
    """An `rl.students.turns.actor.Actor`: a language model, and a linear value of its last hidden state.

    Its parameters are ``model``, the trained part of the model's, and ``value``, weight ``w`` and bias ``b``.

    Attributes:
      graph: the model's static half.
      prompt: the tokens of views and moves.
      chunk: number of decisions that are computed at once.
      first: first row of the embedding that is a phrase's; None where phrases are in the tokenizer's own words.
      observe: the view of an agent, in numbers of phrases.
    """

    graph: nnx.GraphDef[Decoder]
    prompt: Prompt
    chunk: int
    first: int | None
    episode_steps: int
    observe: view.View = view.View()

    def forward(self, parameters: Any, frozen: nnx.State, views: Array, legal: Array) -> tuple[Array, Array]:
        """Return log-probabilities ``[n, 5]`` of the moves and values ``[n]``; see `Actor`."""
        model = nnx.merge(self.graph, nnx.merge_state(parameters["model"], frozen))
        tokens, valid = self.prompt.tokens(views)
        hidden = model(tokens, token_positions(valid), valid)
        if self.prompt.padded:
            hidden = jnp.take_along_axis(hidden, jnp.sum(valid, axis=1)[:, None, None] - 1, axis=1)
        hidden = hidden[:, -1].astype(jnp.float32)
        moves = model.head[np.array(self.prompt.moves)].astype(jnp.float32)
        value = jnp.zeros(len(hidden))
        if "value" in parameters:
            value = hidden @ parameters["value"]["w"] + parameters["value"]["b"]
        return log_probabilities(hidden @ moves.T, legal), value

    def features(self, views: Array) -> jax.Array:
        """Return 1 for each phrase that a view has, 0 for the others."""
        parts = [jax.nn.one_hot(views[..., i], len(part)) for i, part in enumerate(view.phrases())]
        return jnp.concatenate(parts, axis=-1)

    def adapt(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """Return the optimizer as it is, but phrases of the vocabulary learn by their properties."""
        return optimizer if self.first is None else _by_properties(optimizer, self.first)


def _by_properties(inner: optax.GradientTransformation, first: int) -> optax.GradientTransformation:
    """Return an optimizer of the rows from `first` on as sums of their properties' vectors.

    The rows themselves are what is kept, so that a checkpoint is an ordinary model.
    """
    table, _ = properties()

    def rows_of(tree: Any) -> jax.Array:
        return tree["model"]["embed_tokens"]["weight"][...]

    def with_rows(tree: Any, rows: jax.Array) -> Any:
        weight = tree["model"]["embed_tokens"]["weight"].replace(rows)
        return tree | {"model": nnx.merge_state(tree["model"], nnx.State({"embed_tokens": {"weight": weight}}))}

    def split(tree: Any) -> Any:
        rows = rows_of(tree)
        return with_rows(tree, rows[:first]) | {"properties": table.T @ rows[first : first + len(table)]}

    def update(gradient: Any, state: optax.OptState, parameters: Any) -> tuple[Any, optax.OptState]:
        updates, state = inner.update(split(gradient), state, split(parameters))
        rows = jnp.concatenate([rows_of(updates), table @ updates.pop("properties")])
        return with_rows(updates, jnp.pad(rows, ((0, len(rows_of(gradient)) - len(rows)), (0, 0)))), state

    return optax.GradientTransformation(lambda parameters: inner.init(split(parameters)), update)


def make_actor(
    policy: Policy, student: PlayerSection, parameters: nnx.State, key: jax.Array | None
) -> tuple[LanguageActor, Policy, nnx.State]:
    """Return the actor, and policy and parameters with a token for each phrase if the settings ask for such.

    Args:
      key: key of the new rows of the embedding; None for a model that has played, which has them.
    """
    tokenizer, chunk, steps = policy.tokenizer, student.chunk, student.episode_steps
    if not student.tokens:
        prompt = in_words(tokenizer)
        check_fit([(0,) * prompt.length], student.max_prompt_tokens, "student.max_prompt_tokens")
        return LanguageActor(policy.graph, prompt, chunk, None, steps), policy, parameters
    if policy.shape.lora is not None:
        raise ConfigError(
            "student.tokens = true: must be false with adapters, which leave the embedding of new tokens as it is"
        )
    words = [*itertools.chain(*view.phrases()), *MOVES]
    missing = [token for token in words if tokenizer.id_of(token) is None]
    if missing and (key is None or len(missing) < len(words)):
        raise ConfigError(
            f"{tokenizer.folder}: must hold a model that played the views of this version; its tokenizer lacks "
            f"{missing[0]!r}"
        )
    if missing:
        assert key is not None
        tokenizer = tokenizer.with_tokens(missing)
        policy, parameters = _grow(dataclasses.replace(policy, tokenizer=tokenizer), parameters, len(missing), key)
    ids = {token: tokenizer.id_of(token) for token in words}
    prompt = Prompt(
        before=(),
        parts=tuple(tuple((ids[phrase],) for phrase in part) for part in view.phrases()),  # type: ignore[misc]
        after=(),
        moves=tuple(ids[move] for move in MOVES),  # type: ignore[misc]
    )
    return LanguageActor(policy.graph, prompt, chunk, ids[words[0]], steps), policy, parameters


def _grow(policy: Policy, parameters: nnx.State, count: int, key: jax.Array) -> tuple[Policy, nnx.State]:
    """Return policy and parameters with the rows of `count` new tokens, the last ones of the tokenizer."""
    first = len(policy.tokenizer) - count
    size = max(policy.shape.vocab_size, first + count)
    shape = dataclasses.replace(policy.shape, vocab_size=size)
    graph, shapes = abstract(shape, policy.mesh)
    table, scales = properties()

    def extend(path: tuple[Any, ...], old: nnx.Variable, new: nnx.Variable) -> nnx.Variable:
        if path[0] not in ("embed_tokens", "lm_head"):
            return old
        rows = old[...]
        spread = scales[:, None] * jnp.sqrt(jnp.mean(rows[:first].astype(jnp.float32) ** 2))
        fresh = table @ (spread * jax.random.normal(key, (len(scales), rows.shape[1]), jnp.float32))
        rows = jnp.concatenate([rows[:first], fresh.astype(rows.dtype)])
        rows = jnp.pad(rows, ((0, size - len(rows)), (0, 0)))
        return old.replace(jax.device_put(rows, new.sharding))

    flat, wanted = nnx.to_flat_state(parameters), dict(nnx.to_flat_state(shapes))
    grown = nnx.from_flat_state([(path, extend(path, variable, wanted[path])) for path, variable in flat])
    return dataclasses.replace(policy, graph=graph, shape=shape), grown


def first_value(student: PlaySection, width: int) -> dict[str, jax.Array] | None:
    """Return the value head of a player that has not begun: zeros; None where no value is learned."""
    if student.learn.baseline != "value":
        return None
    return {"w": jnp.zeros(width, jnp.float32), "b": jnp.zeros((), jnp.float32)}


class LanguageState(TrainState):
    """A `TrainState` as a `Learner`, with a value head where one is learned."""

    @property
    def learner(self) -> Learner:
        """What is trained, one lane; in the rounds."""
        parameters = tree_of(lora.split(self.parameters)[0], self.value)
        return jax.tree.map(lambda x: x[None], Learner(parameters=parameters, optimizer=self.optimizer_state))

    @learner.setter
    def learner(self, learner: Learner) -> None:
        alone = lane(learner, 0)
        self.parameters = nnx.merge_state(alone.parameters["model"], lora.split(self.parameters)[1])
        self.value, self.optimizer_state = alone.parameters.get("value"), alone.optimizer


def tree_of(trained: nnx.State, value: dict[str, jax.Array] | None) -> dict[str, Any]:
    """Return an actor's parameters: what is trained of the model's, and the value head if there is one."""
    return {"model": trained} if value is None else {"model": trained, "value": value}


class LanguagePlayer(PlayerStudent, Writer):
    """A player whose actor is the model of the section `model`; the same parameters write as an engineer."""

    state: LanguageState
    who = "the model itself, which plays the boards turn by turn"

    def __init__(self, config: Config):
        super().__init__(config)
        student, key = config.player, make_key(config.seed, Purpose.PARAMETERS)
        policy, parameters = Policy.create(student, config.mesh, key)
        actor, self.policy, self._parameters = make_actor(policy, student, parameters, jax.random.fold_in(key, 1))
        self.trainer = make_trainer(actor, student, config.rounds.count)
        value = first_value(student, self.policy.shape.hidden_size)
        self._first_value = jax.device_put(value, sharding.shardings(value, self.policy.mesh))
        self.description = f"{self.policy.describe(self._parameters)}, which plays turn by turn: {self.name}"

    @staticmethod
    def programs(config: Config, mesh: Mesh) -> list[Program]:
        """Return the update of a run, in which a view takes all of `student.max_prompt_tokens`."""
        student, kinds, count = config.player, config.all_kinds, config.rounds.instances
        shape, graph, parameters = abstract_model(student.model, mesh)
        trained, frozen = lora.split(parameters)
        # Programs depend on the number of a view's tokens alone.
        parts = len(view.phrases())
        prompt = Prompt((0,) * (student.max_prompt_tokens - parts), (((0,),),) * parts, (), (0,) * len(MOVES))
        actor = LanguageActor(graph, prompt, student.chunk, None, student.episode_steps)
        trainer = make_trainer(actor, student, config.rounds.count)
        tree = tree_of(trained, jax.eval_shape(lambda: first_value(student, shape.hidden_size)))
        learner = jax.eval_shape(lambda x: lanes([Learner(parameters=x, optimizer=trainer.optimizer.init(x))]), tree)
        reference = abstract_reference(config, trained, shape.dtype, mesh)
        reference = None if reference is None else {"model": reference}
        side, agents = max(kind.size for kind in kinds), max(kind.num_agents for kind in kinds)
        number, cells = np.zeros((1, count), np.int32), np.zeros((1, count, agents), np.int32)
        holes = np.zeros((1, count, side**2), bool)
        levels = Instance(size=number, num_agents=number, holes=holes, starts=cells, goals=cells)
        boards = jax.eval_shape(functools.partial(Boards.of_lanes, reward=student.reward), levels, number)
        boards = sharding.abstract(boards, mesh)
        keys, playing = jax.random.split(seed_key(0), 1), None
        if trainer.continues:
            playing = sharding.abstract(jax.eval_shape(trainer.begin, boards, keys), mesh)
        against, beside = (reference, None) if student.learn.kl_coefficient > 0 else (None, reference)
        arguments = frozen, against, sharding.abstract(learner, mesh), playing, boards
        update = functools.partial(TurnTrainer.update.lower, trainer, *arguments, keys)
        return [Program("update", update, arguments, beside)]

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint, or the first one; draw the boards of the validations."""
        self.frozen, value = lora.split(self._parameters)[1], self._first_value
        restored = restore(self.policy, self._parameters, self.first_optimizer_state, directory, display, value)
        self.state = LanguageState(**vars(restored))
        del self._parameters
        self.draw_validation(directory, display)

    def rounds_learner(self, trained: nnx.State) -> tuple[optax.GradientTransformation, dict[str, Any]]:
        """Return the optimizer of the rounds, and the first parameters of the actor."""
        return self.trainer.optimizer, tree_of(trained, self._first_value)

    @property
    def reference(self) -> dict[str, Any] | None:
        """The model at the start of the rounds, where the run keeps it."""
        return None if self.state.reference is None else tree_of(self.state.reference, None)


def load_player(config: Config, folder: Path) -> Player:
    """Read what a `LanguagePlayer` of this configuration saved."""
    policy, model = Policy.load(config.player, config.mesh, folder, make_key(config.seed, Purpose.PARAMETERS))
    actor, policy, model = make_actor(policy, config.player, model, key=None)
    trained, frozen = lora.split(model)
    return Player(actor, config.player.environments, frozen, lanes([tree_of(trained, None)]), policy.identity)
