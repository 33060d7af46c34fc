"""Attacks on the verdict: code that does not compute the answer never passes, whatever else it does."""

import sys

import pytest

from specloss.benchmarks.sandbox import Limits, run_tests

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

TESTS = """
import math
import numpy as np
assert isinstance(f(2), (int, float)), "no number"
assert f(2) == 5
assert math.isclose(f(4), 17)
assert np.allclose(f(3), 10.0)
"""
SECRET = 4242424243

FORGERIES = {
    "exits at once": "import sys\nsys.exit(0)",
    "exits in the call": "import sys\ndef f(x): sys.exit(0)",
    "exits without clean-up": "import os\nos._exit(0)",
    "exits in the call without clean-up": "import os\ndef f(x): os._exit(0)",
    "exits as the launcher does when it fails": "import os\nos._exit(125)",
    "raises SystemExit": "def f(x): raise SystemExit(0)",
    "raises AssertionError": "def f(x): raise AssertionError('passed')",
    "raises KeyboardInterrupt": "def f(x): raise KeyboardInterrupt",
    "exits at the end": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0",
    "defines nothing": "pass",
    "is no Python": "def f(x) return 5",
    "holds a null byte": "def f(x): return 5\0",
    "another function of that name": "f = print",
    "overwrites print": "import builtins\nbuiltins.print = lambda *_: None\ndef f(x): return 0",
    "overwrites isinstance": "import builtins\nbuiltins.isinstance = lambda *_: True\ndef f(x): return 0",
    "overwrites AssertionError": "import builtins\nbuiltins.AssertionError = ValueError\ndef f(x): return 0",
    "overwrites all of builtins": "import builtins\nfor n in dir(builtins):\n"
    "    if n not in ('dir', 'setattr', 'builtins'): setattr(builtins, n, lambda *_, **__: True)\ndef f(x): return 0",
    "overwrites import": "import builtins\nbuiltins.__import__ = lambda *_: None\ndef f(x): return 0",
    "overwrites isclose": "import math\nmath.isclose = lambda *_, **__: True\ndef f(x): return 0",
    "overwrites NumPy": "import numpy\nnumpy.allclose = lambda *_, **__: True\ndef f(x): return 0",
    "an integer equal to all": "class A(int):\n    __eq__ = lambda *_: True\n    __ne__ = lambda *_: False\n"
    "    __hash__ = int.__hash__\ndef f(x): return A(0)",
    "a float equal to all": "class A(float):\n    __eq__ = lambda *_: True\n    __sub__ = lambda *_: 0\n"
    "    __rsub__ = lambda *_: 0\ndef f(x): return A(0)",
    "an object equal to all": "class A:\n    __eq__ = lambda *_: True\n    __array__ = lambda *_, **__: 5\n"
    "    __float__ = lambda _: 5.0\ndef f(x): return A()",
    "an object whose class lies": "class A:\n    __class__ = int\n    __eq__ = lambda *_: True\ndef f(x): return A()",
    "an array of another shape": "import numpy\ndef f(x): return numpy.array([5.0, 10.0, 17.0])",
    "an empty list, which NumPy finds close to all": "def f(x): return []",
    "an empty array": "import numpy\ndef f(x): return numpy.array([])",
    "not a number": "def f(x): return float('nan')",
    "infinity": "def f(x): return float('inf')",
    "a coroutine": "async def f(x): return x * x + 1",
    "itself": "def f(x): return f",
    "a list of itself": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "writes a verdict to every handle": "import os\ndef f(x):\n    for n in range(64):\n"
    '        try: os.write(n, b\'{"passed": true, "reason": ""}\')\n        except OSError: pass',
    "sends what is no message": "import os\ndef f(x):\n    for n in range(3, 64):\n"
    "        try: os.write(n, bytes(100))\n        except OSError: pass",
    "sends a message of a class": "import wire\nwire.encode = lambda _: {'__class__': ['x']}\ndef f(x): return 0",
    "sends a message that says passed": "import wire\nsend = wire.send\n"
    "wire.send = lambda s, _: send(s, ['passed', True])\ndef f(x): return 0",
    "sends an array of objects": "import wire\nwire.encode = lambda _: {'array': ['|O', [1], 'AAAAAAAAAAA=']}\n"
    "def f(x): return 0",
    "catches the harness's errors": "import wire\ndef f(x):\n    try: raise EOFError\n    except BaseException: return",
    "replaces the harness": "import sys\nfor n in list(sys.modules):\n    sys.modules[n] = None\ndef f(x): return 0",
    "a profile that ends the tests": "import sys\nsys.setprofile(lambda *_: None)\nsys.settrace(lambda *_: None)\n"
    "def f(x): return 0",
    "kills the tests": "import os\ndef f(x):\n    for n in range(2, 200):\n        try: os.kill(n, 9)\n"
    "        except OSError: pass\n    return 0",
    "runs a judge of its own": "import judge\ndef f(x): return judge.main(0, 1)",
}


@pytest.mark.parametrize("answer", FORGERIES.values(), ids=FORGERIES)
def test_code_that_does_not_compute_the_answer_fails(answer):
    verdict = run_tests(answer, TESTS, "f", limits=Limits(cpu_seconds=3))
    assert not verdict.passed
    assert verdict.reason and "\n" not in verdict.reason


def test_code_that_computes_the_answer_passes():
    assert run_tests("def f(x): return x * x + 1", TESTS, "f").passed


@pytest.mark.parametrize(
    "search",
    [
        "any(secret in vars(o).values() for o in gc.get_objects() if hasattr(o, '__dict__'))",
        "any(secret in o for o in gc.get_objects() if type(o) in (list, tuple, set))",
        "any(secret in o.values() for o in gc.get_objects() if type(o) is dict and o is not globals())",
        "any(str(secret) in str(v) for f in frames() for s in (f.f_globals, f.f_locals) if s is not globals()"
        " for k, v in s.items() if k not in ('secret', 'code'))",
        "any(str(secret) in open(os.path.join(d, n), errors='replace').read()"
        " for d, _, ns in os.walk(os.getcwd()) for n in ns)",
    ],
)
def test_expected_values_are_not_in_the_process_of_the_code(search):
    # the code knows half of the number, so that its own text does not hold it
    code = f"""
import gc, os, sys
def frames():
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back
def f(x):
    secret = {SECRET - 1} + x
    gc.collect()
    found = {search}
    return secret if found else 0
"""
    assert not run_tests(code, f"assert f(1) == {SECRET}", "f").passed


@pytest.mark.parametrize(
    "value",
    [
        "None", "True", "-3", "2.5", "float('inf')", "'text \\ud800'", "b'bytes'", "3 + 4j", "10 ** 6000", "[1, [2.0]]",
        "(1, (2, 'x'))", "{1, 2}", "frozenset({(1, 2)})", "{(1, 2): [3], None: {}}", "range(3)", "bytearray(b'x')",
        "__import__('collections').Counter('aab')", "__import__('collections').deque([1, 2])",
        "__import__('fractions').Fraction(1, 3)", "__import__('decimal').Decimal('1.10')", "{1: 2}.keys()",
        "{1: 2}.items()", "__import__('collections').OrderedDict(a=1)", "__import__('numpy').float32(1.5)",
        "__import__('collections').namedtuple('P', 'x y')(1, 2)", "[('a', 'b'), ('b', 'a')] * 1000",
        "[(1.5,), (float('inf'),)] * 1000", "[(1.0, True, 1)] * 1000", "[([],)] * 1000",
    ],
)  # fmt: skip
def test_values_arrive_equal_and_of_the_same_kind(value):
    tests = f"expected = {value}\nassert f(expected) == expected\nassert isinstance(expected, type(f(expected)))"
    assert run_tests("def f(x): return x", tests, "f").passed


def test_arrays_iterators_and_objects_arrive_as_such():
    answer = """
import numpy, re
def f(kind):
    if kind == "array": return numpy.arange(6).reshape(2, 3) / 2
    if kind == "iterator": return map(str, [1, 2])
    if kind == "values": return {1: 2}.values()
    if kind == "match": return re.match("a", "a")
"""
    tests = """
import numpy
array = f("array")
assert array.dtype == float and array.tolist() == [[0, 0.5, 1], [1.5, 2, 2.5]]
iterator = f("iterator")
assert iterator != ["1", "2"] and list(iterator) == ["1", "2"] and list(iterator) == []
assert list(f("values")) == [2]
assert f("match") and f("match") is not None and f("match") != f("match")
"""
    assert run_tests(answer, tests, "f").passed


def test_arguments_are_copies_and_the_state_of_the_code_is_kept_between_calls():
    answer = "calls = []\ndef f(items):\n    items.append(len(calls))\n    calls.append(items)\n    return items"
    tests = "items = [7]\nassert f(items) == [7, 0]\nassert f(items) == [7, 1]\nassert items == [7]"
    assert run_tests(answer, tests, "f").passed


def test_sets_have_the_same_order_in_every_run():
    answer = "def f(): return list({'alpha', 'beta', 'gamma', 'delta', 'epsilon'})"
    first, second = (run_tests(answer, "assert f() == None, f()", "f").reason for _ in range(2))
    assert first == second


def test_imports_of_the_tests_are_theirs_and_imports_for_the_answer_are_its_own():
    answer = "def f(x): return math.floor(x)"
    assert run_tests(answer, "assert f(2.5) == math.floor(2.5)", "f", imports="import math").reason.startswith(
        "the code: NameError"
    )
    assert run_tests(answer, "assert f(2.5) == 2", "f", answer_imports="import math").passed


def test_a_main_block_is_not_run():
    answer = "def f(x): return x\nif __name__ == '__main__':\n    raise ValueError"
    assert run_tests(answer, "assert f(1) == 1", "f").passed
