"""Model-written code that attacks, and odd code that is right, in the sandbox of this process: prints what came of it.

    python sandbox_attacks.py '["unshare", ...]'

The system calls that are named are refused to this process first, as a container or a kernel without them does.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import tempfile
from pathlib import Path

LAYERS = {"namespaces": ["unshare"], "landlock": ["landlock_create_ruleset"], "seccomp": ["seccomp", "prctl 22"]}
# name -> number, and the first argument, if only that is refused
CALLS = {
    "x86_64": {"unshare": 272, "seccomp": 317, "prctl 22": 157, "landlock_create_ruleset": 444},
    "aarch64": {"unshare": 97, "seccomp": 277, "prctl 22": 167, "landlock_create_ruleset": 444},
}

# each attack by the promise that it breaks; `t` are the targets, and what returns without an error has worked: what is
# not made to be attacked must stay as it is if it does
ATTACKS = """
import ctypes, fcntl, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_long

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result

def must(condition):
    if not condition:
        raise OSError("no")

def others():
    me = os.getpid()
    return [pid for pid in range(max(2, me - 200), me + 200) if pid not in (me, os.getppid(), 1)]

def memory(pid):
    here = ctypes.create_string_buffer(8)
    pair = lambda a, b: (ctypes.c_void_p * 2)(a, b)
    try:
        call("process_vm_readv", pid, pair(ctypes.addressof(here), 8), ctypes.c_long(1), pair(1 << 12, 8),
             ctypes.c_long(1), ctypes.c_long(0))
    except OSError as error:
        if error.errno != 14:
            raise

def own(pid, number):
    reading, writing = os.pipe()
    fcntl.fcntl(reading, 10, number)
    fcntl.fcntl(reading, 8, pid)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b".")

def send(kind, address):
    socket.socket(socket.AF_UNIX, kind).sendto(b"x", address)

def attach(pid):
    call("ptrace", 0x4206, pid, 0, 0)

def any_of(attack, pids):
    for pid in pids:
        try:
            return attack(pid)
        except OSError:
            pass
    raise OSError("none")

def f(t):
    folder, file, pid, parent = os.path.dirname(t["file"]), t["file"], t["process"], t["parent"]
    attacks = {
        "files": [
            lambda: open(file).read(), lambda: open(file, "a").write("x"), lambda: os.listdir(folder),
            lambda: open("/etc/shadow"), lambda: open("/etc/passwd"), lambda: os.listdir(t["home"]),
            lambda: must(os.path.basename(folder) in os.listdir(os.path.dirname(folder))), lambda: open(t["script"]),
            lambda: open("/proc/%d/environ" % parent), lambda: open("/proc/1/environ"),
            lambda: os.chmod(file, 0o777), lambda: os.chmod(folder, 0o700), lambda: os.utime(file, (1, 1)),
            lambda: os.setxattr(file, "user.x", b"1"), lambda: os.removexattr(file, "user.x"),
            lambda: os.chown(file, -1, -1), lambda: os.truncate(file, 0), lambda: os.mkdir(folder + "/new"),
            lambda: os.mkfifo(folder + "/fifo"), lambda: os.symlink("/", folder + "/link"),
            lambda: os.link(file, "stolen"), lambda: os.rename(file, folder + "/moved"), lambda: os.unlink(file),
            lambda: os.chmod(sys.executable, os.stat(sys.executable).st_mode), lambda: open(os.__file__, "a"),
            lambda: os.utime(os.__file__, ns=(os.stat(os.__file__).st_atime_ns, os.stat(os.__file__).st_mtime_ns)),
            lambda: os.close(os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR)), lambda: os.chroot("/"),
            lambda: open("/dev/mem"), lambda: os.chmod("/dev/null", 0o666),
            lambda: call("inotify_add_watch", call("inotify_init1", 0), file.encode(), 2),
        ],
        "network": [
            lambda: socket.create_connection(("127.0.0.1", t["port"]), 1),
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9)),
            lambda: socket.socket(socket.AF_UNIX).connect(t["stream"]),
            lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + t["abstract"]),
            lambda: send(socket.SOCK_DGRAM, t["datagram"]),
            lambda: socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b"x", t["datagram"]),
            lambda: socket.socketpair()[0].sendto(b"x", t["datagram"]),
            lambda: socket.socketpair(type=socket.SOCK_SEQPACKET)[0].sendto(b"x", t["datagram"]),
            lambda: socket.socketpair()[0].connect(t["stream"]),
            lambda: call("syscall", t["sendmsg"], socket.socketpair(type=socket.SOCK_DGRAM)[0].fileno(), None, 0),
            lambda: socket.getaddrinfo("localhost", 80) and socket.create_connection(("localhost", t["port"]), 1),
            lambda: socket.socket(40, socket.SOCK_STREAM), lambda: call("shmat", t["segment"], None, 0),
        ],
        "signals": [
            lambda: os.kill(pid, 0), lambda: os.kill(parent, signal.SIGURG), lambda: signal.pidfd_send_signal(
                os.pidfd_open(pid), signal.SIGURG),
            lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, 8)),
            lambda: os.setpriority(os.PRIO_PROCESS, pid, 19), lambda: os.sched_setaffinity(pid, {0}),
            lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
            lambda: call("syscall", t["ioprio_set"], 1, pid, 3 << 13), lambda: own(pid, signal.SIGKILL),
            lambda: memory(pid), lambda: attach(pid), lambda: open("/proc/%d/mem" % pid, "r+b"),
            lambda: os.kill(-os.getpgid(pid), 0), lambda: call("syscall", 438, os.pidfd_open(pid), 0, 0),
            lambda: call("rt_tgsigqueueinfo", pid, pid, 23, None),
        ],
        "verdict": [
            lambda: any_of(memory, others()), lambda: any_of(attach, others()),
            lambda: any_of(lambda pid: os.kill(pid, 0), others()),
            lambda: any_of(lambda pid: open("/proc/%d/mem" % pid, "rb"), others()),
            lambda: any_of(lambda pid: open("/proc/%d/fd/0" % pid), others()),
            lambda: any_of(lambda pid: call("syscall", 438, os.pidfd_open(pid), 0, 0), others()),
            lambda: any_of(lambda pid: own(pid, signal.SIGURG), others()),
        ],
        "user": [
            lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: must(os.getuid() == 0),
            lambda: os.open("own", os.O_CREAT | os.O_WRONLY) and must(os.stat("own").st_uid == 0),
        ],
        "limits": [
            lambda: must(resource.getrlimit(resource.RLIMIT_AS)[1] < 0),
            lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)), lambda: socket.socket(socket.AF_UNIX).bind("s"),
            lambda: fcntl.fcntl(os.pipe()[0], 1031, 1 << 24) or must(os.getuid() != 0),
        ],
    }
    worked = []
    for promise, tries in attacks.items():
        numbers = []
        for number, attempt in enumerate(tries):
            try:
                attempt()
                numbers.append(str(number))
            except (OSError, ValueError, AttributeError):
                pass
        if numbers:
            worked.append(promise + " " + ",".join(numbers))
    return worked
"""

STYLES = """
import asyncio, concurrent.futures, os, sqlite3, sys, tempfile, threading
import numpy
def recursion():
    sys.setrecursionlimit(20000)
    def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
    return depth(5000) == 5000
def memory():
    kept = bytearray(500 << 20)
    kept[::4096] = b"x" * len(kept[::4096])
    return len(kept) == 500 << 20
def threads():
    found = []
    for thread in [threading.Thread(target=found.append, args=[n]) for n in range(8)]:
        thread.start()
        thread.join()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return found == list(range(8)) and sum(pool.map(abs, range(-9, 0))) == 45
def prints():
    for _ in range(20000): print("x" * 100)
    return True
def events():
    async def one(n):
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: n)
    async def many(): return await asyncio.gather(*map(one, range(5)))
    return asyncio.run(many()) == [0, 1, 2, 3, 4]
def files():
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as file:
        os.makedirs(folder + "/a/b")
        open(folder + "/a/b/c", "w").write("x")
        os.replace(folder + "/a/b/c", folder + "/c")
        return sorted(os.listdir(folder)) == ["a", "c"] and file.write(b"x") == 1
def database():
    base = sqlite3.connect("base")
    base.execute("create table t (n)")
    base.executemany("insert into t values (?)", [(1,), (2,)])
    base.commit()
    return base.execute("select sum(n) from t").fetchone() == (3,)
def arrays():
    return bool(numpy.allclose(numpy.linalg.inv(numpy.eye(50) * 2), numpy.eye(50) / 2))
def fails():
    import importlib.util
    return all(importlib.util.find_spec(name) is None for name in ("pandas", "torch", "specloss", "pip", "docker"))
def f(name): return globals()[name]()
"""
STYLE_NAMES = ["recursion", "memory", "threads", "prints", "events", "files", "database", "arrays", "fails"]


def refuse(names):
    """Have the kernel answer EPERM to these calls of this process and its children."""
    fail, allow = 0x50001, 0x7FFF0000
    code = [(0x20, 0, 0, 0)]
    for name in names:
        number = CALLS[os.uname().machine][name]
        first = name.partition(" ")[2]
        if first:
            code += [(0x15, 0, 4, number), (0x20, 0, 0, 16), (0x15, 0, 1, int(first)), (0x06, 0, 0, fail)]
            code += [(0x20, 0, 0, 0)]
        else:
            code += [(0x15, 0, 1, number), (0x06, 0, 0, fail)]
    code.append((0x06, 0, 0, allow))
    text = b"".join(struct.pack("HBBI", *line) for line in code)

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    if names and libc.prctl(22, 2, ctypes.byref(Program(len(code), text)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def state(pid):
    """What a process could have had done to it."""
    return [
        os.getpriority(os.PRIO_PROCESS, pid),
        sorted(os.sched_getaffinity(pid)),
        os.sched_getscheduler(pid),
        resource.prlimit(pid, resource.RLIMIT_NOFILE),
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "SRD",
    ]


def main():
    """Print, as JSON: uid, layers, promises that are broken, attacks that worked, styles that failed, a refusal."""
    refuse(json.loads(sys.argv[1]))
    sys.path[:0] = sys.argv[2:]
    from specloss.benchmarks.sandbox import Limits, SandboxError, isolation, permitted, run_tests
    from specloss.benchmarks.sandbox.targets import targets

    found = isolation()
    said = {"uid": os.getuid(), "layers": found.layers, "broken": found.broken, "unsafe": found.unsafe, "refusal": ""}
    try:
        permitted()
    except SandboxError as error:
        said["refusal"] = str(error)
    signal.signal(signal.SIGURG, lambda *_: None)
    arm = os.uname().machine == "aarch64"
    with targets() as reach, tempfile.TemporaryDirectory() as home:
        reach |= {"parent": os.getpid(), "home": home, "script": __file__}
        reach |= {"sendmsg": 211 if arm else 46, "ioprio_set": 30 if arm else 251}
        Path(home).chmod(0o755)
        file, before = Path(reach["file"]), state(reach["process"])
        was = file.stat()
        tests = f"worked = f({reach!r})\nassert not worked, '|'.join(worked)"
        if "user" in found.broken:
            raise SystemExit("nothing attacks as root: " + str(found.lines))
        verdict = run_tests(ATTACKS, tests, "f", packages=(), limits=Limits(cpu_seconds=5), sandbox="unsafe")
        worked = verdict.reason.removeprefix("a test failed: ")
        said["worked"] = worked.split("|") if worked.split(" ")[0] in {*found_promises()} else [worked] * bool(worked)
        if state(reach["process"]) != before:
            said["worked"].append("signals: the process has changed")
        if not (file.exists() and file.read_text() == "seen" and file.stat().st_mtime == was.st_mtime
                and file.stat().st_mode == was.st_mode and len(list(file.parent.iterdir())) == 3):  # fmt: skip
            said["worked"].append("files: the file has changed")
    tests = "\n".join(f"assert f({name!r}), {name!r}" for name in STYLE_NAMES)
    said["styles"] = run_tests(STYLES, tests, "f", limits=Limits(cpu_seconds=20), sandbox="unsafe").reason
    print(json.dumps(said))


def found_promises():
    from specloss.benchmarks.sandbox.isolation import PROMISES

    return PROMISES


if __name__ == "__main__":
    main()
