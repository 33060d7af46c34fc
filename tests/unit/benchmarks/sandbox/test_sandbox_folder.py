"""Private folders go, whatever code left in them, and a later process removes those of killed ones."""

import os
import sys
import tempfile

import pytest

from specloss.benchmarks.sandbox import folder as folders
from specloss.benchmarks.sandbox import run_tests
from specloss.benchmarks.sandbox.folder import PREFIX, private_folder, remove, sweep
from specloss.benchmarks.sandbox.isolation import isolation

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

MESSES = {
    "deep": "os.chdir(at)\nfor _ in range(1200):\n    os.mkdir('d' * 50)\n    os.chdir('d' * 50)\n"
    "open('file', 'w').close()",
    "no modes": "os.makedirs(at + '/a/b/c')\nopen(at + '/a/b/file', 'w').close()\n"
    "for path in ('/a/b/c', '/a/b', '/a'): os.chmod(at + path, 0)",
    "links": "os.symlink('/', at + '/root')\nos.symlink('nowhere', at + '/dangling')\nos.mkfifo(at + '/pipe')",
    "wide": "for n in range(200): os.mkdir(at + f'/{n}')",
}


@pytest.mark.parametrize("mess", MESSES.values(), ids=MESSES)
def test_a_folder_goes_whatever_is_in_it(tmp_path, mess):
    at = tmp_path / "folder"
    at.mkdir()
    tmp_path.chmod(0o711)
    child = os.fork()
    if child == 0:  # in a process of its own: it changes its folder and its user
        try:
            exec(mess, {"os": os, "at": str(at)})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    remove(str(at))
    assert not at.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be someone else")
def test_an_ordinary_user_removes_folders_without_modes():
    with private_folder() as place:
        os.chmod(place, 0o777)
        child = os.fork()
        if child == 0:
            try:
                os.setgid(60123)
                os.setuid(60123)
                os.mkdir(f"{place}/own")
                exec(MESSES["no modes"], {"os": os, "at": f"{place}/own"})
                remove(f"{place}/own")
                os._exit(os.path.exists(f"{place}/own"))
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("without", [(), ("namespaces",)])
def test_code_that_leaves_deep_folders_fails_nothing_and_leaves_nothing(without):
    code = "import os\ndef f():\n    for _ in range(1000):\n        os.mkdir('d')\n        os.chdir('d')\n    return 1"
    layers = isolation(without).layers
    with private_folder() as place:
        before, tempfile.tempdir = tempfile.tempdir, place
        try:
            verdict = run_tests(code, "assert f() == 1", "f", packages=(), layers=layers)
            assert verdict.passed, verdict.reason
            assert os.listdir(place) == []
        finally:
            tempfile.tempdir = before


def test_folders_of_killed_processes_are_swept_and_those_in_use_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(folders, "_YOUNG", -1.0)
    stale, other = tmp_path / f"{PREFIX}stale", tmp_path / "other"
    stale.mkdir()
    other.mkdir()
    (stale / "file").write_text("left")
    with private_folder() as used:
        sweep.__wrapped__(str(tmp_path))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([os.path.basename(used), "other"])
