"""How long a partition takes no records when its leader is killed, as an impatient producer sees it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from clients.requests import frame, produce_error, produce_request, produce_to_all, read_answer

RETRY_SECONDS: Final = 0.005
ANSWER_SECONDS_MAX: Final = 60.0
SECONDS_MAX: Final = 120.0
BEFORE_SECONDS: Final = 1.0
"""How long records are acknowledged before the leader is killed."""

PRODUCE_BODY_AT: Final = 9
"""In an answer with its length: after that, the correlation id and no tagged fields."""


@dataclass(frozen=True)
class Led:
    """A partition as Metadata shows it."""

    leader: int
    in_sync: int


def partitions_of(port: int, topics: list[str]) -> dict[tuple[str, int], Led]:
    """All partitions of topics as the broker at `port` knows them; raises OSError where it does not answer."""
    return {
        (topic.name, part.partition_index): Led(part.leader_id, len(part.isr_nodes))
        for topic in _metadata(port, topics).topics
        for part in topic.partitions
    }


def wait_until_named(ports: Mapping[int, int], seconds_max: float) -> None:
    """Return once every broker names all of them; raises TimeoutError."""
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError):
            if all(
                {row.node_id for row in _metadata(port, []).brokers} == set(ports) for port in ports.values()
            ):
                return
        time.sleep(4 * RETRY_SECONDS)
    raise TimeoutError(f"the brokers do not know one another after {seconds_max:.0f} s")


def _metadata(port: int, topics: list[str]) -> Any:
    from kio.schema.metadata.v4.response import MetadataResponse
    from kio.serial import entity_reader

    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    with socket.create_connection(("127.0.0.1", port), 1) as sock:
        sock.settimeout(ANSWER_SECONDS_MAX)
        sock.sendall(frame(3, 4, struct.pack(">i", len(topics)) + names + b"\0"))
        answer, _ = entity_reader(MetadataResponse)(read_answer(sock), 8)
    return answer


def pause(ports: Mapping[int, int], topic: str, kill: Callable[[int], None]) -> float:
    """Seconds from the last acknowledgement (acks=all) of partition 0 before its leader was killed to the first after.

    One record is in flight; whatever fails is sent again every 5 ms, to the leader that any living broker names.
    """
    request = produce_request(topic)
    leader = _leader(ports, topic, None)
    killer: threading.Thread | None = None
    has_failed = False
    last = started = time.perf_counter()
    while time.perf_counter() - started < SECONDS_MAX:
        try:
            with socket.create_connection(("127.0.0.1", ports[leader]), 1) as sock:
                sock.settimeout(ANSWER_SECONDS_MAX)
                while True:
                    sock.sendall(request)
                    if produce_error(read_answer(sock)):
                        break
                    now = time.perf_counter()
                    if killer is not None and has_failed:
                        killer.join()
                        return now - last
                    last = now
                    if killer is None and now - started > BEFORE_SECONDS:
                        killer = threading.Thread(target=kill, args=(leader,))
                        killer.start()
        except OSError:
            pass
        has_failed = killer is not None
        time.sleep(RETRY_SECONDS)
        leader = _leader(ports, topic, leader)
    raise TimeoutError(f"{topic} took no records for {SECONDS_MAX:.0f} s")


def acknowledged(ports: Mapping[int, int], topic: str, seconds_max: float) -> None:
    """Return once a record of partition 0, whoever leads it, was acknowledged with acks=all; raises TimeoutError."""
    request = produce_request(topic)
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        leader = _leader(ports, topic, None)
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[leader]), 1) as sock:
            sock.settimeout(ANSWER_SECONDS_MAX)
            sock.sendall(request)
            if produce_error(read_answer(sock)) == 0:
                return
        time.sleep(RETRY_SECONDS)
    raise TimeoutError(f"{topic} took no records for {seconds_max:.0f} s")


def all_acknowledged(ports: Mapping[int, int], partitions: Mapping[str, int], seconds_max: float) -> None:
    """Return once each partition of topics of so many took a record (acks=all), whoever leads it; raises TimeoutError.

    Each leader gets one request with all of its partitions that have not; what is refused is sent again, with the
    leaders of then.
    """
    deadline = time.perf_counter() + seconds_max
    missing = {(topic, index) for topic, count in partitions.items() for index in range(count)}
    with ThreadPoolExecutor(len(ports), "producer") as producers:
        while missing:
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{len(missing)} partitions took no record in {seconds_max:.0f} s")
            led = _partitions_of_any(ports, [*partitions])
            by_leader: dict[int, dict[str, list[int]]] = {}
            for topic, index in sorted(missing & led.keys()):
                by_leader.setdefault(led[topic, index].leader, {}).setdefault(topic, []).append(index)
            asked = [
                producers.submit(_taken, ports[leader], some)
                for leader, some in by_leader.items()
                if leader in ports
            ]
            for answer in asked:
                missing -= answer.result()
            if missing:
                time.sleep(4 * RETRY_SECONDS)


def _partitions_of_any(ports: Mapping[int, int], topics: list[str]) -> dict[tuple[str, int], Led]:
    """The partitions of topics as the first broker that answers knows them; none while nobody does."""
    for port in ports.values():
        with contextlib.suppress(OSError):
            return partitions_of(port, topics)
    return {}


def _taken(port: int, partitions: Mapping[str, list[int]]) -> set[tuple[str, int]]:
    """Which of the partitions took a record (acks=all) at the broker at `port`; none where it does not answer."""
    from kio.schema.produce.v9.response import ProduceResponse
    from kio.serial import entity_reader

    try:
        with socket.create_connection(("127.0.0.1", port), 1) as sock:
            sock.settimeout(ANSWER_SECONDS_MAX)
            sock.sendall(produce_to_all(partitions))
            answer, _ = entity_reader(ProduceResponse)(read_answer(sock), PRODUCE_BODY_AT)
    except OSError:
        return set()
    return {
        (topic.name, part.index)
        for topic in answer.responses
        for part in topic.partition_responses
        if part.error_code == 0
    }


def _leader(ports: Mapping[int, int], topic: str, known: int | None) -> int:
    """Who leads partition 0, by the first broker that answers; `known` where nobody says."""
    deadline = time.perf_counter() + SECONDS_MAX
    while time.perf_counter() < deadline:
        for port in ports.values():
            with contextlib.suppress(OSError, KeyError):
                leader = partitions_of(port, [topic])[topic, 0].leader
                if leader in ports:
                    return leader
        if known is not None:
            return known
        time.sleep(RETRY_SECONDS)
    raise TimeoutError(f"nobody leads {topic}")


def wait_for(
    ports: Mapping[int, int],
    topics: list[str],
    is_there: Callable[[Led], bool],
    seconds_max: float = SECONDS_MAX,
) -> None:
    """Return once all partitions are as wanted by one and the same living broker; raises TimeoutError."""
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        for port in ports.values():
            with contextlib.suppress(OSError):
                found = partitions_of(port, topics)
                if found and all(is_there(each) for each in found.values()):
                    return
        time.sleep(4 * RETRY_SECONDS)
    raise TimeoutError(f"partitions are not as wanted after {seconds_max:.0f} s")
