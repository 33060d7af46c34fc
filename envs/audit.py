"""Ask the advisory service about known faults in the locked packages: `make audit`.

Exit status 1 if there are any, or if a package could not be asked about: silence is no verdict. pip-audit sends the
names and versions of the lock files, and nothing else.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCKS = ("requirements", "torch", "cuda")


def locked() -> list[str]:
    """Every `name==version` of the lock files; markers are left out, what another platform installs counts as well."""
    texts = [(Path(__file__).resolve().parent / f"{name}.lock").read_text() for name in LOCKS]
    pins = re.findall(r"^[A-Za-z0-9._-]+==[^\s;]+", "\n".join(texts), re.MULTILINE)
    return list(dict.fromkeys(pins))


def groups(pins: list[str]) -> list[list[str]]:
    """The pins in groups in which no package stands twice, as pip-audit wants them."""
    found: list[dict[str, str]] = []
    for pin in pins:
        name = pin.partition("==")[0].lower()
        group = next((group for group in found if name not in group), None)
        if group is None:
            found.append(group := {})
        group[name] = pin
    return [list(group.values()) for group in found]


def ask(pins: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each pin. SystemExit, in one line, if it says nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pins.txt")
        file.write_text("\n".join(pins) + "\n")
        command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
        done = subprocess.run([*command, "--format", "json", "-r", str(file)], capture_output=True, text=True)
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        sys.exit(f"make audit: nothing was checked, the advisory service does not answer ({last[:200]})")


def main() -> None:
    """See the module."""
    pins = locked()
    answers = [answer for group in groups(pins) for answer in ask(group)]
    silent = [answer["name"] for answer in answers if "skip_reason" in answer]
    faults = [(answer, fault) for answer in answers for fault in answer.get("vulns", [])]
    for answer, fault in faults:
        fixed = ", ".join(fault.get("fix_versions") or ["no version"])
        print(f"{answer['name']} {answer['version']}: {fault['id']}, fixed in {fixed}")
    if len(silent) == len(pins):
        sys.exit("make audit: nothing was checked, the advisory service knows none of the packages; is it reachable?")
    if silent:
        print(f"make audit: not checked, unknown to the advisory service: {', '.join(silent)}", file=sys.stderr)
    print(f"make audit: {len(pins) - len(silent)} of {len(pins)} packages checked, {len(faults)} known faults")
    sys.exit(1 if faults or silent else 0)


if __name__ == "__main__":
    main()
