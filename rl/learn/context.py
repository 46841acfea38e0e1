"""The context of a run's engineer: the modules and the template that the settings name."""

from pathlib import Path

from engineer import Context, Template, modules
from rl.config import ConfigError, EngineerSection


def read_context(settings: EngineerSection) -> Context:
    """Return what an engineer reads, in which words; ConfigError if `engineer.template` cannot be read or is none."""
    shown, name = modules(settings.context), settings.template or Template.NAMES[0]
    if name in Template.NAMES:
        return Context(shown, Template.shipped(name))
    try:
        return Context(shown, Template.parse(Path(name).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(f"engineer.template = {name}: {error}") from None
