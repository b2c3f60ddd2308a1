"""docs/testing.md, as a reader would try it: every example is a test that passes as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
pytest_plugins = "pytester"

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_examples_pass(pytester: pytest.Pytester) -> None:
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    for number, example in enumerate(examples):
        (pytester.path / f"test_example_{number}.py").write_text(example)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--strict-markers", timeout=240)
    result.assert_outcomes(
        passed="\n".join(examples).count("\ndef test_") + examples[0].startswith("def test_")
    )
