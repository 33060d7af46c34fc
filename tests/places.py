"""Where things are, for tests."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "src/specloss/models/demo"
