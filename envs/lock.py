"""Write the lock files again: `python envs/lock.py [--upgrade] [arguments of uv pip compile]`. Needs `uv` on the PATH.

requirements.lock  everything but torch and what only some builds of it need
torch.lock         torch, with the hashes of two builds of one version: PyPI's (CUDA) and PyTorch's own for CPUs
cuda.lock          what PyPI's build of torch needs besides
gptq.lock          what the extra `gptq` needs besides, or in other versions

Versions stay what they are unless --upgrade is given, or pyproject.toml asks for others. See install.py for the reason
why they are four.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# SHA-256 of torch 2.13.0+cpu for Linux, CPython 3.11 to 3.14, x86_64 then aarch64, as PyTorch's CPU index lists them
CPU_VERSION = "2.13.0"
CPU_WHEELS = [
    "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
    "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
    "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
    "0b8f7d0423027ae8b90c7977c627f3379f325363a08224dffad9b4b2d684a83d",
    "d20fa53ee744502fa4c69818a720b05ca0d37abd055d4f6e66cae155114bc691",
    "ca021f9eb2f8345c83fa03e3a04587308afb8df71bd472670b3ece00df58621c",
]
BUILD = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")  # what differs between builds of torch
HEADERS = {
    "requirements": "Everything but torch (torch.lock).",
    "torch": "torch: the hashes of PyPI's build (CUDA) and of PyTorch's for CPUs, which is 2.13.0+cpu.",
    "cuda": "What PyPI's build of torch needs besides.",
    "gptq": "What the extra gptq needs besides, or in other versions: envs/install.py --gptq.",
}


def compile_lock(*arguments: str) -> dict[str, str]:
    """Requirements with their markers and hashes, by the line's start `name==version ; marker`, in order."""
    known = "\n".join(path.read_text() for path in HERE.glob("*.lock"))
    # where the versions are that shall stay: an output file that exists
    output = HERE / ".lock"
    output.write_text("\n".join(line for line in known.splitlines() if not line.startswith("#")))
    command = ["uv", "pip", "compile", "pyproject.toml", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet", "--output-file", str(output)]
    try:
        subprocess.run(
            [*command, *arguments],
            check=True,
            cwd=HERE.parent,
            stdout=subprocess.DEVNULL,
        )
        text = output.read_text()
    finally:
        output.unlink()
    everywhere = re.search(r"^torch==\S+( ; .*?)?(?= \\$)", text, re.MULTILINE)  # pyproject's environments, as a marker
    if everywhere and everywhere[1]:
        text = text.replace(f"{everywhere[1]} \\", " \\")
    entries = re.split(r"\n(?=[^\s#])", text.strip())
    return {entry.splitlines()[0].removesuffix(" \\"): entry for entry in entries}


def write(name: str, entries: list[str]) -> None:
    """One lock file."""
    header = f"# {HEADERS[name]} Written by envs/lock.py, installed by envs/install.py."
    (HERE / f"{name}.lock").write_text("\n".join([header, *entries]) + "\n")


def main() -> None:
    """See the module."""
    arguments = sys.argv[1:]
    locked = compile_lock("--group", "dev", *arguments)
    build = {key: entry for key, entry in locked.items() if BUILD.match(key)}
    (torch,) = (key for key in build if key.startswith("torch=="))
    if torch != f"torch=={CPU_VERSION}":
        sys.exit(f"lock.py: {torch} needs the hashes of its CPU wheels in CPU_WHEELS, which are of {CPU_VERSION}")
    extra = compile_lock("--extra", "gptq", *arguments)
    write("requirements", [entry for key, entry in locked.items() if key not in build])
    hashes = dict.fromkeys(re.findall(r"--hash=\S+", build.pop(torch)) + [f"--hash=sha256:{h}" for h in CPU_WHEELS])
    write("torch", [" \\\n    ".join([torch, *sorted(hashes)])])
    write("cuda", list(build.values()))
    pins = {entry.split()[0] for entry in locked.values()}
    write("gptq", [entry for entry in extra.values() if entry.split()[0] not in pins])


if __name__ == "__main__":
    main()
