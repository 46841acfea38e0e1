"""Eight virtual CPU devices for every test, so that sharding is exercised wherever arrays are placed."""

import os
from pathlib import Path

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()
# Size of XLA's thread pool. A collective between virtual devices blocks a thread of it, and with as few threads as
# devices two collectives once waited for each other until they timed out.
os.environ.setdefault("NPROC", "32")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# GPUs multiply float32 in TF32 otherwise, and log-probabilities differ by .005.
os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reaches for the network fails at once
# `rl` and `engineer` are not installed, and programs that a test starts elsewhere import them too.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))))

import pytest  # noqa: E402  (the variables above come before anything that may import JAX)
from hypothesis import settings  # noqa: E402

settings.register_profile("jaxlake", deadline=None)  # a first example compiles, and a loaded machine stutters
settings.load_profile("jaxlake")

SLOWEST = ("test_notebooks.py", "test_train.py", "test_compare.py", "test_docs.py", "test_checkpoint.py")
"""Files to begin with: a process that gets one of them last keeps the other waiting for minutes."""


def pytest_addoption(parser):
    parser.addoption(
        "--part", default="0/1", metavar="K/N", help="each Nth of the tests from the Kth on, which counts from 0"
    )
    parser.addoption("--update", action="store_true", help="write golden texts anew instead of comparing with them")


@pytest.hookimpl(trylast=True)  # markers have chosen
def pytest_collection_modifyitems(config, items):
    first, parts = map(int, config.getoption("part").split("/"))
    items.sort(key=lambda item: SLOWEST.index(item.path.name) if item.path.name in SLOWEST else len(SLOWEST))
    items[:] = items[first::parts]


@pytest.fixture
def golden(request):
    """Compare a text with a file of the folder ``data`` beside the test; with ``--update``, write it."""

    def check(name, text):
        path = request.path.parent / "data" / name
        if request.config.getoption("--update"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return check


@pytest.fixture(scope="module")
def quick_compilation(tmp_path_factory):
    """Half of the compiler's time, and none for programs that differ in nothing but what the host divides by."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    programs = tmp_path_factory.getbasetemp() / "programs"  # modules share them
    cache = {
        "jax_compilation_cache_dir": jax.config.jax_compilation_cache_dir or str(programs),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in cache}
    for quick, values in ((True, cache), (False, before)):
        jax.config.update("jax_disable_most_optimizations", quick)
        for name, value in values.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        if quick:
            yield
