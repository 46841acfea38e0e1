"""Which student reads a setting: one that nothing reads is refused where it is given, and not kept with a run."""

from collections.abc import Iterator

import pydantic

WRITER, NETWORK, READER = "student.kind=language", "student.actor=network", "student.actor=language"
"""The students by the setting that chooses them: who writes plans; a player that is a network, or a language model."""
_PLAYERS, _MODELS = (NETWORK, READER), (WRITER, READER)
READERS: dict[str, tuple[str, ...]] = {
    "student.actor": _PLAYERS,
    "student.ppo.": _PLAYERS,
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
    "grpo.": (WRITER,),
    "reward.": (WRITER,),
    "validation.top_": (WRITER,),
    "checkpoint.every_steps": _MODELS,  # a round of a player is saved as a whole, its warm start in steps
}
"""By the beginning of a key the students that read it, where these are not all; the longest beginning counts."""


def readers(key: str) -> tuple[str, ...]:
    """Return the students that read a setting."""
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
