"""Lets the tests of this folder import the module of oracles that lies beside them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
