"""The fixed sets as rows for other programs, in JSON lines and Parquet; solves and draws nothing."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

from jaxlake.files import Record, record, write_whole
from jaxlake.fixed_sets import Benchmark
from jaxlake.text import PromptStyle, prompt
from jaxlake.types import ABSENT

FORMATS = ("jsonl", "parquet")


def rows(benchmark: Benchmark) -> Iterator[Record]:
    """Yield a record for each instance, as ``files.record`` has it, with the set's other columns and the prompts.

    ``prompt`` is the terse line, ``prompt_grid`` and ``prompt_verbose`` draw the board and state the answer's format:
    None for more agents than letters, as optimum, makespan and need of a wait are where the optimum is not known.
    """
    for index, (identifier, instance) in enumerate(zip(benchmark.ids, benchmark.instances, strict=True)):
        drawn = instance.num_agents <= len(ascii_lowercase)
        row = record(
            instance,
            identifier,
            optimum=benchmark.optimum[index],
            lower_bound=benchmark.lower_bound[index],
            needs_wait=benchmark.needs_wait[index],
        ) | {
            "makespan": int(benchmark.makespan[index]),
            "family": str(benchmark.family[index]),
            "hole_ratio": float(benchmark.hole_ratio[index]),
            "wait_subset": float(benchmark.wait_subset[index]),
            "prompt": prompt(instance, PromptStyle.COORDINATES),
            "prompt_grid": prompt(instance, PromptStyle.GRID) if drawn else None,
            "prompt_verbose": prompt(instance, PromptStyle.VERBOSE) if drawn else None,
        }
        unknown = ("optimum", "makespan", "needs_wait") if row["optimum"] == ABSENT else ()
        yield row | dict.fromkeys(unknown)


def export(benchmark: Benchmark, folder: Path, form: str) -> Path:
    """Write ``<set>.<form>`` into a folder, made if missing; ``datasets.load_dataset(folder)`` takes it for a split."""
    if form == "jsonl":
        content = "".join(f"{json.dumps(row)}\n" for row in rows(benchmark)).encode()
    else:
        import pyarrow
        import pyarrow.parquet

        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows(benchmark))), buffer)
        content = buffer.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{benchmark.name}.{form}"
    write_whole(path, content)
    return path
