"""Commands in a notebook's own process: live progress, the button that interrupts, an error that ends the cell."""

import importlib
import shlex


class CommandEnded(RuntimeError):
    """A command did not do all of its work; why, it has said itself."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # all that IPython shows: the traceback would be of this file alone


def run(command: str) -> None:
    """Runs a command of this project, such as ``rl.train --run runs/a seed=1``, as ``python -m`` does in a terminal.

    Interrupted, it saves and stops; the same cell goes on from there.

    Raises:
      CommandEnded: if it was stopped, or ended with an error.
    """
    name, *arguments = shlex.split(command)
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):  # a package, as rl.sft is
        module = importlib.import_module(f"{name}.__main__")
    try:
        code = module.main(arguments)
    except SystemExit as error:  # of argparse, which has told what it does not understand
        code = error.code
    if code == 130:
        raise CommandEnded(f"{name}: stopped; run this cell again to go on")
    if code:
        raise CommandEnded(f"{name}: ended with an error (exit code {code}), see above")
