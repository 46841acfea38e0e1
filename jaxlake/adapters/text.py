"""The task for trainers of language models: rows of prompts, and the reward of what a model answers. Trains nothing.

One answer holds the whole plan, so an episode is a prompt and a completion. For TRL's ``GRPOTrainer`` (read at 1.16):

    dataset = datasets.Dataset.from_list(trl_rows(found.instances, found.solutions.cost))
    GRPOTrainer(model, reward_funcs=path_reward, train_dataset=dataset)

For verl (read at 0.9), ``verl_rows`` written to Parquet by ``datasets`` or ``pandas`` are its ``data.train_files``, and
the reward is set by ``reward.custom_reward_function.path=pkg://jaxlake.adapters.text`` (``name`` is ``compute_score``).
verl's manager ``prime`` judges in forked processes, in which JAX hangs if it has run before the fork: use ``naive``.

Others take ``tasks`` and ``judge``, of which both are made; the folder ``integrations`` of the repository has some.

No library is imported. What is compiled runs in microseconds on a CPU: with ``JAX_PLATFORMS=cpu`` a JAX that knows the
trainer's GPU leaves its memory alone.
"""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxlake.files import from_record, record
from jaxlake.levels import stack, validate
from jaxlake.rewards import accuracy
from jaxlake.text import AnswerFormat, PromptStyle, parse_batch, prompt
from jaxlake.types import MAX_AGENTS, MAX_ANSWER_STEPS, MAX_SIZE, Instance, Verdict
from jaxlake.verify import verify

DATA_SOURCE = "jaxlake"
"""The data source of verl's rows, by which it groups its validation scores."""

Message = Mapping[str, Any]
"""A chat message, ``{"role": .., "content": ..}``."""


def trl_rows(
    instances: Instance,
    optimum: np.ndarray,
    style: PromptStyle | str = PromptStyle.VERBOSE,
    answer_format: AnswerFormat | str = AnswerFormat.COORDINATES,
) -> list[dict[str, Any]]:
    """Return a row for each instance: ``prompt``, a conversation of one message, and ``level`` for ``path_reward``.

    Args:
      instances: ``[n]``, of sides up to 10 with up to 5 agents.
      optimum: int32 ``[n]``, the least sum of costs.
      answer_format: the format that the prompts ask for; answers in either are read.
    """
    return [
        {"prompt": [{"role": "user", "content": text}], "level": level}
        for text, level in tasks(instances, optimum, style, answer_format)
    ]


def path_reward(completions: Sequence[str | Sequence[Message]], level: Sequence[str], **unused: Any) -> list[float]:
    """Return each completion's accuracy; TRL calls it with lists as keywords, one for every column of the dataset.

    Args:
      completions: texts, or conversations whose last message is the answer.
      level: the rows' levels.
      **unused: TRL passes all it has (prompts, token ids, the state of the trainer, other columns) to every function.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return judge(texts, level)[1].tolist() if texts else []


def verl_rows(
    instances: Instance,
    optimum: np.ndarray,
    split: str,
    style: PromptStyle | str = PromptStyle.VERBOSE,
    answer_format: AnswerFormat | str = AnswerFormat.COORDINATES,
) -> list[dict[str, Any]]:
    """Return a row of verl's format for each instance; it keeps ``split``, which is ``"train"`` or ``"test"``."""
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": text}],
            "ability": "planning",
            "reward_model": {"style": "rule", "ground_truth": level},
            "extra_info": {"split": split, "index": index},
        }
        for index, (text, level) in enumerate(tasks(instances, optimum, style, answer_format))
    ]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None
) -> float:
    """Return the accuracy of one answer to verl; the row's ``ground_truth`` holds all that is needed."""
    return float(judge([solution_str], [ground_truth])[1][0])


def tasks(
    instances: Instance,
    optimum: np.ndarray,
    style: PromptStyle | str = PromptStyle.VERBOSE,
    answer_format: AnswerFormat | str = AnswerFormat.COORDINATES,
) -> list[tuple[str, str]]:
    """Return the prompt and the level of each instance; arguments and errors as of ``trl_rows``.

    A level is one text, what ``judge`` needs: a record of ``jaxlake.files`` with the optimum.
    """
    style, answer_format = PromptStyle(style), AnswerFormat(answer_format)
    validate(instances)
    optimum = np.asarray(optimum)
    instances = jax.tree.map(np.asarray, instances)
    pairs = []
    for index, (instance, least) in enumerate(zip(instances, optimum, strict=True)):
        if least < 0:
            raise ValueError(f"instance {index} has no known optimum: it must be solved")
        level = record(instance, str(index), optimum=int(least))
        pairs.append((prompt(instance, style, answer_format), json.dumps(level)))
    return pairs


def judge(texts: Sequence[str], levels: Sequence[str]) -> tuple[Verdict, np.ndarray]:
    """Judge answers, each on its level, as ``jaxlake.score`` does: with room for ``MAX_ANSWER_STEPS`` steps.

    One program serves every board, as all are padded to the largest.

    Args:
      texts: answers in any form that ``jaxlake.text`` reads, at least one.
      levels: the levels of ``tasks``, one for each answer.

    Returns:
      The verdicts ``[batch]``, and the accuracies (``jaxlake.rewards``), float32 ``[batch]``.
    """
    parts, optima = zip(*map(_read_level, levels), strict=True)
    instances, optimum = stack(parts), np.array(optima, np.int32)
    plans = parse_batch(
        texts, max_size=MAX_SIZE, max_agents=MAX_AGENTS, max_steps=MAX_ANSWER_STEPS, starts=instances.starts
    )
    verdicts = verify(instances, plans, optimum)
    return verdicts, accuracy(np.asarray(verdicts.valid), np.asarray(verdicts.cost), optimum)


@functools.lru_cache(maxsize=1024)  # A group of completions shares its level, and reading takes as long as parsing.
def _read_level(level: str) -> tuple[Instance, int]:
    entry = json.loads(level)
    return from_record(entry, MAX_SIZE, MAX_AGENTS), entry["optimum"]
