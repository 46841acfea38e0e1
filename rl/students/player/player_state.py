"""The states of players: all that a checkpoint holds of them, as what PPO trains.

A round of training is done or not: one that was broken off while its steps were logged is trained again, to the same
numbers, and the steps that are left are logged.
"""

import dataclasses

import jax
from flax import nnx

from rl.model import lora
from rl.run.checkpoint import Snapshot
from rl.run.progress import Progress
from rl.run.state import TrainState
from rl.students.player import network_actor, ppo


@dataclasses.dataclass
class NetworkState:
    """All that a checkpoint holds of a run of a network.

    Attributes:
      learner: the network and its optimizer, one lane.
      progress: the run's position.
    """

    learner: ppo.Learner
    progress: Progress

    def __str__(self) -> str:
        return f"round {self.progress.round}, after step {self.progress.step}"

    @property
    def parameters(self) -> network_actor.Parameters:
        """The network's weights and biases, one lane."""
        return self.learner.parameters

    def snapshot(self) -> Snapshot:
        """Return the content of a checkpoint."""
        arrays = {"parameters": self.learner.parameters, "optimizer": self.learner.optimizer}
        return Snapshot(self.progress, arrays)


class LanguageState(TrainState):
    """A `TrainState` with a value head, as what PPO trains."""

    value: dict[str, jax.Array]

    @property
    def learner(self) -> ppo.Learner:
        """What PPO trains, one lane; in the rounds."""
        parameters = {"model": lora.split(self.parameters)[0], "value": self.value}
        return jax.tree.map(lambda x: x[None], ppo.Learner(parameters=parameters, optimizer=self.optimizer_state))

    @learner.setter
    def learner(self, learner: ppo.Learner) -> None:
        alone = ppo.lane(learner, 0)
        self.parameters = nnx.merge_state(alone.parameters["model"], lora.split(self.parameters)[1])
        self.value, self.optimizer_state = alone.parameters["value"], alone.optimizer
