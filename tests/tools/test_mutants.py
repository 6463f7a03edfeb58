"""Mutations of sources, and the command that counts the mutations that tests notice."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import mutants
from tools.mutations import mutations

BODY = "def f(x, y):\n    {}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("return x < y", {"return None", "return (x <= y)"}, id="a comparison"),
        pytest.param("return x and y", {"return None", "return (x or y)"}, id="a condition"),
        pytest.param("return not x", {"return None", "return x"}, id="a negation"),
        pytest.param("return x + 1", {"return None", "return (x - 1)", "return x + 2"}, id="arithmetic and a number"),
        pytest.param("return x + 'a b'", {"return None"}, id="texts are not subtracted"),
        pytest.param("x.close()", {"pass"}, id="a call for its effect"),
        pytest.param("await x.close()", {"pass"}, id="an awaited call"),
        pytest.param("x = g(y, z=True)", {"x = None", "x = g(y)", "x = g(y, z=False)"}, id="an assignment of a call with keywords"),
        pytest.param("x += 1", {"x -= 1", "x += 2"}, id="an assignment with an operator"),
        pytest.param("while x: break", {"while x: continue"}, id="a break"),
        pytest.param("return x if y else 0", {"return None", "return (0 if y else x)", "return x if y else 1"}, id="a choice"),
        pytest.param("raise ValueError(f'{x < 1}')", {"pass"}, id="an error, whatever its words"),
        pytest.param("log.warning('x', exc_info=True)", set(), id="a log line is left as it is"),
        pytest.param("assert x == 1", set(), id="an assertion is left as it is"),
        pytest.param("'''A docstring.'''", set(), id="a docstring is left as it is"),
        pytest.param("return None", set(), id="nothing is returned"),
        pytest.param('return ("é", x == y)', {"return None", 'return ("éX", x == y)', 'return ("é", (x != y))'}, id="text beyond ASCII"),
    ],
)
def test_a_line_and_its_mutations(line: str, expected: set[str]) -> None:
    source = BODY.format(line).replace("def", "async def") if "await" in line else BODY.format(line)
    found = [mutation.source.splitlines()[1].strip().replace("'éX'", '"éX"') for mutation in mutations(source)]
    assert set(found) == expected
    assert len(found) == len(expected)


def test_defaults_annotations_and_statements_of_a_module_are_left_as_they_are() -> None:
    assert list(mutations("X = 1 + 2\n\n\ndef f(x: int = 1) -> int:\n    ...\n\n\nclass A:\n    y = 2\n")) == []


def test_a_mutation_names_the_outermost_function_and_prints_its_change() -> None:
    source = "class A:\n    @property\n    def f(self):\n        def g():\n            return 1 == 2\n        return None\n"
    mutation = next(each for each in mutations(source) if "!=" in each.source)
    assert (mutation.function, mutation.first, mutation.lines) == ("A.f", 2, (5, 5))
    lines = mutation.diff(source, "a.py").splitlines()
    assert [line for line in lines if line.startswith(("-  ", "+  "))] == ["-            return 1 == 2", "+            return (1 != 2)"]


def test_the_tests_of_a_module_are_those_with_its_name() -> None:
    tests = mutants.ROOT / "tests"
    assert mutants.default_tests("kubeloop.workqueue") == [str(tests / "workqueue")]
    assert mutants.default_tests("kubeloop.config.kubeconfig") == [str(tests / "config/test_kubeconfig.py")]
    assert mutants.default_tests("kubeloop.workqueue.nothing") == [str(tests / "workqueue")]


SHOP = """
import asyncio
import functools


@functools.cache
def price(count):
    return count * 3 if count < 10 else count * 2


async def wait(stopped):
    while not stopped.is_set():
        await asyncio.sleep(0)
        stopped.set()


def untested():
    return 1
"""

TESTS = """
import asyncio
import pytest
import shop


def test_price():
    assert [shop.price(count) for count in (1, 20)] == [3, 40]


async def test_wait():
    stopped = asyncio.Event()
    await shop.wait(stopped)
    assert stopped.is_set()


def test_broken():
    assert False
"""


@pytest.mark.timeout(180)  # a mutation that never ends is waited for
def test_mutations_are_killed_survive_or_are_not_executed_and_no_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(mutants.ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tools.mutants", "shop", "--tests", str(tmp_path / "test_shop.py"), "--limit", "3"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out, fails without a change: test_shop.py::test_broken" in done.stdout
    survivors, _, rest = done.stdout.partition("\nnot executed:\n")
    # The price of ten is not tested.
    assert "+    return count * 3 if (count <= 10) else count * 2" in survivors
    assert "+    return count * 3 if count < 11 else count * 2" in survivors
    assert "+    return None" in rest
    assert "mutations killed (" in rest
    assert re.search(r", [1-9] of them by a time limit;", rest)
    assert "not counted are 2 in lines that no test executes in its own process" in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pytest.ini", "shop.py", "test_shop.py"]


def test_without_a_test_of_the_module_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_other.py").write_text("def test(): pass\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(mutants.ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "tools.mutants", "shop", "--tests", str(tmp_path / "test_other.py")]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "executes shop; name its tests with --tests" in done.stdout
