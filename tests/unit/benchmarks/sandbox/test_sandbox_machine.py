"""Attacks on the machine: under all layers that it allows, and with the two strongest left out in turn."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from specloss.benchmarks.sandbox import Limits, isolation, run_tests
from specloss.benchmarks.sandbox.folder import private_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

SETUPS = {"all": (), "no-namespaces": ("namespaces",), "no-seccomp": ("seccomp",)}
ROOMY = Limits(cpu_seconds=5, memory_bytes=1 << 29, disk_bytes=8 << 20)
TIGHT = Limits(cpu_seconds=1, wall_seconds=3, memory_bytes=1 << 28)


@pytest.fixture(params=SETUPS)
def box(request):
    return isolation(SETUPS[request.param])


@pytest.fixture
def marker(monkeypatch, tmp_path):
    """A text that only processes of this test have, in their environment or arguments: the folder of their boxes."""
    with private_folder() as place:
        monkeypatch.setattr(tempfile, "tempdir", place)
        yield place


def processes_with(marker):
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker.encode() in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def keeps(box, promise):
    if promise in box.broken:
        pytest.skip("; ".join(box.lines))


def works(box, code, *arguments, limits=ROOMY):
    """Whether the function `f` of the code says that its attack worked."""
    calls = ", ".join(map(repr, arguments))
    return run_tests(code, f"assert f({calls}) is True", "f", packages=(), limits=limits, layers=box.layers).passed


def test_a_harmless_function_passes(box, marker):
    assert works(box, "def f(x): return x == 1", 1)
    assert processes_with(marker) == []


@pytest.mark.parametrize(
    "attempt",
    ["open(path).read()", "open(path, 'a').write('x')", "os.listdir(os.path.dirname(path))", "os.mkdir(path + 'd')"],
)
def test_files_outside_can_neither_be_read_nor_written(box, marker, tmp_path_factory, attempt):
    keeps(box, "files")
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_text("seen")
    assert not works(box, f"import os\ndef f(path):\n    {attempt}\n    return True", str(folder / "secret"))
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("secret", "seen")]


@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/1/environ", str(Path.home()), __file__])
def test_the_machines_own_files_are_not_there(box, marker, path):
    keeps(box, "files")
    assert not works(box, "import os\ndef f(path):\n    os.path.isdir(path) and os.listdir(path) or open(path)", path)


def test_sockets_reach_nobody(box, marker, tmp_path):
    keeps(box, "network")
    (tmp_path / "s").mkdir()
    tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with tcp, udp, unix, abstract:
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", 0))
        os.chdir(tmp_path / "s")
        unix.bind("unix")  # a relative path: absolute ones are limited to 107 bytes
        os.chdir("/")
        abstract.bind(f"\0{os.getpid()}-specloss-test")
        for server in (tcp, unix, abstract):
            server.listen(1)
        for server in (tcp, udp, unix, abstract):
            server.setblocking(False)
        code = """
import os, socket
def f(tcp, udp, folder, abstract):
    def send():
        socket.socket(type=socket.SOCK_DGRAM).sendto(b".", ("127.0.0.1", udp))
    def unix():
        os.chdir(folder)
        socket.socket(socket.AF_UNIX).connect("unix")
    worked = []
    for attempt in (lambda: socket.create_connection(("127.0.0.1", tcp), 1), send, unix,
                    lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + abstract),
                    lambda: socket.getaddrinfo("localhost", 80)[0][4][0] == "example"):
        try:
            worked.append(bool(attempt() is not False))
        except OSError:
            pass
    return any(worked)
"""
        ports = [server.getsockname()[1] for server in (tcp, udp)]
        assert not works(box, code, *ports, str(tmp_path / "s"), f"{os.getpid()}-specloss-test")
        for server in (tcp, unix, abstract):
            with pytest.raises(BlockingIOError):
                server.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)


@pytest.mark.parametrize("target", ["os.getppid()", "-1", "0", "1", "the test"])
def test_killing_others_ends_at_most_the_box(box, marker, target):
    keeps(box, "signals")
    target = target.replace("the test", str(os.getpid()))
    works(box, f"import os\ndef f():\n    os.kill({target}, 9)\n    return True")
    assert processes_with(marker) == []


def test_the_code_is_not_root_and_has_no_way_to_become_it(box, marker):
    keeps(box, "user")
    code = """
import ctypes, os
def f():
    libc = ctypes.CDLL(None)
    new_user_namespace = 0x10000000
    for attempt in (lambda: os.setuid(0), lambda: os.setgroups([0]), lambda: os.chroot("/")):
        try:
            attempt()
            return True
        except OSError:
            pass
    return os.getuid() == 0 or libc.mount(b"none", b"/", b"tmpfs", 0, None) == 0
"""
    assert not works(box, code)


BOMBS = {
    "fork bomb": "import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "threads": "import threading\ndef f():\n    while True:\n        try: threading.Thread(target=f).start()\n"
    "        except RuntimeError: pass",
    "double fork": """
import os, time
def f():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    return False
""",
    "a child in a session of its own that ignores signals": """
import os, signal, time
def f():
    if os.fork() == 0:
        os.setsid()
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(1000)
    os._exit(0)
""",
}


@pytest.mark.parametrize("code", BOMBS.values(), ids=BOMBS)
def test_no_process_is_left_behind(box, marker, code):
    keeps(box, "processes")
    assert not works(box, code, limits=TIGHT)
    assert processes_with(marker) == []


HOGS = {
    "sleeps for ever": "import time\ndef f():\n    while True: time.sleep(1000)",
    "computes for ever": "def f():\n    while True: pass",
    "computes for ever and catches the signal of the CPU limit": "import signal\n"
    "signal.signal(signal.SIGXCPU, lambda *_: None)\ndef f():\n    while True: pass",
    "blocks all signals": "import signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\n"
    "def f():\n    while True: time.sleep(1000)",
    "stops itself": "import os, signal, time\ndef f():\n    try: os.kill(os.getpid(), signal.SIGSTOP)\n"
    "    finally: time.sleep(1000)",
    "prints for ever": "def f():\n    while True: print('x' * 10000)",
    "writes for ever to every handle": "import os\ndef f():\n    while True:\n        for n in range(64):\n"
    "            try: os.write(n, b'x' * 60000)\n            except OSError: pass",
    "answers with far too much": "def f(): return ['x' * 1000] * 10**6",
    "iterates for ever": "import itertools\ndef f(): return itertools.count()",
    "memory bomb": "def f():\n    kept = []\n    while True: kept.append(bytearray(10**7))",
    "memory bomb that will not stop": "def f():\n    kept = []\n    while True:\n"
    "        try: kept.append(bytearray(10**7))\n        except MemoryError: pass",
    "shared memory": "import mmap\ndef f():\n    kept = []\n    while True: kept.append(mmap.mmap(-1, 10**7))",
    "recurses for ever": "def f(): return f()",
    "recurses past the interpreter's limit": "import sys\nsys.setrecursionlimit(10**9)\n"
    "class A:\n    def __getattr__(self, name): return getattr(self, name)\ndef f(): return A().x",
    "compiles something huge": "def f(): return eval('(' * 100000 + ')' * 100000)",
    "a huge integer": "def f(): return 9 ** 9 ** 9",
}


@pytest.mark.parametrize("code", HOGS.values(), ids=HOGS)
def test_what_never_ends_or_takes_everything_is_ended_and_fails(marker, code):
    assert not works(isolation(), code, limits=TIGHT)
    assert processes_with(marker) == []


def test_a_disk_is_not_filled(box, marker):
    keeps(box, "disk")
    code = """
def f(limit):
    written = 0
    try:
        for number in range(1000):
            with open(f"file{number}", "wb", buffering=0) as file:
                while written < limit:
                    written += file.write(bytes(2**16))
    except OSError:
        return False
    return True
"""
    assert works(box, code, ROOMY.disk_bytes // 2)
    assert not works(box, code, ROOMY.disk_bytes * 2)


def test_one_file_is_bounded_on_any_machine(box, marker):
    code = "def f(size):\n    open('file', 'wb').write(bytes(size))\n    return True"
    assert not works(box, code, ROOMY.disk_bytes * 2)


def test_environment_and_open_files_are_not_inherited(box, marker, monkeypatch):
    monkeypatch.setenv("SPECLOSS_SECRET", "seen")
    code = """
import os, stat
def f():
    handles = []
    for number in range(64):
        try:
            handles.append(os.fstat(number).st_mode)
        except OSError:
            pass
    pipes = sum(map(stat.S_ISFIFO, handles))
    return "SPECLOSS_SECRET" in os.environ or pipes != 2 or len(handles) != 5
"""
    with open(__file__):
        assert not works(box, code)


def test_neighbours_pass_beside_attackers(marker):
    verdicts = []

    def attack(code):
        works(isolation(), code, limits=TIGHT)

    attackers = [threading.Thread(target=attack, args=[code]) for code in (BOMBS["fork bomb"], HOGS["memory bomb"])]
    for thread in attackers:
        thread.start()
    for value in range(3):
        verdicts.append(works(isolation(), "def f(x): return x >= 0", value))
    for thread in attackers:
        thread.join()
    assert verdicts == [True, True, True]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_grader_is_killed(box, marker, number):
    keeps(box, "processes")
    program = f"""
import tempfile
tempfile.tempdir = {marker!r}
from specloss.benchmarks.sandbox import run_tests
code = "import ctypes, time\\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\\ntime.sleep(1000)"
run_tests(code, "f()", "f", layers={box.layers!r})
"""
    grader = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while len(processes_with(marker)) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(processes_with(marker)) >= 5  # the grader, two launchers, two programs
    grader.send_signal(number)
    grader.wait()
    while processes_with(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(marker) == []


def test_what_a_machine_does_not_enforce_is_said_in_a_line_each():
    weak = isolation(("namespaces", "user", "landlock", "seccomp"))
    assert {"files", "network", "processes"} <= set(weak.broken)
    assert len(weak.lines) == len(weak.broken)
    assert all(line.startswith("the sandbox cannot ") and "\n" not in line for line in weak.lines)
    assert isolation(("namespaces",)).refused["namespaces"] == "left out"
