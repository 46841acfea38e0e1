"""Teaches a language model to design: from designs that gained most in branches, then from what its own ones gain.

The first part is supervised, the second GRPO with the measured score of a branch as reward. In both the thought stays
what it is in the examples of the warm start, a reading of the table; what is learned is the design that follows it.
"""

import contextlib
import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import optax

from engineer import Generation, PastRound, Training, grammar, modules
from engineer.engineers.language import read_answer
from engineer.examples import think, visible
from engineer.proposal import to_answer
from engineer.reading import resampled
from jaxlake.config import LakeConfig
from rl import config as config_
from rl import grpo, sft
from rl.branching import read_gains
from rl.branching.states import FILE
from rl.config import ConfigError, GRPOSection
from rl.context import read_context
from rl.evaluation.reading import read_lines
from rl.grpo_step import make_update
from rl.policy import Policy
from rl.qwen3.logprobs import join
from rl.run.directory import RunDirectory
from rl.run.keys import Purpose, make_key
from rl.run.recorder import Recorder
from rl.run.state import TrainState
from rl.run.tracking import Display, Stopwatch
from rl.sampler.grammar import GrammarSampler, Written
from rl.sft.examples import response
from rl.students import NetworkStudent
from rl.students.network.student import OTHERS

TEMPERATURE = 0.3
"""Of the choice among a state's designs, in standard deviations of their scores: of twenty the best is shown every
other time, and the five best nine times in ten."""
SPARE = 8
"""Tokens by which a thought on other evidence of a state may be longer."""


@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """A state that branches were trained from.

    Attributes:
      run: folder of the run that stands there.
      history: its finished rounds.
      designs: that were tried.
      scores: of each, float ``[designs]``, the mean over its repeats of gain on the target plus `OTHERS` times that on
        other kinds.
    """

    run: Path
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
        run = folder / "runs" / Path(name.rpartition(" round ")[0]).name
        targets = [row.kind for row in history[-1].evidence.by_kind]
        others = np.array([kind not in targets for kind in branch.kinds])
        elsewhere = branch.kind_gains[..., others].mean(-1) if others.any() else 0.0
        designs = tuple(design.config for design in branch.designs.values())
        found.append(State(run, history, designs, scores=(branch.gains + OTHERS * elsewhere).mean(1)))
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
        recorder.step_done(state, row, watch.seconds, status, config.checkpoint.every_steps)


def explore(
    policy: Policy,
    state: TrainState,
    recorder: Recorder,
    optimizer: optax.GradientTransformation,
    states: list[State],
    steps: int,
) -> None:
    """Make the steps of GRPO that are still to be done: designs for some states, a branch on each, an update.

    The tokens of a design have the advantage of its score within its state; those of the thought have none, and every
    `grpo.engineer_every`-th step the thoughts of drawn tables are taught besides.

    Raises:
      ConfigError: if a run of a state is not there, or no network's.
      Interrupted: where a signal asks for it, with everything saved.
    """
    config, settings, display = policy.config, policy.config.grpo, recorder.display
    count = settings.prompts * settings.samples
    engineer = config.engineer.model_copy(
        update={"proposals": count, "temperature": settings.temperature, "top_k": 0, "top_p": 1.0}
    )
    sampler = dataclasses.replace(policy.grammar_sampler(), settings=engineer)
    student_of, allowed = functools.cache(load_student), grammar(config.lake.kinds)
    display.stage("designs of its own", steps, done=state.progress.step)
    for step in range(state.progress.step, steps):
        watch = Stopwatch()
        epoch, place = divmod(step * settings.prompts, len(states))
        order = np.asarray(jax.random.permutation(make_key(config.seed, Purpose.ORDER, epoch), len(states)))
        chosen = [states[i] for i in np.resize(order[place:], settings.prompts)]
        contexts = [_context(policy, one.history) for one in chosen]
        requests = [(context, allowed) for context in contexts for _ in range(settings.samples)]
        parameters = policy.rollout_parameters(state.parameters)
        written = sampler.write(parameters, requests, make_key(config.seed, Purpose.ROLLOUT, step=step))
        watch.lap("rollout")
        with recorder.interruptible(state):
            parts = [written[i : i + settings.samples] for i in range(0, count, settings.samples)]
            tried = [
                _try(student_of(one.run), one, part, make_key(config.seed, Purpose.BRANCH, step=step))
                for one, part in zip(chosen, parts, strict=True)
            ]
        watch.lap("branches")
        scores = np.concatenate([one.scores for one in tried])
        batch = _batch(sampler, written, scores, settings)
        updated = make_update(policy, state, recorder, batch, optimizer, sampler.tokens.max_new_tokens)
        recorder.note_update(state, updated, batch, settings.max_skipped)
        watch.lap("update")
        row = {"phase": "round", "score": scores.mean()} | updated
        for name in ("spread", "distinct", "unusable"):
            row[name] = float(np.mean([getattr(one, name) for one in tried]))
        if settings.engineer_every and (step + 1) % settings.engineer_every == 0:
            rng = sft.generator(make_key(config.seed, Purpose.REHEARSAL, step=step))
            examples = _drawn_thoughts(policy, rng, config.warm_start.engineer_batch)
            row["engineer_loss"] = _teach(policy, state, recorder, optimizer, examples)["loss"]
            watch.lap("rehearsal")
        status = f"gain {100 * scores.mean():+.1f} points, {row['distinct']:.0%} of the designs distinct"
        recorder.step_done(state, row, watch.seconds, status, config.checkpoint.every_steps)


@dataclasses.dataclass(frozen=True)
class Tried:
    """What the designs for a state came to.

    Attributes:
      scores: gains of each, float ``[samples]``.
      spread: their standard deviation.
      distinct: share of designs that differ from those before them.
      unusable: share of answers without one, for which the previous design was tried.
    """

    scores: np.ndarray
    spread: float
    distinct: float
    unusable: float


def _try(student: NetworkStudent, state: State, written: list[Written], key: jax.Array) -> Tried:
    previous = state.history[-1].config
    proposals = [read_answer("taught", Generation(*one[:3]), previous) for one in written]
    designs = [proposal.projected for proposal in proposals]
    scores = student.scores(student.branch(designs, 1, key)[0]) - student.scores(student.state.learner)
    return Tried(
        scores=scores,
        spread=float(scores.std()),
        distinct=len(set(designs)) / len(designs),
        unusable=float(np.mean([bool(proposal.errors) for proposal in proposals])),
    )


def _batch(sampler: GrammarSampler, written: list[Written], scores: np.ndarray, settings: GRPOSection) -> grpo.Batch:
    """Return the responses with the advantages of their designs; the tokens of thoughts do not count."""
    tokens, logprobs, mask, designs = (
        np.zeros((len(written), sampler.tokens.max_new_tokens), dtype) for dtype in (np.int32, np.float32, bool, bool)
    )
    for i, one in enumerate(written):
        length = len(one.tokens)
        tokens[i, :length], logprobs[i, :length], mask[i, :length] = one.tokens, one.logprobs, True
        designs[i, one.answer_from : length] = True
    groups = np.arange(len(written)) // settings.samples
    advantages = grpo.advantages(scores.astype(np.float32), groups, settings.advantage)
    sequences = join([one.prompt for one in written], sampler.tokens.max_prompt_tokens, tokens, mask)
    return grpo.Batch(
        sequences=sequences.replace(mask=designs),
        sampler_logprobs=logprobs,
        advantages=np.where(designs, advantages[:, None], 0).astype(np.float32),
    )


def load_student(run: Path) -> NetworkStudent:
    """Return the student of a run as it stands, to branch from.

    Raises:
      ConfigError: if there is no such run, or it has no network.
    """
    path = run / "config.yaml"
    if not path.exists():
        raise ConfigError(f"{run}: is no run; python -m rl.branch --config leaves those that it branched from")
    config = config_.load(path)
    if not config.plays:
        raise ConfigError(f"{run}: a language policy takes minutes a branch; only networks teach")
    with contextlib.closing(RunDirectory(run, config)) as directory, Display(quiet=True) as quiet:
        student = NetworkStudent(config)
        student.restore(directory.checkpoints, quiet)
        student.prepare(directory.validation_seed, quiet)
    return student


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
    return sft.teach(policy, state, recorder, optimizer, examples, np.arange(len(contexts)))
