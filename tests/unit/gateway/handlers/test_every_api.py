"""Whoever adds a Kafka API and forgets a step is told here which (CONTRIBUTING.md: a new Kafka API)."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_harness import Gateway

from barnabas.gateway.handlers import table
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.gateway.request import Answer, Request
from barnabas.kernel.errors import ErrorCode
from barnabas.links.errors import Unreachable
from barnabas.metadata.leaders import NOBODY_COORDINATES, NOBODY_LEADS
from barnabas.wire.schema import api_name

FILES = {path.stem: path for path in Path(table.__file__).parent.glob("*.py")}
NOT_AN_API = {"__init__", "table"}

TESTS = sorted(Path(__file__).parents[1].rglob("test_*.py"))
ASKS_ALL_APIS = {"test_fuzzed_frames.py", "test_error_answers.py"}
"""They find the APIs in the table, and say nothing of what one does."""


def file_name(api_key: int) -> str:
    """`offset_for_leader_epoch` for OffsetForLeaderEpoch."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api_name(api_key)).lower()


@pytest.mark.parametrize("name", sorted(FILES.keys() - NOT_AN_API))
def test_a_file_in_handlers_is_an_api_of_the_table(name: str) -> None:
    module = importlib.import_module(f"barnabas.gateway.handlers.{name}")
    handler = module.HANDLER
    assert HANDLERS.get(handler.api_key) is handler, f"handlers/{name}.py is not in handlers/table.py"
    assert name == file_name(handler.api_key)


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_an_api_has_a_file_headed_by_its_name_and_key(api_key: int) -> None:
    documentation = ast.get_docstring(ast.parse(FILES[file_name(api_key)].read_text()))
    assert documentation is not None
    assert documentation.startswith(f"{api_name(api_key)} (key {api_key}): ")


def constants_of(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that a module gives to numbers, one or several in a line."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = node.target, node.value
        else:
            continue
        several = isinstance(targets, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(targets.elts, value.elts, strict=True) if several else [(targets, value)]
        for name, number in pairs:
            if isinstance(name, ast.Name) and isinstance(number, ast.Constant):
                yield name.id, number.value


def keys_asked(tree: ast.Module) -> Iterator[int]:
    """The API keys that a test asks a gateway, as numbers or as constants."""
    constants = dict(constants_of(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            function, first = node.func, node.args[0]
            called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if called == "ask":
                if isinstance(first, ast.Constant) and isinstance(first.value, int):
                    yield first.value
                elif isinstance(first, ast.Name) and first.id in constants:
                    yield constants[first.id]


def test_an_api_is_asked_by_a_test_of_its_own() -> None:
    asked = {
        key
        for path in TESTS
        if path.name not in ASKS_ALL_APIS
        for key in keys_asked(ast.parse(path.read_text()))
    }
    missing = [f"{api_name(key)} (key {key})" for key in sorted(HANDLERS.keys() - asked)]
    assert missing == []


BEHIND = {
    **dict.fromkeys(("by_leader", "fetch_read", "storage_codes"), NOBODY_LEADS),
    **dict.fromkeys(("group_calls", "transaction_calls", "by_coordinator"), NOBODY_COORDINATES),
}
"""What a handler imports of `gateway/inside/` to reach another service, and what it then says when that is away."""

OTHERWISE = {
    9: ErrorCode.coordinator_load_in_progress,  # librdkafka never asks again after the other code
    22: ErrorCode.coordinator_load_in_progress,  # also without a transactional id, which has no coordinator to look for
    27: NOBODY_LEADS,  # markers are for the leaders of partitions
    66: ErrorCode.coordinator_load_in_progress,  # clients that list give up on the other code
}
"""Where clients do what is wanted on another code."""


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_an_api_says_what_its_clients_hear_when_the_service_behind_it_is_away(api_key: int) -> None:
    imported = {
        (node.module or "").rpartition(".")[2]
        for node in ast.walk(ast.parse(FILES[file_name(api_key)].read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("barnabas.gateway.inside.")
    }
    for code in {BEHIND[name] for name in imported & BEHIND.keys()}:
        assert HANDLERS[api_key].unanswered is OTHERWISE.get(api_key, code)


async def test_a_request_whose_handler_lets_a_broken_link_pass_gets_that_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handle(_: Request) -> Answer:
        raise Unreachable("nobody there")

    gateway = Gateway()
    handlers = {key: dataclasses.replace(handler, handle=handle) for key, handler in HANDLERS.items()}
    monkeypatch.setattr(gateway.dispatcher, "_handlers", handlers)
    heartbeat = await gateway.ask(12, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"})
    assert heartbeat.error_code is ErrorCode.coordinator_not_available
    created = await gateway.ask(22, 4, {"transactional_id": None})
    assert created.error_code is ErrorCode.coordinator_load_in_progress
    quorum = await gateway.ask(55, 2, {"topics": []})
    assert quorum.error_code is ErrorCode.request_timed_out
