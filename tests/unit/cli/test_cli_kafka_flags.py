"""What flags mean: addresses, properties, times, positions, partitions, entities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.commands import configs, group_reset, offsets, perf, topics
from barnabas.cli.commands.flags import chosen
from barnabas.cli.kafka.connection import addresses_of, check_reachable, connect
from barnabas.cli.kafka.positions import Span, parse_span, start_offset
from barnabas.cli.kafka.properties import for_librdkafka, parse_pairs, parse_properties
from barnabas.cli.kafka.times import iso_time, parse_duration, parse_time
from barnabas.cli.kafka.topics import matching_topics, parse_topic_partitions
from barnabas.cli.refusal import FAILED, USAGE, Refused

NOW = 1_700_000_000_000


def test_addresses() -> None:
    assert addresses_of("a:1,b , [::1]:3,PLAINTEXT://c:4") == [("a", 1), ("b", 9092), ("::1", 3), ("c", 4)]
    for text in ("", "a:b", "a:0", "a:70000"):
        with pytest.raises(Refused):
            addresses_of(text)


def test_nobody_at_the_address() -> None:
    with pytest.raises(Refused, match=r"cannot reach localhost:1 .*`barnabas up` starts one") as refused:
        check_reachable("localhost:1")
    assert refused.value.status == FAILED


def test_a_file_of_javas_properties(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# comment\n! too\nbootstrap.servers=there:9093\nsecurity.protocol: SASL_SSL\nmax.poll.records=5\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="a" password="p\\"w;";\nssl.truststore.location=/ca.pem\n'
    )
    connection = connect("", file, ["client.id=mine"])
    assert connection.bootstrap == "there:9093"
    assert connection.properties == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "a",
        "sasl.password": 'p"w;',
        "ssl.ca.location": "/ca.pem",
        "client.id": "mine",
    }
    assert "p" + '"w' not in repr(connection)
    assert connect("here", file).bootstrap == "here"


def test_properties_that_cannot_be() -> None:
    with pytest.raises(Refused, match="Java key store"):
        for_librdkafka({"ssl.truststore.location": "/trust.jks"})
    with pytest.raises(Refused, match="no username"):
        for_librdkafka({"sasl.jaas.config": "GSSAPI required;"})
    with pytest.raises(Refused, match="'a' has no value"):
        parse_pairs(["a"], "-X")
    assert for_librdkafka({"ssl.endpoint.identification.algorithm": ""}) == {
        "ssl.endpoint.identification.algorithm": "none"
    }
    assert parse_properties("a = b=c\n\n b:d") == {"a": "b=c", "b": "d"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("now", NOW),
        ("10m ago", NOW - 600_000),
        ("1.5h", NOW - 5_400_000),
        ("1700000000000", NOW),
        ("1700000000", NOW),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T23:13:20.5+01:00", NOW + 500),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_times(text: str, milliseconds: int) -> None:
    assert parse_time(text, NOW) == milliseconds


def test_durations() -> None:
    assert parse_duration("P1DT2H30M0.5S") == 95_400_500
    assert parse_duration("PT10M") == parse_duration("10m") == 600_000
    assert parse_duration("-PT1S") == -1000
    for text in ("", "P", "PT", "10", "soon"):
        with pytest.raises(Refused):
            parse_duration(text)
    with pytest.raises(Refused):
        parse_time("soon", NOW)
    assert iso_time(NOW) == "2023-11-14T22:13:20.000Z"


def span(*texts: str, from_: str = "", until: str = "", begins: bool = False, ends: bool = False) -> Span:
    return parse_span(texts, from_, until, is_from_beginning=begins, is_ending=ends)


def test_where_reading_starts() -> None:
    assert (span().start, span(ends=True).start, span(until="now").start) == ("end", "beginning", "beginning")
    assert span("earliest", begins=True).start == "beginning"
    assert (span("-5").start, span("-5").number) == ("tail", 5)
    assert (span("s@7").start, span("s@7").number) == ("time", 7)
    assert span("s@7", "e@9").until_ms == 9
    for given in (("3", "4"), ("x",), ("e@1", "e@2")):
        with pytest.raises(Refused):
            span(*given)


@pytest.mark.parametrize(
    ("text", "offset"),
    [("beginning", 10), ("end", 20), ("-3", 17), ("-300", 10), ("15", 15), ("20", 20), ("s@5", 12)],
)
def test_offsets_of_a_partition(text: str, offset: int) -> None:
    assert start_offset(span(text), 10, 20, 12) == offset


def test_offsets_outside() -> None:
    assert start_offset(span("s@5"), 10, 20, -1) == 20
    for text in ("9", "21"):
        with pytest.raises(Refused, match="has 10 to 20"):
            start_offset(span(text), 10, 20, -1)


def test_topics_and_partitions() -> None:
    names = ["a", "ab", "__consumer_offsets"]
    assert matching_topics(names, ["a.*"]) == ["a", "ab"]
    assert matching_topics(names, ["a,__.*"]) == ["__consumer_offsets", "a"]
    assert matching_topics(names, [], exclude_internal=True) == ["a", "ab"]
    assert matching_topics(["a.b", "a_b", "axb"], ["a.b"]) == ["a.b"], (
        "a name that is there means itself alone"
    )
    assert matching_topics(["a_b", "axb"], ["a.b"]) == ["a_b", "axb"]
    with pytest.raises(Refused, match="no regular expression"):
        matching_topics(names, ["("])
    assert parse_topic_partitions("t:0,2") == {"t": {0, 2}}
    assert parse_topic_partitions("t") == {"t": None}
    for text in (":1", "t:x", "t:"):
        with pytest.raises(Refused):
            parse_topic_partitions(text)
    rules = offsets.parse_rules("a:1-3,b.*:2,c:-2,:5")
    wanted = [("a", 2), ("a", 3), ("bb", 2), ("bb", 3), ("c", 1), ("c", 2), ("x", 5)]
    assert [any(offsets.rule_matches(rule, *key) for rule in rules) for key in wanted] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]
    assert offsets.parse_when("earliest-local") == offsets.parse_when("-4") == -4
    assert offsets.parse_when("earliest-pending-upload") == -6
    assert topics.parse_assignment("0:1,1:2") == [[0, 1], [1, 2]]
    for text in ("a", "0:1,2"):
        with pytest.raises(Refused):
            topics.parse_assignment(text)


def test_one_action_at_a_time() -> None:
    flags = {"list": False, "create": False}
    assert chosen(flags, "list", "topics") == "list"
    assert chosen({**flags, "list": True}, "list", "topics") == "list"
    for given, word in ((flags, None), (flags, "drop"), ({"list": True, "create": False}, "create")):
        with pytest.raises(Refused) as refused:
            chosen(given, word, "topics")
        assert refused.value.status == USAGE


def test_added_configs(tmp_path: Path) -> None:
    assert configs.parse_added("a=1,b=[x,y],c=", None) == {"a": "1", "b": "x,y", "c": ""}
    file = tmp_path / "added.properties"
    file.write_text("a=0\nd=4\n")
    assert configs.parse_added("a=1", file) == {"a": "1", "d": "4"}
    with pytest.raises(Refused):
        configs.parse_added("a", None)
    with pytest.raises(Refused, match=r"open bracket in '\[compact': close it"):
        configs.parse_added("a=1,cleanup.policy=[compact", None)


def test_entities() -> None:
    def parse(
        types: list[str], names: list[str], *, default: bool = False, all_users: bool = False, **short: str
    ) -> Any:
        return configs.parse_entities(types, names, default, short, {"user": all_users, "ip": False})

    assert parse(["topics"], ["t"]) == {"topic": "t"}
    assert parse(["brokers"], [], default=True) == {"broker": None}
    assert parse(["users", "clients"], ["u"]) == {"user": "u", "client-id": ""}
    assert parse([], [], topic="t") == {"topic": "t"}
    assert parse([], [], all_users=True) == {"user": None}
    with pytest.raises(Refused, match="--user and --user-defaults"):
        parse([], [], all_users=True, user="u")
    for types, names in ((["tables"], []), ([], []), ([], ["t"]), (["topics", "users"], ["a", "b"])):
        with pytest.raises(Refused):
            parse(types, names)


def test_one_way_of_resetting(tmp_path: Path) -> None:
    scope, way = group_reset.Scope, group_reset.Way
    group_reset.check(scope(("t",)), way(to_earliest=True))
    group_reset.check(scope(is_all_topics=True), way(shift_by=0))
    group_reset.check(scope(from_file=tmp_path), way())
    for one, other in (
        (scope(("t",)), way()),
        (scope(("t",)), way(to_earliest=True, to_latest=True)),
        (scope(), way(to_earliest=True)),
        (scope(("t",), is_all_topics=True), way(to_offset=0)),
    ):
        with pytest.raises(Refused):
            group_reset.check(one, other)
    with pytest.raises(Refused, match="takes only one of --to-earliest, --shift-by"):
        group_reset.check(scope(("t",)), way(to_earliest=True, shift_by=1))
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,5\nt,1,6\n")
    assert group_reset.read_csv(file, "g", is_only=True) == {("t", 0): 5, ("t", 1): 6}
    with pytest.raises(Refused, match="names no groups"):
        group_reset.read_csv(file, "g", is_only=False)
    file.write_text("g,t,0,5\nh,t,0,6\n")
    assert group_reset.read_csv(file, "h", is_only=False) == {("t", 0): 6}
    file.write_text("t,zero,5\n")
    with pytest.raises(Refused):
        group_reset.read_csv(file, "g", is_only=True)


def test_several_properties_in_a_flag() -> None:
    words = ["acks=1,linger.ms=5", "a=b,c"]
    assert perf.split_properties(words, "--producer-props") == ["acks=1", "linger.ms=5", "a=b,c"]
    for words in (["foo"], ["a=b", "foo,c=d"]):
        with pytest.raises(Refused, match="--producer-props 'foo"):
            perf.split_properties(words, "--producer-props")
