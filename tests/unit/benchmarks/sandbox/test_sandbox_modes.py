"""Every mode of the sandbox keeps the promises that it does not say are broken, or refuses to run anything.

Modes are made as machines make them: the kernel refuses calls to the process that grades, which is root or is not.
"""

import ctypes
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox_attacks import LAYERS

import specloss
from specloss.benchmarks.sandbox.folder import private_folder
from specloss.benchmarks.sandbox.runtime import public

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

SCRIPT = Path(__file__).parent / "sandbox_attacks.py"
ORDINARY, SYS_ADMIN, DROP = 60123, 21, 24
WITHOUT = [lost for count in range(4) for lost in itertools.combinations(LAYERS, count)]
# of them, what machines have: all; no user namespaces (Docker, Ubuntu 24.04)
COMMON = [(), ("namespaces",)]
# what is left keeps all that is essential
SAFE = {(), ("namespaces",), ("landlock",)}
# as the kernel has sockets to the host of a virtual machine, which seccomp alone holds, or has not
ONE_OR_THE_OTHER = {("seccomp",), ("landlock", "seccomp")}


@pytest.fixture(scope="module")
def place():
    """Code and packages where every user can read them: interpreter, script, paths, environment."""
    runtime = public(("numpy", "psutil"))
    with private_folder() as folder:
        code = Path(folder) / "code" / "specloss"
        code.mkdir(parents=True)
        source = Path(specloss.__file__).parent
        shutil.copy(source / "__init__.py", code)
        for room in ("benchmarks", "common"):
            shutil.copytree(source / room, code / room, ignore=shutil.ignore_patterns("__pycache__"))
        script = Path(shutil.copy(SCRIPT, folder))
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        temporary.chmod(0o1777)
        paths = [str(code.parent), *{os.path.dirname(path) for path in runtime.packages}]
        environment = {**runtime.environment, "TMPDIR": str(temporary), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
        yield runtime.interpreter, script, paths, environment


def attacked(place, without, who):
    """What came of all attacks, made by an ordinary user or by root, without some layers."""
    if who != "user" and os.geteuid() != 0:
        pytest.skip("needs root")
    interpreter, script, paths, environment = place
    calls = [call for layer in without for call in LAYERS[layer]]
    options = {}
    if who == "user" and os.geteuid() == 0:
        options = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
    elif who == "root of a container":
        options = {"preexec_fn": lambda: ctypes.CDLL(None).prctl(DROP, SYS_ADMIN, 0, 0, 0)}
    command = [interpreter, "-S", "-B", str(script), json.dumps(calls), *paths]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=200, **options)
    assert done.returncode == 0, done.stderr
    left = list(Path(environment["TMPDIR"]).iterdir())
    assert left == [], "nothing is left behind"
    said = json.loads(done.stdout)
    assert said["uid"] == 0 if who != "user" else said["uid"] != 0
    return said


def check(said, without):
    assert not set(said["layers"]) & set(without)
    broken = {attack.split()[0].rstrip(":") for attack in said["worked"]}
    assert broken <= set(said["broken"]), said["worked"]
    assert said["unsafe"] == bool(said["refusal"])
    if without not in ONE_OR_THE_OTHER:
        assert said["unsafe"] == (without not in SAFE)
    assert said["styles"] == ""


@pytest.mark.parametrize("who", ["user", "root"])
@pytest.mark.parametrize("without", COMMON, ids=lambda lost: " ".join(lost) or "nothing")
def test_what_machines_have_keeps_every_promise_and_right_answers_in_odd_styles_pass(place, who, without):
    check(attacked(place, without, who), without)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["user", "root", "root of a container"])
@pytest.mark.parametrize("without", WITHOUT, ids=lambda lost: " ".join(lost) or "nothing")
def test_every_mode_keeps_what_it_does_not_call_broken_or_refuses(place, who, without):
    said = attacked(place, without, who)
    check(said, without)
    for name in without:
        assert name in said["refusal"] or not said["unsafe"]


def test_a_refusal_says_what_is_not_kept_why_and_what_to_do(place):
    refusal = attacked(place, ("namespaces", "landlock"), "user")["refusal"]
    for part in ("files", "no namespaces: unshare", "no landlock", "sandbox: unsafe", "docs/security.md"):
        assert part in refusal
    assert "\n" not in refusal
