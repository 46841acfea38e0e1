"""Errors that end a command in one line: a mistake of the user's, and a run that cannot continue."""


class RunError(RuntimeError):
    """A problem that stops a run whose configuration is right, told in one line."""


class ConfigError(ValueError):
    """A user's mistake in a configuration or on the command line, told in one line."""
