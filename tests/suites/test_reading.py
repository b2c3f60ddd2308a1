"""What is read out of suites' sources and out of what their runs print."""

from __future__ import annotations

from pathlib import Path

from go_suites import read_go_output
from results import Outcome, Result
from sarama_suite import functional_tests

PRINTED = """\
=== RUN   TestOne
    one_test.go:7: only said
--- PASS: TestOne (0.01s)
=== RUN   TestTwo
=== RUN   TestTwo/case
    two_test.go:12: it is 3
    two_test.go:13: and not 4
--- FAIL: TestTwo (0.02s)
    --- FAIL: TestTwo/case (0.02s)
=== RUN   TestThree
    three_test.go:5: is for older brokers
--- SKIP: TestThree (0.00s)
FAIL
"""


def test_go_test_tells_the_outcome_of_each_test_at_the_top() -> None:
    assert read_go_output(PRINTED) == [
        Result("TestOne", Outcome.PASSED),
        Result("TestTwo", Outcome.FAILED, "two_test.go:13: and not 4"),
        Result("TestThree", Outcome.NOT_APPLICABLE, "three_test.go:5: is for older brokers"),
    ]


def test_a_go_test_that_says_nothing_has_that_for_a_reason() -> None:
    assert read_go_output("--- FAIL: TestOne (0.01s)\n") == [
        Result("TestOne", Outcome.FAILED, "says nothing")
    ]


def test_saramas_functional_tests_are_those_of_its_functional_files(tmp_path: Path) -> None:
    (tmp_path / "functional_b_test.go").write_text(
        "func TestB(t *testing.T) {\n}\n\nfunc testHelper(t *testing.T) {\n}\n\nfunc TestMain(m *testing.M) {\n}\n"
    )
    (tmp_path / "functional_a_test.go").write_text("func TestA(t *testing.T) {\n\tfunc TestInside(t \n}\n")
    (tmp_path / "client_test.go").write_text("func TestNeedsNoBroker(t *testing.T) {\n}\n")
    assert functional_tests(tmp_path) == ["TestA", "TestB"]
