"""A job of several processes: who is in it, and what each knows of the others."""

import contextlib

import jax
import numpy as np
import pytest
from pairs import run_pair

from rl import distributed
from rl.config import Config
from rl.run.checkpoint import Checkpoints
from rl.run.directory import RunDirectory

JOIN = """
import sys
from pathlib import Path
import numpy as np
from rl import distributed
port, me, folder = sys.argv[1:]
distributed.initialize(f"127.0.0.1:{port}", 2, int(me))
import jax
from rl.config import Config, ConfigError
me = jax.process_index()
def refused(work, message):
    try:
        work()
    except ConfigError as error:
        assert message in str(error), error
    else:
        raise AssertionError("not refused")
"""
AGREE = """
assert jax.device_count() == 8 and distributed.is_main() == (me == 0)
assert distributed.share(10, "things") == slice(5 * me, 5 * me + 5)
few = "student.learn.prompts = 7: must be a multiple of the 2 processes of this job"
refused(lambda: distributed.share(7, "student.learn.prompts"), few)
got = distributed.all_gather({"x": np.full((2, 3), me + .5, np.float32), "n": np.array([me]), "b": np.array([me == 1])})
assert got["x"].tolist() == [[0.5] * 3] * 2 + [[1.5] * 3] * 2
assert got["n"].tolist() == [0, 1] and got["n"].dtype == np.int64
assert got["b"].tolist() == [False, True]
assert distributed.agree(me == 1) and not distributed.agree(False)
assert distributed.is_same("text") and not distributed.is_same(f"text {me}")
"""
SAVE = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from rl.run.checkpoint import Checkpoints, Snapshot, Unreadable
from rl.run.progress import Progress
from rl.run.directory import RunDirectory

rows = NamedSharding(Mesh(np.array(jax.devices()), ("fsdp",)), P("fsdp"))
def values(number):
    return np.arange(160, dtype=np.float32).reshape(16, 10) + number
checkpoints = Checkpoints(Path(folder) / "run" / "checkpoints", 2)
for number in (1, 2):
    w = jax.make_array_from_process_local_data(rows, values(number)[distributed.share(16, "rows")])
    checkpoints.save(Snapshot(Progress(step=number), {"w": w}))
checkpoints.close()
# One process cannot read the last checkpoint: both go back to the one before, and neither waits for the other.
load = checkpoints._load
def torn(step, wanted):
    if step == 2:
        raise Unreadable("torn")
    return load(step, wanted)
if me == 1:
    checkpoints._load = torn
said = []
like = {"w": jax.ShapeDtypeStruct((16, 10), np.float32, sharding=rows)}
restored = checkpoints.restore(lambda saved: like, said.append)
assert restored.progress.step == 1
for shard in restored.arrays["w"].addressable_shards:
    assert (np.asarray(shard.data) == values(1)[shard.index]).all()
assert said and ("torn" if me == 1 else "cannot be read (by another process)") in said[0], said
refused(lambda: RunDirectory(Path(folder) / "taken", Config()), "in use by")
print("done")
"""


@pytest.mark.heavy
def test_two_processes_share_gather_and_agree_on_the_checkpoint_and_on_whose_the_folder_is(tmp_path):
    with contextlib.closing(RunDirectory(tmp_path / "taken", Config())) as mine:
        mine.create()
        assert all("done" in output for output in run_pair(JOIN + AGREE + SAVE, str(tmp_path)))
    # What two processes saved, one reads, on another mesh.
    alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    like = {"w": jax.ShapeDtypeStruct((16, 10), np.float32, sharding=alone)}
    restored = Checkpoints(tmp_path / "run" / "checkpoints", 2).restore(lambda saved: like, pytest.fail)
    expected = np.arange(160, dtype=np.float32).reshape(16, 10) + 1
    np.testing.assert_array_equal(np.asarray(restored.arrays["w"]), expected)


def test_who_belongs_together_is_left_to_slurm(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda *arguments: joined.append(arguments))
    for tasks, calls in ((None, []), ("1", []), ("2", [()])):
        if tasks:
            monkeypatch.setenv("SLURM_STEP_NUM_TASKS", tasks)
        distributed.initialize()
        assert joined == calls
