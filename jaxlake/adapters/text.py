"""The task for trainers of language models: rows of prompts, and the reward of what a model answers. Trains nothing.

One answer holds the whole plan, so an episode is a prompt and a completion. For TRL's ``GRPOTrainer`` (read at 1.16):

    dataset = datasets.Dataset.from_list(trl_rows(found.instances, found.solutions.cost))
    GRPOTrainer(model, reward_funcs=path_reward, train_dataset=dataset)

For verl (read at 0.9), ``verl_rows`` written to Parquet by ``datasets`` or ``pandas`` are its ``data.train_files``, and
the reward is set by ``reward.custom_reward_function.path=pkg://jaxlake.adapters.text`` (``name`` is ``compute_score``).

Neither library is imported. What is compiled runs in microseconds on a CPU: with ``JAX_PLATFORMS=cpu`` a JAX that knows
the trainer's GPU leaves its memory alone.
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
from jaxlake.types import MAX_AGENTS, MAX_SIZE, MAX_STEPS, Instance
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
    """A row for each instance: ``prompt``, a conversation of one message, and ``level``, what ``path_reward`` needs.

    Args:
      instances: ``[n]``, of sides up to 10 with up to 5 agents.
      optimum: int32 ``[n]``, the least sum of costs.
      style: of the prompts.
      answer_format: what the prompts ask for; answers in either are read.

    Raises:
      ValueError: naming an instance that is too large or whose optimum is not known.
    """
    return [
        {"prompt": [{"role": "user", "content": text}], "level": level}
        for text, level in _tasks(instances, optimum, style, answer_format)
    ]


def path_reward(completions: Sequence[str | Sequence[Message]], level: Sequence[str], **unused: Any) -> list[float]:
    """The accuracy of each completion, as TRL calls it: with lists as keywords, one for every column of the dataset.

    Args:
      completions: texts, or conversations whose last message is the answer.
      level: as in the rows.
      **unused: TRL passes all it has (prompts, token ids, the state of the trainer, other columns) to every function.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return _accuracies(texts, level).tolist()


def verl_rows(
    instances: Instance,
    optimum: np.ndarray,
    split: str,
    style: PromptStyle | str = PromptStyle.VERBOSE,
    answer_format: AnswerFormat | str = AnswerFormat.COORDINATES,
) -> list[dict[str, Any]]:
    """A row for each instance, as verl's datasets have them; arguments as for ``trl_rows``.

    Args:
      split: ``"train"`` or ``"test"``, a note that verl keeps.
    """
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": text}],
            "ability": "planning",
            "reward_model": {"style": "rule", "ground_truth": level},
            "extra_info": {"split": split, "index": index},
        }
        for index, (text, level) in enumerate(_tasks(instances, optimum, style, answer_format))
    ]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None
) -> float:
    """The accuracy of one answer, as verl calls it; the row's ``ground_truth`` says all that is needed."""
    return float(_accuracies([solution_str], [ground_truth])[0])


def _tasks(
    instances: Instance, optimum: np.ndarray, style: PromptStyle | str, answer_format: AnswerFormat | str
) -> list[tuple[str, str]]:
    """The prompt of each instance, and the level as one text: a record of ``files`` with the optimum."""
    style, answer_format = PromptStyle(style), AnswerFormat(answer_format)
    validate(instances)
    optimum = np.asarray(optimum)
    if optimum.shape != np.shape(instances.size) or optimum.ndim != 1 or optimum.dtype.kind not in "iu":
        raise ValueError(
            f"instances {np.shape(instances.size)} with an optimum of {optimum.dtype} {optimum.shape}: both must be "
            "[n], whole numbers"
        )
    instances = jax.tree.map(np.asarray, instances)
    tasks = []
    for index, (instance, least) in enumerate(zip(instances, optimum, strict=True)):
        if least < 0:
            raise ValueError(f"instance {index} has no known optimum: it must be solved")
        if instance.size > MAX_SIZE or instance.num_agents > MAX_AGENTS:
            raise ValueError(
                f"instance {index} has side {instance.size} and {instance.num_agents} agents: they must be at "
                f"most {MAX_SIZE} and {MAX_AGENTS}"
            )
        level = record(instance, str(index), optimum=int(least))
        tasks.append((prompt(instance, style, answer_format), json.dumps(level)))
    return tasks


def _accuracies(texts: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """Accuracies, float32 ``[batch]``. One program for every board: all are padded to the largest."""
    if len(texts) != len(levels):
        raise ValueError(f"{len(texts)} completions with {len(levels)} levels: there must be one for each")
    if not texts:
        return np.zeros(0, np.float32)
    parts, optima = zip(*map(_read_level, levels), strict=True)
    instances, optimum = stack(parts), np.array(optima, np.int32)
    plans = parse_batch(texts, max_size=MAX_SIZE, max_agents=MAX_AGENTS, max_steps=MAX_STEPS, starts=instances.starts)
    verdicts = verify(instances, plans, optimum)
    return accuracy(np.asarray(verdicts.valid), np.asarray(verdicts.cost), optimum)


@functools.lru_cache(maxsize=1024)  # A group of completions shares its level, and reading takes as long as parsing.
def _read_level(level: str) -> tuple[Instance, int]:
    entry = json.loads(level)
    return from_record(entry, MAX_SIZE, MAX_AGENTS), entry["optimum"]
