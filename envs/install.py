"""Install the locked packages, each checked against its hash: `PYTHON envs/install.py [--gptq] [pip's arguments]`.

They go into the environment of the interpreter that runs this. The Makefile, the containers and conda's users call it.

Not one lock file but four, because torch is two builds of one version: PyPI's needs 3 GB of CUDA libraries, PyTorch's
own for CPUs needs none. torch.lock has the hashes of both, so that the index of this machine decides which comes, and
cuda.lock is installed only if the build that came asks for it. pip resolves nothing (`--no-deps`): the files are
complete, which `pip check` confirms at the end. The extra gptq is the exception: gptqmodel wants an older numpy than
the plugin for Slurm.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
NEEDS_CUDA = """
import importlib.metadata, json
print(json.dumps(any(line.startswith(("nvidia-", "cuda-")) for line in importlib.metadata.requires("torch") or ())))
"""


def install(name: str, arguments: list[str]) -> None:
    """Install a lock file. CalledProcessError if pip fails."""
    pip("install", "-qq", "--require-hashes", "--no-deps", "-r", str(HERE / f"{name}.lock"), *arguments)


def install_torch(arguments: list[str]) -> None:
    """The build that this machine's index gives. With hashes pip would rather have one whose link names its hash."""
    version = re.search(r"^torch==\S+", (HERE / "torch.lock").read_text(), re.MULTILINE)
    assert version, "torch.lock names no torch"
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "-qq", "--no-deps", "--dest", folder, version[0])
        install("torch", ["--no-index", "--find-links", folder, *arguments])


def pip(*arguments: str) -> None:
    """Run pip of this interpreter."""
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True)


def main() -> None:
    """See the module."""
    arguments = sys.argv[1:]
    gptq = "--gptq" in arguments
    arguments = [argument for argument in arguments if argument != "--gptq"]
    try:
        install("requirements", arguments)
        install_torch(arguments)
        # another process: torch came after this one started
        needs = subprocess.run([sys.executable, "-c", NEEDS_CUDA], check=True, stdout=subprocess.PIPE)
        if json.loads(needs.stdout):
            install("cuda", arguments)
        if gptq:
            # gptqmodel is built from source, against the torch that is here
            install("gptq", ["--no-build-isolation", *arguments])
        else:
            pip("check", "-q")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
