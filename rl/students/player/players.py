"""The two players: a small network, and a language model that also designs its own environments."""

import functools
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh

from engineer.evidence import TrainingEvidence
from jaxlake.arguments import seed_key
from jaxlake.config import LakeConfig
from jaxlake.generate import Dataset
from jaxlake.types import Instance
from rl.config import Config, ConfigError
from rl.judge.validation import validate
from rl.learn import grpo, sft
from rl.learn.grpo.optimizer import make_optimizer
from rl.model import lora, sharding
from rl.model.policy import Policy, abstract_model
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.progress import Progress
from rl.run.recorder import Recorder
from rl.run.state import restore
from rl.run.tracking import Display
from rl.students.base import Program
from rl.students.player import language_actor, network_actor, ppo
from rl.students.player.player_state import LanguageState, NetworkState
from rl.students.player.properties import MOVES
from rl.students.player.student import Player, PlayerStudent
from rl.students.writer import Writer


class NetworkPlayer(PlayerStudent[NetworkState]):
    """A player whose actor is a small network."""

    actor: network_actor.NetworkActor

    def __init__(self, config: Config):
        super().__init__(config)
        self.actor = network_actor.NetworkActor(config.student.network, config.student.ppo.episode_steps)
        self._first = network_actor.begin(self.actor, self.settings, make_key(config.seed, Purpose.PARAMETERS)[None])
        count = sum(x.size for x in jax.tree.leaves(self._first.parameters))
        self.description = f"Network with {count:,} parameters, PPO on {jax.devices()[0].device_kind}"

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint, or a fresh network; draw the boards of the validations."""
        arrays = {"parameters": self._first.parameters, "optimizer": self._first.optimizer}
        snapshot = directory.checkpoints.restore(lambda progress: jax.eval_shape(lambda: arrays), display.say)
        if snapshot is None:
            self.state = NetworkState(self._first, Progress())
        else:
            learner = ppo.Learner(parameters=snapshot.arrays["parameters"], optimizer=snapshot.arrays["optimizer"])
            self.state = NetworkState(learner, snapshot.progress)
        self.draw_validation(directory, display)

    def save(self, folder: Path) -> None:
        """Write ``network.npz`` and ``network.json``."""
        network_actor.save(folder, self.actor, ppo.lane(self.state.learner.parameters, 0))


class LanguagePlayer(PlayerStudent[LanguageState], Writer):
    """A player whose actor is the model of the section `model`; the same parameters write as an engineer.

    Args:
      config: the run's configuration.

    Raises:
      ConfigError: if model, tokenizer or devices cannot be used as the settings say; see `language_actor.make_actor`.
    """

    actor: language_actor.LanguageActor

    def __init__(self, config: Config):
        super().__init__(config)
        key = make_key(config.seed, Purpose.PARAMETERS)
        policy, parameters = Policy.create(config, key)
        self.actor, self.policy, self._parameters = language_actor.make_actor(
            policy, config.student.turns, parameters, jax.random.fold_in(key, 1)
        )
        self.description = f"{self.policy.describe(self._parameters)}, which plays turn by turn: PPO"

    @staticmethod
    def programs(config: Config, mesh: Mesh) -> list[Program]:
        """List the programs of a run, in which a view takes all of `text.max_prompt_tokens`.

        They are an update and the play of the validation boards; see `rl.students.programs`.
        """
        settings, kinds, count = config.student.ppo, config.all_kinds, config.rounds.instances
        shape, graph, parameters = abstract_model(config.model, mesh)
        trained, frozen = lora.split(parameters)
        prompt = language_actor.Prompt.of_length(config.text.max_prompt_tokens)
        actor = language_actor.LanguageActor(graph, prompt, config.student.turns.chunk, None)
        tree = {"model": trained, "value": jax.eval_shape(lambda: language_actor.first_value(shape.hidden_size))}
        alone = ppo.Learner(parameters=tree, optimizer=jax.eval_shape(actor.make_optimizer(settings).init, tree))
        learner = sharding.abstract(jax.eval_shape(lambda learner: ppo.lanes([learner]), alone), mesh)
        side, agents = max(kind.size for kind in kinds), max(kind.num_agents for kind in kinds)

        def boards(count: int) -> Instance:
            number, holes = np.zeros((1, count), np.int32), np.zeros((1, count, side**2), bool)
            cells = np.zeros((1, count, agents), np.int32)
            levels = Instance(size=number, num_agents=number, holes=holes, starts=cells, goals=cells)
            return sharding.abstract(levels, mesh)

        keys, optima = jax.random.split(seed_key(0), (1, 1)), np.zeros((1, count), np.int32)
        bank = sharding.abstract(jax.eval_shape(lambda levels: ppo.make_bank(settings, levels), boards(count)), mesh)
        playing = sharding.abstract(jax.eval_shape(lambda: ppo.begin_round(actor, settings, bank, keys[0])), mesh)
        update = functools.partial(ppo.update.lower, actor, settings, frozen, learner, playing, bank, optima, keys)
        held_out = boards(config.validation.instances)
        play = functools.partial(ppo.play.lower, actor, settings, frozen, learner.parameters, held_out, keys[0], False)
        return [
            Program("update", update, (frozen, learner, playing)),
            Program("play, validation", play, (frozen, learner.parameters), learner.optimizer),
        ]

    def restore(self, directory: RunDirectory, display: Display) -> None:
        """Take the state of the last whole checkpoint, or the first one; draw the boards of the validations."""
        self.frozen = lora.split(self._parameters)[1]
        value = language_actor.first_value(self.policy.shape.hidden_size)
        value = jax.device_put(value, sharding.shardings(value, self.policy.mesh))
        begin = functools.partial(self._first_optimizer, value=value)
        restored = restore(self.policy, self._parameters, begin, directory, display, value)
        self.state = LanguageState(**vars(restored))
        del self._parameters
        self.draw_validation(directory, display)

    def _first_optimizer(self, stage: str, trained: nnx.State, value: dict[str, jax.Array]) -> optax.OptState:
        """Return the optimizer's state where a stage begins."""
        first, tree = self.actor.make_optimizer(self.settings).init, {"model": trained, "value": value}
        if stage == "warm_start":
            settings = self.config.warm_start
            first, tree = make_optimizer(settings, settings.steps).init, trained
        return jax.jit(first, out_shardings=sharding.shardings(jax.eval_shape(first, tree), self.policy.mesh))(tree)

    def warm_start(self, recorder: Recorder) -> None:
        """Learn engineer examples if the settings ask for any, and validate; take the optimizer of the rounds."""
        state = self.state
        if self.config.warm_start.steps:
            sft.warm_start(self.policy, self.config, state, recorder, None)
            recorder.keep_best("warm_start", validate(self, recorder, "warm_start", occasion=1))
        trained = lora.split(state.parameters)[0]
        state.begin_rounds(self._first_optimizer("rounds", trained, state.value), self.policy, self.config)

    def train(self, recorder: Recorder, boards: Dataset, requested: LakeConfig) -> TrainingEvidence:
        """Train one round as any player does, then rehearse the engineer's examples if the settings ask for it."""
        training = super().train(recorder, boards, requested)
        if rehearsals := self.config.student.turns.rehearsals:  # else moments as large as the model for nothing
            state, kept = self.state, self.state.optimizer_state
            # Through PPO's, whose moments are those of other gradients, a rehearsal harmed play.
            optimizer = _engineer_optimizer(self.config.student.turns.engineer_rate)
            state.optimizer_state = grpo.init(optimizer, state.parameters, self.policy.mesh)
            try:
                for number in range(rehearsals):
                    sft.rehearse(self.policy, self.config, state, optimizer, recorder.note_update, number)
            finally:
                state.optimizer_state = kept
        return training


@functools.cache
def _engineer_optimizer(rate: float) -> optax.GradientTransformation:
    """Return Adam on gradients clipped by their norm; one object for equal rates, for which programs are compiled."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b2=0.98))


def load_player(config: Config, folder: Path) -> Player:
    """Read what a player of this configuration saved.

    Raises:
      ConfigError: if the folder holds no such player.
    """
    settings = config.student.ppo
    if config.is_network:
        actor, parameters = network_actor.load(folder)
        return Player(actor, settings, None, ppo.lanes([parameters]))
    key = make_key(config.seed, Purpose.PARAMETERS)
    policy, model = Policy.load(config, folder, key)
    if config.student.turns.tokens and policy.tokenizer.id_of(MOVES[0]) is None:
        raise ConfigError(f"{folder}: must hold a model that played, and its tokenizer lacks the tokens of a view")
    reader, policy, model = language_actor.make_actor(policy, config.student.turns, model, key)
    trained, frozen = lora.split(model)
    value = language_actor.first_value(policy.shape.hidden_size)  # nobody asks for it here
    return Player(reader, settings, frozen, ppo.lanes([{"model": trained, "value": value}]), policy.identity)
