"""docs/durability.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "durability.md"
_REFERENCE: Final = re.compile(r'^\[(\w+)\]: (\S+) "(\w+)"$', re.MULTILINE)


def test_every_test_that_the_page_names_is_there() -> None:
    text = PAGE.read_text()
    references = _REFERENCE.findall(text)
    assert len(references) > 30
    for _, file, name in references:
        assert re.search(rf"^(async )?def {name}\(", (PAGE.parent / file).read_text(), re.MULTILINE), name


def test_every_reference_of_the_page_is_used_and_known() -> None:
    text = PAGE.read_text()
    known = {label for label, _, _ in _REFERENCE.findall(text)}
    assert set(re.findall(r"\]\[(\w+)\]", text)) == known
