"""Nearly all of these tests compile for longer than they run."""

import pytest

OPTIMIZED = ("test_benchmark.py", "test_large.py", "test_oracles.py", "test_tree.py", "test_x64.py")


@pytest.fixture(scope="module", autouse=True)
def quick(request):
    if request.path.name not in OPTIMIZED:
        request.getfixturevalue("quick_compilation")
