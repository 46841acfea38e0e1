"""Programs of these tests run once."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick(quick_compilation):
    pass
