"""Executes notebooks: in place, with their outputs; or quickly, at tiny
settings, to see that every cell still runs.

The kernel is the Python that runs this, and works in a folder of its own that
is thrown away.

Quick settings are a notebook's own: one code cell has the tag ``parameters``
and holds plain assignments, such as ``STEPS = 300``; the notebook's metadata
holds ``{"jaxlake": {"quick": {"STEPS": 5}}}``. With --quick these assignments
are appended to that cell, and the same cells are executed.

examples:
  python notebooks/execute.py
      all of this folder; outputs are written back
  python notebooks/execute.py notebooks/01_quickstart.ipynb
  python notebooks/execute.py --quick
      writes nothing
"""

import argparse
import ast
import itertools
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

FOLDER = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 if a cell fails, 2 if a file is no notebook as agreed."""
    parser = argparse.ArgumentParser(
        prog="python notebooks/execute.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="at tiny settings; writes nothing")
    parser.add_argument("notebooks", type=Path, nargs="*", metavar="NOTEBOOK", help="default: all of this folder")
    options = parser.parse_args(arguments)
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        began = time.monotonic()
        try:
            notebook = nbformat.read(path, as_version=4)
            if options.quick:
                apply_quick(notebook)
            execute(notebook)
        except (OSError, ValueError, CellExecutionError, DeadKernelError) as error:
            failed = isinstance(error, CellExecutionError | DeadKernelError)
            where = f"code cell {begun(notebook)}: " if failed else ""
            why = f"{error.ename}: {error.evalue}" if isinstance(error, CellExecutionError) else str(error)
            print(f"{path}: {where}{why.strip().splitlines()[0]}", file=sys.stderr)
            return 1 if failed else 2
        if not options.quick:
            nbformat.write(tidied(notebook), path)
        print(f"{path}: {time.monotonic() - began:.0f} s", flush=True)
    return 0


def apply_quick(notebook: NotebookNode) -> None:
    """Append a notebook's quick settings to its cell of parameters.

    Raises:
      ValueError: if there is no such cell, or it does not assign what the settings name.
    """
    quick = notebook.metadata.get("jaxlake", {}).get("quick", {})
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1 or not quick:
        raise ValueError("needs one cell with the tag parameters, and jaxlake.quick in its metadata")
    known = {
        name.id
        for statement in ast.parse(cells[0].source).body
        if isinstance(statement, ast.Assign)
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    if unknown := quick.keys() - known:
        raise ValueError(f"jaxlake.quick sets {', '.join(sorted(unknown))}; the cell of parameters does not assign it")
    cells[0].source += "\n" + "\n".join(f"{name} = {value!r}" for name, value in quick.items())


def execute(notebook: NotebookNode) -> None:
    """Execute all cells in a folder that is thrown away; outputs and counts are in the notebook afterwards.

    Raises:
      CellExecutionError, DeadKernelError: the cell is the last one with a count.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None

    def begin(cell: NotebookNode, cell_index: int) -> None:
        cell.execution_count = begun(notebook) + 1

    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            km=AsyncKernelManager(kernel_spec_manager=KernelSpecManager(kernel_dirs=[])),  # none but the running Python
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],  # or it warns of connections that do not leave this machine
            timeout=None,
            record_timing=False,
            on_cell_execute=begin,
        )
        client.execute(cleanup_kc=True)


def begun(notebook: NotebookNode) -> int:
    """How many code cells were begun."""
    return sum(cell.get("execution_count") is not None for cell in notebook.cells)


def tidied(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook to commit: outputs as a reader sees them, nothing of the machine that made them."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    notebook.metadata.pop("widgets", None)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join what was printed in one go to one output; of a line that overwrote itself, keep the last state."""
    found = []
    for name, group in itertools.groupby(outputs, key=lambda output: output.get("name")):
        if name is None:
            found += group
        else:
            lines = "".join(output.text for output in group).split("\n")
            text = "\n".join(line.rpartition("\r")[2] for line in lines)
            found += [nbformat.v4.new_output("stream", name=name, text=text)] if text else []
    return found


if __name__ == "__main__":
    sys.exit(main())
