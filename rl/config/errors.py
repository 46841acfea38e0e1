"""Errors that end a command in one line: a mistake of the user's, and a run that cannot go on."""


class RunError(RuntimeError):
    """What stops a run though nothing in its configuration is wrong, in one line."""


class ConfigError(ValueError):
    """A user's mistake in a configuration, in one line."""
