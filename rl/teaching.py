"""Teaches a language model to design, from the designs that gained most in branches.

The thought stays what it is in the examples of the warm start, a reading of the table; what is learned is the design
that follows it.
"""

import dataclasses
from pathlib import Path

import numpy as np
import optax

from engineer import PastRound, Training, modules
from engineer.examples import think, visible
from engineer.proposal import to_answer
from engineer.reading import resampled
from jaxlake.config import LakeConfig
from rl import sft
from rl.branching import read_gains
from rl.branching.states import FILE
from rl.config import ConfigError
from rl.context import read_context
from rl.evaluation.reading import read_lines
from rl.policy import Policy
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.run.tracking import Stopwatch
from rl.sft.examples import response
from rl.students.network.student import OTHER_KINDS_WEIGHT

TEMPERATURE = 0.3
"""Spread of the choice among a state's designs, in standard deviations of their scores: of twenty the best is shown
every other time, and the five best nine times in ten."""
SPARE = 8
"""Tokens by which a thought on other evidence of a state may be longer."""


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """A state that branches were trained from.

    Attributes:
      history: the finished rounds of the run that stands there.
      designs: the configurations that were tried.
      scores: a design's mean over its repeats of the gain on the target plus `OTHER_KINDS_WEIGHT` times that on other
        kinds, float ``[designs]``.
    """

    history: list[PastRound]
    designs: tuple[LakeConfig, ...]
    scores: np.ndarray


def read_states(folder: Path, policy: Policy) -> list[State]:
    """Read what `python -m rl.branch --config` left in a folder, as this policy's settings show it to an engineer.

    Raises:
      ConfigError: if a file is missing or damaged, or a state has other kinds than the settings.
    """
    config, path = policy.config, folder / FILE
    try:
        branches = {state.name: state for state in read_gains(folder).states}
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--branches {folder}: {error}") from None
    found = []
    for number, (name, _, history) in enumerate(read_lines(path, lines), 1):
        if (branch := branches.get(name)) is None:  # still under way, or no two designs are finished
            continue
        if history[-1].config.kinds != config.lake.kinds:
            raise ConfigError(f"{path}, line {number}: has other kinds than lake.kinds; choose another --config")
        targets = [row.kind for row in history[-1].evidence.by_kind]
        others = np.array([kind not in targets for kind in branch.kinds])
        elsewhere = branch.kind_gains[..., others].mean(-1) if others.any() else 0.0
        designs = tuple(design.config for design in branch.designs.values())
        found.append(State(history, designs, scores=(branch.gains + OTHER_KINDS_WEIGHT * elsewhere).mean(1)))
    return found


def _context(policy: Policy, history: list[PastRound]) -> str:
    """Return what an engineer reads after these rounds."""
    config = policy.config
    training = Training(history[-1].round + 1, config.rounds.count, config.rounds.epochs)
    room = config.engineer.max_prompt_tokens
    return read_context(config).build(
        history[-1].evidence, history, training, lambda text: policy.tokenizer.fits(text, room)
    )


def _thought(policy: Policy, history: list[PastRound]) -> str:
    """Return what the examples would think of it."""
    config = policy.config
    return think(visible(history[-1].evidence, modules(config.engineer.context)), config.lake.kinds)


def show_best(
    policy: Policy, state: TrainState, recorder: Recorder, optimizer: optax.GradientTransformation, states: list[State]
) -> None:
    """Make the supervised updates that are still to be done.

    Half of a batch are states, each with a design drawn by its score among those that an answer has room for, and with
    evidence as another validation of the same student would give it (`resampled`), so that no table is learned by
    heart; half are freshly drawn tables, of which the thought alone is taught.

    Raises:
      ConfigError: if no state has a design for which there is room.
      Interrupted: where a signal asks for it, with everything saved.
    """
    config, settings, tokenizer = policy.config, policy.config.warm_start, policy.tokenizer
    shown: list[tuple[State, np.ndarray]] = []
    for one in states:
        thought = _thought(policy, one.history)
        taught = [response(tokenizer, thought, to_answer(design)) for design in one.designs]
        fits = np.array([len(tokens) <= settings.max_answer_tokens - SPARE for tokens in taught])
        if fits.any() and np.ptp(one.scores[fits]) > 0:
            weights = np.where(
                fits, np.exp((one.scores - one.scores[fits].max()) / (TEMPERATURE * one.scores.std())), 0
            )
            shown.append((one, weights / weights.sum()))
    if not shown:
        raise ConfigError(
            "--branches: no state has designs that differ in gain and fit warm_start.max_answer_tokens = "
            f"{settings.max_answer_tokens}"
        )
    recorder.display.say(f"{len(shown)} states with designs that fit")
    recorder.display.stage("what gained most", settings.steps, done=state.progress.step)
    for step in range(state.progress.step, settings.steps):
        watch = Stopwatch()
        rng = sft.generator(make_key(config.seed, Purpose.WARM_START_STEP, step=step))
        contexts, taught, spans = _drawn_thoughts(policy, rng, settings.engineer_batch // 2)
        for i in rng.choice(len(shown), settings.engineer_batch - len(contexts)):
            one, weights = shown[i]
            history, design = resampled(one.history, rng), one.designs[rng.choice(len(one.designs), p=weights)]
            contexts.append(tokenizer.chat(_context(policy, history), thinking=True))
            taught.append(response(tokenizer, _thought(policy, history), to_answer(design)))
            spans.append(len(taught[-1]))
        metrics = _teach(policy, state, recorder, optimizer, (contexts, taught, spans))
        watch.lap("update")
        row = {"phase": "warm_start", "engineer_loss": metrics["loss"], "gradient_norm": metrics["gradient_norm"]}
        status = f"loss {metrics['loss']:.3f}"
        recorder.step_done(row, watch.seconds, status, config.checkpoint.every_steps)


Taught = tuple[list[list[int]], list[list[int]], list[int]]
"""Tokens of contexts, of what is taught to follow each, and how many of the latter count."""


def _drawn_thoughts(policy: Policy, rng: np.random.Generator, count: int) -> Taught:
    """Draw examples of which the thought alone counts."""
    contexts, taught, answers = zip(*sft.engineer_texts(policy, rng, count), strict=True)
    return list(contexts), list(taught), [len(a) - len(b) for a, b in zip(taught, answers, strict=True)]


def _teach(
    policy: Policy, state: TrainState, recorder: Recorder, optimizer: optax.GradientTransformation, taught: Taught
) -> dict[str, float]:
    """Make an update on examples."""
    contexts, responses, counts = taught
    examples = sft.engineer_sequences(policy, contexts, responses)
    examples = examples.replace(mask=np.arange(examples.mask.shape[1]) < np.array(counts)[:, None])
    return sft.teach(policy, state, optimizer, examples, np.arange(len(contexts)), recorder.note_update)
