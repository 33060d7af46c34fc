"""Ask the advisory service about known faults in the locked packages: `make audit`. Exit status 1 if there are any.

pip-audit sends the names and versions of the lock files, and nothing else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCKS = ("requirements", "torch", "cuda")
UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|Timeout|ServiceError|NameResolution|ProxyError|SSLError|HTTPError"
)


def main() -> None:
    """See the module."""
    pins = {}
    for name in LOCKS:
        text = (Path(__file__).resolve().parent / f"{name}.lock").read_text()
        pins |= {pin: None for pin in re.findall(r"^[A-Za-z0-9._-]+==[^\s;]+", text, re.MULTILINE)}
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        # markers left out: what another platform installs counts as well, and a name may stand there in two versions
        for number, group in enumerate(_without_twins(list(pins))):
            file = Path(folder, f"{number}.txt")
            file.write_text("\n".join(group) + "\n")
            command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
            done = subprocess.run([*command, "-r", str(file)], capture_output=True, text=True)
            if done.returncode and UNREACHABLE.search(done.stderr):
                last = done.stderr.strip().splitlines()[-1]
                sys.exit(f"make audit: the advisory service does not answer, nothing was checked ({last[:160]})")
            print(done.stdout, end="")
            print(done.stderr, end="", file=sys.stderr)
            faults |= done.returncode
    sys.exit(1 if faults else 0)


def _without_twins(pins: list[str]) -> list[list[str]]:
    """The pins in groups in which no package stands twice."""
    groups: list[dict[str, str]] = []
    for pin in pins:
        name = pin.partition("==")[0].lower()
        group = next((group for group in groups if name not in group), None)
        if group is None:
            groups.append(group := {})
        group[name] = pin
    return [list(group.values()) for group in groups]


if __name__ == "__main__":
    main()
