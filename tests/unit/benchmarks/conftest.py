"""The tests of benchmarks share a module of paths."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
