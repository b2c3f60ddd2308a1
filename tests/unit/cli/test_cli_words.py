"""Words without a flag: the same in the same place means the same in every command, as docs/command-line.md says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.core import TyperArgument

from barnabas.cli.commands import flags
from barnabas.cli.commands.produce import ProduceCommand
from barnabas.cli.commands.shell_command import spelled_out
from barnabas.cli.lazy_commands import COMMANDS, LazyCommands
from barnabas.cli.refusal import Refused

PAGE: Final = Path(__file__).parents[3] / "docs" / "command-line.md"
ACTIONS: Final = {"action", "[action]"}
ABOUT_OTHERS: Final = {
    "groups": "[GROUP]...",
    "dump-log": "[FILE]...",
    "cluster": "",
    "nodes": "NODE",
    "nodes list": "",
    "rebalance": "",
    "doctor": "",
    "transactions list": "",
    "transactions describe": "[TRANSACTIONAL-ID]",
    "transactions terminate": "[TRANSACTIONAL-ID]",
}
"""What the commands that are not about topics take after the action."""


def commands() -> Iterator[tuple[str, Any]]:
    """(name, command) of all, those below a command as `cluster quorum`."""
    group = LazyCommands(name="barnabas")
    for name in COMMANDS:
        command = group.get_command(None, name)
        below = getattr(command, "commands", None)
        yield from ((f"{name} {sub}", one) for sub, one in below.items()) if below else ((name, command),)


def words_of(command: Any) -> str:
    return " ".join(
        "[ACTION]" if parameter.name == "action" else str(parameter.metavar)
        for parameter in command.params
        if isinstance(parameter, TyperArgument)
    )


def test_the_page_has_the_words_of_every_command() -> None:
    rows = dict(re.findall(r"^\| `([a-z -]+)` \| `(\[.*|NODE)` \|$", PAGE.read_text(), re.MULTILINE))
    assert rows == {name: words for name, command in commands() if (words := words_of(command))}


@pytest.mark.parametrize("name", [name for name, _ in commands()])
def test_after_the_action_a_word_is_a_topic(name: str) -> None:
    words = words_of(dict(commands())[name]).removeprefix("[ACTION]").strip()
    about = ABOUT_OTHERS.get(name, ABOUT_OTHERS.get(name.split()[0]))
    assert words.startswith("[TOPIC]") if about is None else words == about


def test_one_topic_is_a_word_or_a_flag_and_not_both() -> None:
    assert flags.one_topic("a", "", "produce") == flags.one_topic(None, "a", "produce") == "a"
    assert flags.one_topic(None, "", "produce") == ""
    with pytest.raises(Refused, match="produce has one topic, and here are two, a and b"):
        flags.one_topic("b", "a", "produce")


def test_a_topic_after_the_codec_flag_is_no_codec() -> None:
    written = spelled_out(["-t", "x", "--compression-codec", "zstd"], ProduceCommand.optional_values)
    assert written[-1] == "zstd"
    written = spelled_out(["--compression-codec", "orders"], ProduceCommand.optional_values)
    assert written == ["--compression-codec", "gzip", "orders"]
