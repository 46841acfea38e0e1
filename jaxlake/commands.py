"""What the commands have in common: examples below the help, and mistakes that end in one line. Knows none of them."""

import argparse
import contextlib
from collections.abc import Iterator


def command_parser(module: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser for ``python -m module`` whose help shows description and examples as they are written."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m {module}", None, description, examples, formatter_class=raw)


@contextlib.contextmanager
def mistakes_in_one_line(parser: argparse.ArgumentParser, stopped: str = "stopped", needs: str = "") -> Iterator[None]:
    """Exit with status 2 for what a user can put right, and with 130 for Ctrl-C, instead of a traceback.

    Args:
      parser: the command's.
      stopped: what Ctrl-C says.
      needs: what a module that is not installed would be for.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        parser.exit(2, f"{parser.prog}: error: {error.name} is not installed: {needs}\n")
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"\n{parser.prog}: {stopped}\n")
