"""What runbooks tell people to type exists, and so do the pages that they refer to."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from generator.slos import BURNS, SLOS
from typer.testing import CliRunner

from barnabas.cli.__main__ import app

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
LINK: Final = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@cache
def help_of(words: tuple[str, ...]) -> tuple[int, str]:
    """Status and text of `barnabas WORDS --help`, wide enough that no flag is cut."""
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    return result.exit_code, result.output


def commands(page: Path) -> list[str]:
    """Every `barnabas ...` of a page, in blocks and in lines."""
    text = page.read_text()
    return re.findall(r"^barnabas .+$", text, re.MULTILINE) + re.findall(r"`(barnabas [^`]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_their_flags_exist(page: Path) -> None:
    for command in commands(page):
        words = shlex.split(command)[1:]
        if words[0] == "up":
            words = words[:1]
        name = tuple(words[:2]) if words[0] in ("cluster", "transactions") else (words[0],)
        status, text = help_of(name)
        assert status == 0, command
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"{word}\b", text), f"{command}: {word} is not a flag"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_runbook_says_what_it_means_where_to_look_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    if page.stem != "README":
        assert [part in text for part in ("**Means.**", "**Look.**", "**Do.**")] == [True] * 3
        assert len(text.splitlines()) < 50, "short"
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), f"{page.name} refers to {target}"


def test_the_page_of_objectives_is_what_the_code_says() -> None:
    text = (ROOT / "docs" / "slo.md").read_text()
    for slo in SLOS:
        row = rf"\| `{slo.name}` \|.*\| {slo.objective * 100:.5g}% \|"
        assert re.search(row, text), f"docs/slo.md lacks {slo.name} with its objective"
        assert f"runbooks/{slo.runbook}.md" in text
    for burn in BURNS:
        assert f"| {burn.long} | {burn.short} | {burn.factor:g} | {burn.severity} |" in text


@pytest.mark.parametrize("name", ["observability.md", "slo.md"])
def test_links_of_the_pages_lead_somewhere(name: str) -> None:
    page = ROOT / "docs" / name
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{name} refers to {target}"
