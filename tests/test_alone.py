"""Tests of a run in several processes go side by side, and one that is marked `alone` goes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

pytest_plugins = ("pytester",)

CONFTEST: Final = Path(__file__).with_name("conftest.py")
TOGETHER: Final = """
import time
from pathlib import Path

RUNNING = Path("running")

def test_the_other_process_is_there():
    mine, others = RUNNING / "{mine}", RUNNING / "{other}"
    mine.touch()
    end = time.monotonic() + 60
    while not others.exists():
        assert time.monotonic() < end, "the other does not run"
        time.sleep(0.01)
"""
ALONE: Final = """
import time
from pathlib import Path

import pytest

@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number):
    begun = Path("begun").read_text()
    time.sleep(0.2)
    assert Path("begun").read_text() == begun
"""
BUSY: Final = """
import time
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(30))
def test_busy(number):
    with Path("begun").open("a") as begun:
        begun.write("x")
    time.sleep(0.02)
    with Path("begun").open("a") as begun:
        begun.write("y")
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makeini("[pytest]\nmarkers = alone: alone\nasyncio_default_fixture_loop_scope = function\n")
    (pytester.path / "running").mkdir()
    (pytester.path / "begun").touch()
    return pytester


def passed(pytester: pytest.Pytester) -> int:
    result = pytester.runpytest_subprocess("-n2", "--dist=loadfile", "-p", "no:cacheprovider")
    assert set(result.parseoutcomes()) == {"passed"}, result.stdout.str()
    return int(result.parseoutcomes()["passed"])


def test_tests_go_side_by_side(folder: pytest.Pytester) -> None:
    folder.makepyfile(
        test_a=TOGETHER.format(mine="a", other="b"), test_b=TOGETHER.format(mine="b", other="a")
    )
    assert passed(folder) == 2


def test_one_that_is_alone_has_nothing_beside_it(folder: pytest.Pytester) -> None:
    folder.makepyfile(test_alone=ALONE, test_busy=BUSY)
    assert passed(folder) == 33


def test_who_has_one_comes_first_then_what_takes_longest_and_unit_tests_last(folder: pytest.Pytester) -> None:
    in_order = ("test_z.py", "simulation/test_long.py", "test_a.py", "unit/test_short.py")
    for path, content in zip(in_order, (ALONE, BUSY, BUSY, BUSY), strict=True):
        (folder.path / path).parent.mkdir(exist_ok=True)
        (folder.path / path).write_text(content)
    listed = folder.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider").outlines
    assert tuple(dict.fromkeys(line.partition("::")[0] for line in listed if "::" in line)) == in_order
