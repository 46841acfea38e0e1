"""Parts that commands share: examples below the help, and mistakes that end in one line. Knows none of them."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path


def command_parser(module: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Return a parser for ``python -m module`` whose help shows description and examples as they are written."""
    raw = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m {module}", None, description, examples, formatter_class=raw)


def local_path(text: str) -> Path:
    """Return the path that an argument names, ``~`` for the home; ArgumentTypeError for an address, as a bucket's."""
    if "://" in text:
        raise argparse.ArgumentTypeError(f"{text} must be a path on this machine; mount the bucket, or copy its files")
    return Path(os.path.expanduser(text))


@contextlib.contextmanager
def mistakes_in_one_line(parser: argparse.ArgumentParser, stopped: str = "stopped", needs: str = "") -> Iterator[None]:
    """Exit with 2 for mistakes and missing modules (saying what ``needs`` them), with 130 for Ctrl-C (``stopped``).

    Warnings are lines on stderr too.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"{parser.prog}: {message}", file=sys.stderr)
            yield
    except ModuleNotFoundError as error:
        parser.exit(2, f"{parser.prog}: error: {error.name} is not installed: {needs}\n")
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, f"\n{parser.prog}: {stopped}\n")
