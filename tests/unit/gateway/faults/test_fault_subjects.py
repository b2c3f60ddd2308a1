"""Faults find the topics and groups of every request that the gateway serves, wherever its versions name them."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kio.schema.types import GroupId, TopicName

from barnabas.gateway.clients.fetch_sessions import FetchSessions
from barnabas.gateway.faults.injected_answers import subject_of
from barnabas.gateway.handlers.table import HANDLERS
from barnabas.wire.requests import RequestHeader
from barnabas.wire.schema import api_name, load_request_schema

TOPIC, GROUP, TOPIC_ID = "orders", "readers", uuid.UUID(int=7)
VERSIONS: Final = [
    (key, version)
    for key, handler in sorted(HANDLERS.items())
    for version in range(handler.versions[0], handler.versions[1] + 1)
]
VALUES: Final = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "uuid": None,
    "float64": 0.0,
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "datetime_i64": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
}
NOT_ASKED_FOR: Final = {"forgotten_topics_data", "cursor"}
"""What a request takes out of its fetch session; where the page begins that it asks for."""


def filled(schema: Any, only: str = "") -> Any:
    """A request, or a structure in it, whose arrays have one element each; with `only` that one of its fields alone."""
    hints = typing.get_type_hints(schema)
    fields = {
        field.name: value(field, hints[field.name], is_named=only in ("", field.name))
        for field in dataclasses.fields(schema)
    }
    return schema(**fields)


def value(field: Any, hint: Any, *, is_named: bool) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (option for option in typing.get_args(hint) if option is not type(None))
    if typing.get_origin(hint) is tuple:
        return (value(field, typing.get_args(hint)[0], is_named=True),) if is_named else ()
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type is None:
        return filled(hint)
    if hint in (TopicName, GroupId):
        return (TOPIC if hint is TopicName else GROUP) if is_named else ""
    if field.name == "topic_id":
        return TOPIC_ID if is_named else None
    return VALUES.get(kafka_type, 0)


def names_in(hint: Any, name: str = "") -> Iterator[str]:
    """What a field of this type names: topics, groups."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType, tuple):
        for option in typing.get_args(hint):
            yield from names_in(option, name)
    elif hint is TopicName or name == "topic_id":
        yield "topics"
    elif hint is GroupId:
        yield "groups"
    elif dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        for field in dataclasses.fields(hint):
            yield from names_in(hints[field.name], field.name)


NAMING: Final = [
    (api_name(key), key, version, field, what)
    for key, version in VERSIONS
    for field, hint in typing.get_type_hints(load_request_schema(key, version)).items()
    if not field.startswith("__") and field not in NOT_ASKED_FOR
    for what in sorted(set(names_in(hint, field)))
]


@pytest.mark.parametrize(("name", "key", "version", "field", "what"), NAMING)
def test_what_a_field_names_is_found(name: str, key: int, version: int, field: str, what: str) -> None:
    body = filled(load_request_schema(key, version), only=field)
    request: Any = SimpleNamespace(
        header=RequestHeader(key, version, 1, "app", 0),
        body=body,
        image=SimpleNamespace(topics_by_id={TOPIC_ID.bytes: SimpleNamespace(name=TOPIC)}),
        parts=SimpleNamespace(fetch_sessions=FetchSessions(1, None)),  # type: ignore[arg-type]
        get=lambda name, default: getattr(body, name, default),
    )
    subject = subject_of(request)
    assert subject.api == name
    found, wanted = (subject.topics, TOPIC) if what == "topics" else (subject.groups, GROUP)
    assert wanted in found, f"{name} v{version}: `_elements` or `_groups` of injected_answers misses {field}"


def test_most_requests_name_something() -> None:
    assert {api for api, *_ in NAMING} >= {
        "Produce",
        "Fetch",
        "OffsetCommit",
        "DescribeGroups",
        "DeleteTopics",
    }
