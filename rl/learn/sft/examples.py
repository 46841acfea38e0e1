"""Examples of supervised learning: the plans of the solver, and answers of an environment engineer with a rule."""

from collections.abc import Sequence

import numpy as np

from engineer import examples
from jaxlake import text
from jaxlake.types import Instance
from rl.config import Config, ConfigError, WarmStartSection
from rl.learn.boards import Draw, mixed_boards
from rl.model.context import read_context
from rl.model.logprobs import Sequences, join
from rl.model.policy import Policy
from rl.model.tokenizer import Tokenizer, check_fit
from rl.run.keys import Purpose, make_key
from rl.run.tracking import Display

WAIT = 0.1
"""Share of the warm start's boards that need a wait."""


def plan_examples(policy: Policy, config: Config, draw: Draw, exclude: Instance, display: Display) -> Sequences:
    """Return the warm start's boards, none of them in `exclude`, each with its optimal plan as the answer.

    A few boards have plans longer than any answer can be (1 of 20,000 in one seed of the tiny run); they are left out,
    and `display` says how many.

    Raises:
      ConfigError: if a prompt is longer than the room for it, or more than one plan in a hundred is.
    """
    settings = config.warm_start
    key = make_key(config.seed, Purpose.WARM_START_SET)
    kinds = settings.kinds or config.lake.kinds
    boards = mixed_boards(draw, kinds, settings.holes, WAIT, key, settings.instances, exclude)
    prompts = policy.prompts(boards.instances)
    thought = "<think>\n\n</think>\n\n" if config.text.thinking else ""
    thought = thought.removeprefix(policy.tokenizer.opened(thinking=config.text.thinking))
    answers = [
        policy.tokenizer.completion(thought + text.answer(boards.solutions.plan[i], prompts.instances.max_size))
        for i in range(len(prompts))
    ]
    room = config.text.max_new_tokens
    fits = np.array([len(answer) <= room for answer in answers])
    if fits.mean() < 0.99:
        raise ConfigError(f"text.max_new_tokens = {room} is too small for {(~fits).sum()} of {len(fits)} plans")
    if not fits.all():
        display.say(f"{(~fits).sum()} of {len(fits)} boards are left out: their plans need more than {room} tokens")
    padded = policy.tokenizer.pad_right([a for a in answers if len(a) <= room], room, "text.max_new_tokens")
    return join(prompts.take(fits).tokens, config.text.max_prompt_tokens, *padded)


def engineer_examples(tokenizer: Tokenizer, config: Config, rng: np.random.Generator) -> Sequences:
    """Freshly drawn examples of evidence with the configuration that our rule would answer."""
    settings = config.warm_start
    contexts, taught, _ = zip(*engineer_texts(tokenizer, config, rng, settings.engineer_batch), strict=True)
    return engineer_sequences(tokenizer, settings, contexts, taught)


def response(tokenizer: Tokenizer, thinking: str, answer: str) -> list[int]:
    """Return the tokens of what an engineer writes behind its prompt: a thought, the configuration, the end."""
    thought = f"<think>\n{thinking}\n</think>\n\n".removeprefix(tokenizer.opened(thinking=True))
    # Apart, as the sampler writes them: in one text some tokenizers make other tokens of the lines between them.
    return [*tokenizer.reply(thought), *answer_alone(tokenizer, answer)]


def answer_alone(tokenizer: Tokenizer, answer: str) -> list[int]:
    """Return the tokens of an engineer's answer behind its thought, its end token included."""
    return [*tokenizer.encode(answer), tokenizer.stop_ids[0]]


def engineer_sequences(
    tokenizer: Tokenizer, settings: WarmStartSection, contexts: Sequence[list[int]], taught: Sequence[list[int]]
) -> Sequences:
    """Return contexts, each with what is taught to follow it, as tokens; ConfigError if one does not fit its room."""
    check_fit(contexts, settings.max_context_tokens, "warm_start.max_context_tokens")
    padded = tokenizer.pad_right(taught, settings.max_answer_tokens, "warm_start.max_answer_tokens")
    return join(contexts, settings.max_context_tokens, *padded)


def engineer_texts(
    tokenizer: Tokenizer, config: Config, rng: np.random.Generator, count: int, variants: Sequence[str] = ()
) -> list[tuple[list[int], list[int], list[int]]]:
    """Return the tokens of `count` examples: context, thought and answer, answer alone; by default the warm start's."""
    rounds, template = max(config.rounds.count, 2), read_context(config.engineer).template
    rows = []
    for _ in range(count):
        context, thinking, answer, _ = examples.example(
            rng,
            config.lake.kinds,
            rounds,
            config.rounds.epochs,
            variants or config.warm_start.contexts,
            template,
            config.target_kinds,
        )
        taught = response(tokenizer, thinking, answer)
        rows.append((tokenizer.chat(context, thinking=True), taught, answer_alone(tokenizer, answer)))
    return rows
