"""What a run's engineer reads, in which words: the modules and the template that the settings name."""

from pathlib import Path

from engineer import Context, Template, modules
from rl.config import Config, ConfigError


def read_context(config: Config) -> Context:
    """Return what the run's engineer reads, in which words.

    Raises:
      ConfigError: if `engineer.template` cannot be read or is none.
    """
    settings = config.engineer
    if settings.template in (None, *Template.NAMES):
        return Context(modules(settings.context), Template.shipped(settings.template or Template.NAMES[0]))
    try:
        template = Template.parse(Path(settings.template).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it must be UTF-8 text"
        raise ConfigError(f"engineer.template = {settings.template}: cannot be read: {reason}") from None
    except ValueError as error:
        raise ConfigError(f"engineer.template = {settings.template}: {error}") from None
    return Context(modules(settings.context), template)
