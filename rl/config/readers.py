"""Which student and learner read a setting; one that nothing reads is refused (docs/decisions.md 6), and not kept."""

from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from rl.config.choices import ActorKind, LearnerKind, StudentKind

WRITER, NETWORK, READER = "student.kind=language", "student.actor=network", "student.actor=language"
"""The students by the setting that chooses them: who writes plans; a player that is a network, or a language model."""
PPO, GRPO = "student.learner=ppo", "student.learner=grpo"
"""The learners of a player. Who writes plans learns by GRPO."""
_PLAYERS, _MODELS = (NETWORK, READER), (WRITER, READER)
READERS: dict[str, tuple[str, ...]] = {
    "student.": _PLAYERS,
    "student.kind": (WRITER, NETWORK, READER),
    "student.ppo.": (PPO,),
    "student.network.": (NETWORK,),
    "student.turns.": (READER,),
    "model.": _MODELS,
    "sampler.": _MODELS,
    "text.": (WRITER,),
    "text.max_prompt_tokens": _MODELS,
    "text.early_stop": (WRITER, NETWORK, READER),  # an engineer's thoughts end in it, too
    "warm_start.": _MODELS,
    "warm_start.steps": (WRITER, NETWORK, READER),
    **dict.fromkeys([f"warm_start.{name}" for name in ("instances", "batch", "engineer_every", "holes")], (WRITER,)),
    "rounds.epochs": (WRITER,),
    "grpo.": (WRITER, GRPO),
    # A player's boards lie side by side, its decisions have no tokens, and one program draws and trains them.
    **dict.fromkeys(
        [f"grpo.{name}" for name in ("prompts", "micro_batch", "resampling", "credit", "correction", "engineer_every")],
        (WRITER,),
    ),
    "grpo.gae_lambda": (GRPO,),
    "reward.": (WRITER,),
    "validation.top_": (WRITER,),
    "checkpoint.every_steps": _MODELS,  # a round of a player is saved as a whole, its warm start in steps
}
"""By the beginning of a key who reads it, where these are not all; the longest beginning counts."""


def choices(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return who reads the settings of a run, by its values or those of its file: student, and a player's learner."""
    student = values.get("student")
    student = student if isinstance(student, Mapping) else {}
    if student.get("kind", StudentKind.LANGUAGE) != StudentKind.PLAYER:
        return (WRITER,)
    actor, learner = student.get("actor", ActorKind.NETWORK), student.get("learner", LearnerKind.PPO)
    return f"student.actor={actor}", f"student.learner={learner}"


def is_read(key: str, chosen: tuple[str, ...]) -> bool:
    """Return whether any of those chosen reads a setting."""
    return not {*chosen}.isdisjoint(readers(key))


def readers(key: str) -> tuple[str, ...]:
    """Return the students or the learners that read a setting."""
    beginning = max((name for name in READERS if key.startswith(name)), key=len, default=None)
    return (WRITER, NETWORK, READER) if beginning is None else READERS[beginning]


def given(section: pydantic.BaseModel, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a configuration that its file or an override gives."""
    for name in sorted(section.model_fields_set):
        value = getattr(section, name)
        if isinstance(value, pydantic.BaseModel):
            yield from given(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def read_by(values: Mapping[str, Any], chosen: tuple[str, ...], prefix: str = "") -> dict[str, Any]:
    """Return the values that any of those chosen reads, without sections of which none is left."""
    kept = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            if inner := read_by(value, chosen, f"{prefix}{name}."):
                kept[name] = inner
        elif is_read(f"{prefix}{name}", chosen):
            kept[name] = value
    return kept
