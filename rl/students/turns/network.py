"""The network that plays: two hidden layers for all agents, which see a window of cells; and it as a student."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxlake import observations
from jaxlake.record import Array
from jaxlake.state import State
from jaxlake.types import ABSENT, MAX_AGENTS, MAX_SIZE, Action
from rl.config import Config, NetworkSection
from rl.run.checkpoint import Snapshot
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.tracking import Display
from rl.students.turns.actor import lane, lanes, log_probabilities
from rl.students.turns.student import Player, PlayerStudent, make_trainer
from rl.students.turns.trainer import Learner

Parameters = dict[str, dict[str, Array]]
"""Weights ``w`` and biases ``b`` of the layers ``hidden_1``, ``hidden_2`` and ``heads``, float32.

The heads are the actions' logits and, last, the value, in one product: apart they took half as long again (12.9 ms
against 8.3 for the gradient of 1,024 steps).
"""


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """Observation of a window of cells, and of where the agent's goal lies; nothing tells the way around holes.

    A pair: int8 ``[max_agents, cells]``, the four channels of ``observations.window``; and float32 ``[max_agents, 8]``,
    the rows and columns to the goal in sides of the largest board and their signs, whether the agent has arrived, the
    board's size, the number of agents, and the share of the episode that is over. 0 for absent agents.

    ``flatten`` makes one vector of the two. That is not done here: within a loop over steps it keeps XLA from
    vectorising the window (38 ms against 17 for 32 steps of 128 boards).

    Attributes:
      radius: the window's, in cells.
      episode_steps: length of an episode.
    """

    radius: int
    episode_steps: int

    def __call__(self, state: State) -> tuple[jax.Array, jax.Array]:
        instance, positions = state.instance, state.positions
        side, agents = instance.max_size, instance.max_agents
        window = observations.window(self.radius)(state).reshape(agents, -1)
        to_goal = jnp.stack(jnp.divmod(instance.goals, side)) - jnp.stack(jnp.divmod(positions, side))
        # In constants of all boards and not the arrays' own, so that a network plays boards of any padding.
        board = jnp.stack([instance.size / MAX_SIZE, instance.num_agents / MAX_AGENTS, state.time / self.episode_steps])
        features = [
            to_goal.T / MAX_SIZE,
            jnp.sign(to_goal.T).astype(jnp.float32),
            (positions == instance.goals)[:, None].astype(jnp.float32),
            jnp.broadcast_to(board.astype(jnp.float32), (agents, 3)),
        ]
        return window, jnp.where((positions != ABSENT)[:, None], jnp.concatenate(features, axis=1), 0.0)

    @property
    def features(self) -> int:
        """Length of what ``flatten`` makes of an agent's observation."""
        return 4 * (2 * self.radius + 1) ** 2 + 8


def flatten(observation: tuple[Array, Array]) -> jax.Array:
    """Return float32 ``[..., features]``: the window as zeros and ones, and the eight numbers."""
    window, numbers = observation
    return jnp.concatenate([(window > 0).astype(jnp.float32), numbers], axis=-1)


@dataclasses.dataclass(frozen=True)
class NetworkActor:
    """An `rl.students.turns.actor.Actor`: an MLP.

    Attributes:
      radius: cells that an agent sees around it.
      width: width of the hidden layers.
      episode_steps: length of an episode.
    """

    radius: int
    width: int
    episode_steps: int
    chunk: ClassVar[int] = 8192
    features = staticmethod(flatten)

    @classmethod
    def of(cls, student: NetworkSection) -> "NetworkActor":
        """Return the actor of a configuration."""
        return cls(student.radius, student.width, student.episode_steps)

    @property
    def observe(self) -> Surroundings:
        """The view of an agent."""
        return Surroundings(self.radius, self.episode_steps)

    def adapt(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """Return the optimizer as it is."""
        return optimizer

    def forward(
        self, parameters: Parameters, frozen: None, view: tuple[Array, Array], legal: Array
    ) -> tuple[Array, Array]:
        """Return log-probabilities ``[n, 5]`` of the actions and values ``[n]``; see `Actor`."""
        hidden = flatten(view)
        for name in ("hidden_1", "hidden_2"):
            hidden = jnp.tanh(hidden @ parameters[name]["w"] + parameters[name]["b"])
        heads = hidden @ parameters["heads"]["w"] + parameters["heads"]["b"]
        return log_probabilities(heads[..., :-1], legal), heads[..., -1]


@functools.partial(jax.jit, static_argnums=(0, 1))
def begin(actor: NetworkActor, optimizer: optax.GradientTransformation, keys: Array) -> Learner:
    """Return fresh networks, one for each key ``[lanes]``: orthogonal matrices, a nearly uniform policy."""

    def one(key: Array) -> Learner:
        width, features = actor.width, actor.observe.features
        shapes = [(features, width, 2**0.5), (width, width, 2**0.5), (width, len(Action), 0.01), (width, 1, 1.0)]
        hidden_1, hidden_2, policy, value = (
            jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, number), (inputs, outputs), jnp.float32)
            for number, (inputs, outputs, scale) in enumerate(shapes)
        )
        layers = {"hidden_1": hidden_1, "hidden_2": hidden_2, "heads": jnp.concatenate([policy, value], axis=1)}
        parameters: Parameters = {
            name: {"w": matrix, "b": jnp.zeros(matrix.shape[1], jnp.float32)} for name, matrix in layers.items()
        }
        return Learner(parameters=parameters, optimizer=optimizer.init(parameters))

    return jax.vmap(one)(keys)


def save(folder: Path, actor: NetworkActor, parameters: Parameters) -> None:
    """Write ``network.npz``, weights and biases by layer, and ``network.json``, the fields of a `NetworkActor`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "network.npz").open("wb") as file:
        arrays = {f"{layer}.{name}": np.asarray(x) for layer, part in parameters.items() for name, x in part.items()}
        np.savez(file, **arrays)  # type: ignore[arg-type]
    (folder / "network.json").write_text(json.dumps(dataclasses.asdict(actor), indent=1) + "\n", encoding="utf-8")


@dataclasses.dataclass
class NetworkState:
    """All that a checkpoint holds of a run of a network.

    Attributes:
      learner: the network and its optimizer, one lane.
      progress: the run's position.
    """

    learner: Learner
    progress: Progress

    @property
    def parameters(self) -> Parameters:
        """The network's weights and biases, one lane."""
        return self.learner.parameters

    def snapshot(self) -> Snapshot:
        """Return the content of a checkpoint."""
        return Snapshot(self.progress, vars(self.learner))


class NetworkPlayer(PlayerStudent):
    """A player whose actor is a small network."""

    state: NetworkState
    who = "a network that plays the boards"

    def __init__(self, config: Config):
        super().__init__(config)
        assert isinstance(config.student, NetworkSection)
        self.actor = NetworkActor.of(config.student)
        self.trainer = make_trainer(self.actor, config.student, config.rounds.count)
        self._first = begin(self.actor, self.trainer.optimizer, make_key(config.seed, Purpose.PARAMETERS)[None])
        count = sum(x.size for x in jax.tree.leaves(self._first.parameters))
        self.description = f"Network with {count:,} parameters, {self.name} on {jax.devices()[0].device_kind}"

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint, or a fresh network; draw the boards of the validations."""
        snapshot = directory.checkpoints.restore(lambda _: jax.eval_shape(lambda: vars(self._first)), display.say)
        self.state = NetworkState(self._first, Progress())
        if snapshot is not None:
            self.state = NetworkState(Learner(**snapshot.arrays), snapshot.progress)
        self.draw_validation(directory, display)

    @property
    def reference(self) -> Parameters:
        """The fresh network, which follows from the seed."""
        return lane(self._first.parameters, 0)

    def save(self, folder: Path) -> None:
        """Write ``network.npz`` and ``network.json``."""
        save(folder, self.actor, lane(self.state.learner.parameters, 0))


def load_player(config: Config, folder: Path) -> Player:
    """Read what a `NetworkPlayer` saved."""
    assert isinstance(config.student, NetworkSection)
    actor, parameters = NetworkActor(**json.loads((folder / "network.json").read_text(encoding="utf-8"))), Parameters()
    with np.load(folder / "network.npz") as file:
        for name, array in file.items():
            layer, part = name.split(".")
            parameters.setdefault(layer, {})[part] = jnp.asarray(array)
    return Player(actor, config.student.environments, None, lanes([parameters]))
