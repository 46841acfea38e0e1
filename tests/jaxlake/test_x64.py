"""``JAX_ENABLE_X64=1``, another setting of JAX, changes no result."""

import json
import os
import subprocess
import sys

import core_digest
import pytest


@pytest.mark.heavy
@pytest.mark.parametrize("parts", [[], pytest.param(["--all"], marks=pytest.mark.slow)])
def test_sixty_four_bits_change_no_result(parts):
    # Beside each other: either compiles for most of its time.
    runs = [
        subprocess.Popen(
            [sys.executable, core_digest.__file__, *parts],
            env=os.environ | {"JAX_ENABLE_X64": flag, "JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for flag in ("0", "1")
    ]
    with runs[0], runs[1]:
        (usual, fault), (wide, other_fault) = (run.communicate() for run in runs)
    assert [run.returncode for run in runs] == [0, 0], (fault + other_fault).decode()
    assert json.loads(wide) == json.loads(usual)
