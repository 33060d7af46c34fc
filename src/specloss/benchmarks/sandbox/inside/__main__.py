"""What runs in a sandbox: `python <this folder> answer|judge|probe <argument>...`. Only the standard library."""

from __future__ import annotations

import importlib
import sys

if __name__ == "__main__":
    part, *arguments = sys.argv[1:]
    importlib.import_module(part).main(*map(int, arguments))
