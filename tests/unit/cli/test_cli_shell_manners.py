"""Flags as Kafka's shell tools take them: optional values, sets of flags, JVM classes that have a counterpart."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from stored_message import StoredMessage
from typer.testing import CliRunner

from barnabas.cli.commands import cluster_metadata, perf, topic_flags, topics
from barnabas.cli.commands.carrying_out import Pace
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.flags import application, refuse_controller
from barnabas.cli.commands.groups import GroupsCommand
from barnabas.cli.commands.perf_flags import PaceFlags
from barnabas.cli.commands.perf_produce import transaction_seconds
from barnabas.cli.commands.shell_command import spelled_out
from barnabas.cli.kafka.consuming import Ending
from barnabas.cli.kafka.producing import without_idempotence
from barnabas.cli.kafka.properties import for_librdkafka
from barnabas.cli.lazy_commands import refusal_of_system
from barnabas.cli.refusal import Refused
from barnabas.cli.text import decoders
from barnabas.cli.text.envelope import render_envelopes, render_kcat_envelopes
from barnabas.cli.text.escapes import unescape
from barnabas.cli.text.re2 import check_re2
from barnabas.cli.text.record_format import compile_pieces, formatter_pieces, kcat_pieces


@pytest.mark.parametrize(
    ("given_words", "words"),
    [
        ("--list --state", "--list --state"),
        ("--list --state Stable,empty --type", "--list --in-state Stable,empty --type"),
        ("--list --type=consumer", "--list --of-type consumer"),
        ("--describe --state --group g", "--describe --state --group g"),
        ("describe --state g", "describe --state g"),
        ("describe -- --state stable", "describe -- --state stable"),
    ],
)
def test_a_value_that_may_be_left_out(given_words: str, words: str) -> None:
    assert spelled_out(given_words.split(), GroupsCommand.optional_values) == words.split()


@given(st.lists(st.text()))
def test_other_words_stay_as_they_are(words: list[str]) -> None:
    assert spelled_out(words, {}) == words


def test_flags_in_sets() -> None:
    @dataclass(frozen=True)
    class Pair:
        first: Annotated[int, typer.Option("--first")] = 1
        second: Annotated[str, typer.Option("--second")] = "b"

    seen: list[Any] = []

    def command(pair: Any, third: Any = False) -> None:
        """What it does."""
        seen.append((pair, third))

    command.__annotations__ = {
        "pair": Pair,
        "third": Annotated[bool, typer.Option("--third")],
        "return": None,
    }
    app = application(spread(command))
    assert CliRunner().invoke(app, ["--second", "x", "--third"]).exit_code == 0
    assert seen == [(Pair(1, "x"), True)]
    assert "What it does" in CliRunner().invoke(app, ["-h"]).output
    assert CliRunner().invoke(app, ["--version"]).output.startswith("barnabas ")


def test_flags_that_say_nothing_to_the_action() -> None:
    def flags(**changes: Any) -> topic_flags.TopicFlags:
        values: dict[str, Any] = {
            "partitions": None,
            "replication_factor": None,
            "replica_assignment": "",
            "configs": (),
            "deleted_configs": (),
            "if_exists": False,
            "if_not_exists": False,
            "exclude_internal": False,
            "is_dry_run": False,
            "filters": frozenset(),
            "pace": Pace(),
            **changes,
        }
        return topic_flags.TopicFlags(**values)

    topics.check("create", ["t"], flags(partitions=3, configs=["a=b"]))
    topics.check("list", [], flags(exclude_internal=True))
    topics.check("alter", ["t"], flags(replication_factor=3, pace=Pace(throttle=1)))
    for what, changes in (
        ("list", {"if_exists": True}),
        ("alter", {"partitions": 3, "pace": Pace(at_once=1)}),
        ("create", {"replication_factor": 3, "pace": Pace(give_up_after=1)}),
        ("describe", {"partitions": 1}),
        ("delete", {"filters": frozenset({topic_flags.OVERRIDES})}),
        ("create", {"replica_assignment": "0", "partitions": 1}),
        ("create", {"topic_id": "x"}),
    ):
        with pytest.raises(Refused) as refused:
            topics.check(what, ["t"], flags(**changes))
        assert refused.value.status == 2
    with pytest.raises(Refused, match="needs a --topic"):
        topics.check("delete", [], flags())


def test_features_and_their_levels() -> None:
    assert cluster_metadata.parse_levels(["a=1", "b=0"], is_off=False) == {"a": 1, "b": 0}
    assert cluster_metadata.parse_levels(["a"], is_off=True) == {"a": 0}
    for words, is_off in ((["a"], False), (["a=x"], False), (["a=1"], True)):
        with pytest.raises(Refused):
            cluster_metadata.parse_levels(words, is_off=is_off)
    row = {"lastFetchTimestamp": 1_700_000_000_000, "lastCaughtUpTimestamp": -1}
    assert cluster_metadata.readable(row, 1_700_000_000_005) == {
        "lastFetchTimestamp": "2023-11-14T22:13:20.000Z (5 ms ago)",
        "lastCaughtUpTimestamp": -1,
    }
    with pytest.raises(Refused, match="use --bootstrap-server"):
        refuse_controller("here:1")


def test_keys_and_values_that_are_numbers() -> None:
    name = "org.apache.kafka.common.serialization.{}Deserializer"
    for kind, data, text in (
        ("Long", b"\0" * 7 + b"\5", b"5"),
        ("Integer", b"\xff" * 4, b"-1"),
        ("Double", b"\x3f\xf8" + b"\0" * 6, b"1.5"),
        ("Boolean", b"\1", b"true"),
        ("String", b"\xff", b"\xff"),
    ):
        assert decoders.decoder(name.format(kind))(data) == text
    assert decoders.decoder(">his$")(b"\0\1\xff\xff\xff\xffab") == b"1-1ab"
    assert decoders.decoder("<Hcq")(b"\1\0x" + b"\1" + b"\0" * 7) == b"1x1"
    for letters, data in ((">q", b"\0"), ("B$", b"ab"), (name.format("Short"), b"abc")):
        with pytest.raises(ValueError, match="bytes"):
            decoders.decoder(letters)(data)
    for unknown in ("avro", "com.example.ThingDeserializer", ""):
        with pytest.raises(Refused):
            decoders.decoder(unknown)


def test_records_that_cannot_be_decoded() -> None:
    messages = [StoredMessage(data=b"\0\1"), StoredMessage(data=b"long"), StoredMessage(data=None)]
    render = compile_pieces(kcat_pieces(b"\n", None, b"NULL"))
    lenient = decoders.decoding(render, None, decoders.decoder(">h$"), skips_errors=True)
    assert lenient(messages) == b"1\nNULL\n"
    strict = decoders.decoding(render, None, decoders.decoder(">h$"), skips_errors=False)
    with pytest.raises(Refused, match="--skip-message-on-error"):
        strict(messages)


def test_kafkas_formatters() -> None:
    message = StoredMessage(name=b"k", data=b"v")
    assert compile_pieces(formatter_pieces("a.b.NoOpMessageFormatter", {}))([message]) == b""
    assert (
        compile_pieces(formatter_pieces("a.b.DefaultMessageFormatter", {"print.key": "true"}))([message])
        == b"k\tv\n"
    )
    with pytest.raises(Refused, match="only a JVM"):
        formatter_pieces("a.b.OwnFormatter", {})
    pieces = kcat_pieces(b"\n", b";", b"", has_offset=True)
    assert compile_pieces(pieces)([message]) == b"%d;k;v\n" % message.offset()


def test_json_of_kcat() -> None:
    message = StoredMessage(name=b"k", data=b"\xff", pairs=(("a", None), ("b", b"c")))
    line = render_kcat_envelopes([message])
    assert b'"headers":["a",null,"b","c"],"key":"k","payload":{"base64":"/w=="}}' in line
    assert render_envelopes([message]) != line


def test_escapes_by_number() -> None:
    assert unescape(r"\041\x21\0\n\9") == b"!!\0\n\\9"


@pytest.mark.parametrize("expression", ["a.*", r"[[:alpha:]]+\pL\Qa(\E\d{3}", "(?i)x|y", r"\.\d+?", "[)*+]+"])
def test_expressions_of_re2(expression: str) -> None:
    check_re2(expression)


@pytest.mark.parametrize(
    "expression", ["a(?=b)", r"(a)\1", "a(", "(?>a)", "a++", "a{1001}", "(?P<n>a)(?P=n)", "*"]
)
def test_expressions_that_re2_does_not_know(expression: str) -> None:
    with pytest.raises(Refused, match="is no RE2 expression"):
        check_re2(expression)


def test_dates_as_java_writes_them() -> None:
    assert perf.java_time_format("yyyy-MM-dd HH:mm:ss:SSS") == "%Y-%m-%d %H:%M:%S:%f"
    assert perf.java_time_format("dd 'of' MMM 100%") == "%d of %b 100%%"
    with pytest.raises(Refused, match="has QQ"):
        perf.java_time_format("QQ")


def test_properties_of_producers() -> None:
    assert without_idempotence({"acks": "1"}) == {"acks": "1", "enable.idempotence": "false"}
    for kept in ({}, {"acks": "all"}, {"acks": "1", "enable.idempotence": "true"}):
        assert without_idempotence(kept) == kept
    assert for_librdkafka({"topic.acks": "1", "topic.metadata.refresh.sparse": "true"}) == {
        "acks": "1",
        "topic.metadata.refresh.sparse": "true",
    }
    assert transaction_seconds(PaceFlags(), {}) is None
    assert transaction_seconds(PaceFlags(transactional_id="t"), {}) == 3
    assert transaction_seconds(PaceFlags(transaction_duration_ms=500), {}) == 0.5
    for pace in (
        PaceFlags(num_records=5, warmup_records=5),
        perf.PayloadFlags(payload_monotonic=True, record_size=1),
    ):
        with pytest.raises(Refused):
            pace.check()


def test_a_member_of_a_group_ends_when_it_is_to() -> None:
    for exits, is_over in ((True, True), (False, False)):
        ending = Ending(exits_at_end=exits)
        assert not ending.is_reached, "nothing is known of the group yet"
        ending.open, ending.assigned_at = set(), 1.0
        assert ending.is_reached == is_over
    alone = Ending(exits_at_end=True)
    alone.open = {("t", 0)}
    alone.on_partition_end(SimpleNamespace(topic=lambda: "t", partition=lambda: 0, offset=lambda: 5))
    assert alone.is_reached


def test_what_the_system_says() -> None:
    for error, words in (
        (TimeoutError(), "did not answer in time"),
        (OSError(errno.ENOSPC, "No space left on device"), "is the disk full"),
        (OSError(errno.ENOENT, "No such file or directory", "x"), "x: No such file"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not UTF-8"),
    ):
        refused = refusal_of_system(error)
        assert refused is not None
        assert words in str(refused)
    assert refusal_of_system(KeyError("x")) is None
