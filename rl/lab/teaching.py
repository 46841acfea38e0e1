"""Teaches a language model to design, from the designs that gained most in branches.

The thought stays what it is in the examples of the warm start, a reading of the table; what is learned is the design
that follows it.
"""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import optax
from flax import nnx

from engineer import PastRound, Training
from engineer.engineers.base import generator
from engineer.examples import think, visible
from engineer.proposal import to_answer
from engineer.reading import resampled
from jaxlake.config import LakeConfig
from jaxlake.kinds import Kind
from rl.config import Config, ConfigError
from rl.judge.reading_test import read_lines
from rl.lab.gains import read_gains
from rl.lab.states import FILE
from rl.learn import grpo, sft
from rl.learn.grpo.optimizer import make_optimizer
from rl.learn.sft.examples import response
from rl.model.context import read_context
from rl.model.policy import Policy, pin
from rl.model.tokenizer import Tokenizer
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.signals import Stop
from rl.run.state import TrainState, restore
from rl.run.tracking import Display, Stopwatch
from rl.students.player import OTHER_KINDS_WEIGHT

TEMPERATURE = 0.3
"""Spread of the choice among a state's designs, in standard deviations of their scores: of twenty the best is shown
every other time, and the five best nine times in ten."""
SPARE = 8
"""Tokens by which a thought on other evidence of a state may be longer."""


@dataclasses.dataclass(frozen=True, eq=False)
class TaughtState:
    """A state that branches were trained from.

    Attributes:
      history: the finished rounds of the run in this state.
      designs: the configurations that were tried.
      scores: a design's mean over its repeats of the gain on the target plus `OTHER_KINDS_WEIGHT` times that on other
        kinds, float ``[designs]``.
    """

    history: list[PastRound]
    designs: tuple[LakeConfig, ...]
    scores: np.ndarray


Lesson = tuple[TaughtState, np.ndarray]
"""A state, and the probability with which each of its designs is shown, float ``[designs]``."""
Taught = tuple[list[list[int]], list[list[int]], list[int]]
"""Tokens of contexts, of what is taught to follow each, and how many of the latter count."""


def read_states(folder: Path, kinds: tuple[Kind, ...]) -> list[TaughtState]:
    """Read the states and gains that `python -m rl.branch --config` left in a folder.

    Raises:
      ConfigError: if a file is missing or damaged, or a state has other kinds than these.
    """
    path = folder / FILE
    try:
        branches = {state.name: state for state in read_gains(folder).states}
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--teach {folder}: {error}") from None
    states = []
    for number, (name, _, history) in enumerate(read_lines(path, lines), 1):
        if (branch := branches.get(name)) is None:  # still under way, or no two designs are finished
            continue
        if history[-1].config.kinds != kinds:
            raise ConfigError(f"{path}, line {number}: has other kinds than lake.kinds; choose another --config")
        targets = [row.kind for row in history[-1].evidence.by_kind]
        others = np.array([kind not in targets for kind in branch.kinds])
        elsewhere = branch.kind_gains[..., others].mean(-1) if others.any() else 0.0
        designs = tuple(design.config for design in branch.designs.values())
        states.append(TaughtState(history, designs, scores=(branch.gains + OTHER_KINDS_WEIGHT * elsewhere).mean(1)))
    return states


def _context(tokenizer: Tokenizer, config: Config, history: list[PastRound]) -> str:
    """Return the message to an engineer after these rounds."""
    training = Training(history[-1].round + 1, config.rounds.count, config.rounds.epochs)
    context, room = read_context(config.engineer), config.engineer.max_prompt_tokens
    return context.build(history[-1].evidence, history, training, lambda text: tokenizer.fits(text, room))


def _thought(config: Config, history: list[PastRound]) -> str:
    """Return the thought of the examples about the last evidence."""
    return think(visible(history[-1].evidence, read_context(config.engineer).modules), config.lake.kinds)


def make_lessons(states: list[TaughtState], tokenizer: Tokenizer, config: Config) -> list[Lesson]:
    """Return the states that designs differ in, with the probability of each design; 0 where an answer has no room.

    Raises:
      ConfigError: if there is no such state.
    """
    room, lessons = config.warm_start.max_answer_tokens, []
    for state in states:
        thought, scores = _thought(config, state.history), state.scores
        taught = [response(tokenizer, thought, to_answer(design)) for design in state.designs]
        fits = np.array([len(tokens) <= room - SPARE for tokens in taught])
        if fits.any() and np.ptp(scores[fits]) > 0:
            weights = np.where(fits, np.exp((scores - scores[fits].max()) / (TEMPERATURE * scores.std())), 0)
            lessons.append((state, weights / weights.sum()))
    if not lessons:
        raise ConfigError(
            f"--teach: no state has designs that differ in gain and fit warm_start.max_answer_tokens = {room}"
        )
    return lessons


def teach(branches: Path, config: Config, out: Path, display: Display, stop: Stop) -> None:
    """Make `warm_start.steps` supervised updates in a run directory, which is resumed if it is there.

    Args:
      branches: folder of `python -m rl.branch --config`.
      config: the model and its `warm_start`.
      out: the run directory; the model goes to ``final/``.

    Raises:
      ConfigError: see `read_states`; or if no state has a design for which there is room.
      Interrupted: on a signal, with everything saved.
    """
    with contextlib.closing(RunDirectory(out, config)) as directory:
        with stop.interrupt_immediately():
            config = pin(config, directory.checkpoints.source())
            policy, parameters = Policy.create(config, make_key(config.seed, Purpose.PARAMETERS))
            display.say(policy.describe(parameters))
            lessons = make_lessons(read_states(branches, config.lake.kinds), policy.tokenizer, config)
            display.say(f"{len(lessons)} states with designs that fit")

            def begin(stage: str, trained: nnx.State) -> optax.OptState:
                return grpo.init(make_optimizer(config.warm_start, config.warm_start.steps), trained, policy.mesh)

            pupil = _Pupil(policy, restore(policy, parameters, begin, directory, display))
            del parameters
        with Recorder(directory, display, stop, pupil) as recorder:
            make_updates(pupil, config, lessons, recorder)
            recorder.export("final")
            pupil.state.progress.stage = "finished"
            recorder.save()
    display.say(f"The engineer: {out / 'final'}")


@dataclasses.dataclass
class _Pupil:
    """A language model that is taught to design: a policy without rounds."""

    policy: Policy
    state: TrainState

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a Hugging Face folder."""
        self.policy.save(folder, self.state.parameters)


def make_updates(pupil: _Pupil, config: Config, lessons: list[Lesson], recorder: Recorder) -> None:
    """Make the updates that are left, each on a batch of its own."""
    policy, state, settings = pupil.policy, pupil.state, config.warm_start
    optimizer = make_optimizer(settings, settings.steps)
    recorder.display.stage("designs that gained most", settings.steps, done=state.progress.step)
    for step in range(state.progress.step, settings.steps):
        watch = Stopwatch()
        contexts, taught, counts = draw_batch(policy.tokenizer, config, lessons, step)
        examples = sft.engineer_sequences(policy.tokenizer, settings, contexts, taught)
        examples = examples.replace(mask=np.arange(examples.mask.shape[1]) < np.array(counts)[:, None])
        rows = np.arange(len(contexts))
        metrics = sft.teach(policy, state, optimizer, examples, rows, recorder.note_update)
        watch.lap("update")
        row = {"phase": "warm_start", "engineer_loss": metrics["loss"], "gradient_norm": metrics["gradient_norm"]}
        recorder.step_done(row, watch.seconds, f"loss {metrics['loss']:.3f}", config.checkpoint.every_steps)


def draw_batch(tokenizer: Tokenizer, config: Config, lessons: list[Lesson], step: int) -> Taught:
    """Draw the examples of an update.

    Half of them are states, each with a design drawn by its probability, and with evidence as another validation of the
    same student would give it (`resampled`), so that no table is learned by heart; half are freshly drawn tables, of
    which the thought alone is taught.
    """
    rng, count = generator(make_key(config.seed, Purpose.WARM_START_STEP, step=step)), config.warm_start.engineer_batch
    contexts, taught, counts = draw_thoughts(tokenizer, config, rng, count // 2)
    for i in rng.choice(len(lessons), count - len(contexts)):
        state, probabilities = lessons[i]
        history, design = resampled(state.history, rng), state.designs[rng.choice(len(state.designs), p=probabilities)]
        contexts.append(tokenizer.chat(_context(tokenizer, config, history), thinking=True))
        taught.append(response(tokenizer, _thought(config, history), to_answer(design)))
        counts.append(len(taught[-1]))
    return contexts, taught, counts


def draw_thoughts(tokenizer: Tokenizer, config: Config, rng: np.random.Generator, count: int) -> Taught:
    """Draw examples of which the thought alone counts."""
    contexts, taught, answers = zip(*sft.engineer_texts(tokenizer, config, rng, count), strict=True)
    return list(contexts), list(taught), [len(a) - len(b) for a, b in zip(taught, answers, strict=True)]
