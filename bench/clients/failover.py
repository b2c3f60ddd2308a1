"""How long a partition takes no records when its leader is killed, as an impatient producer sees it."""

from __future__ import annotations

import contextlib
import select
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
    with socket.create_connection(("127.0.0.1", port), 1) as sock:
        return _ask_metadata(sock, topics)


def _ask_metadata(sock: socket.socket, topics: list[str]) -> Any:
    from kio.schema.metadata.v7.response import MetadataResponse
    from kio.serial import entity_reader

    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    sock.settimeout(ANSWER_SECONDS_MAX)
    sock.sendall(frame(3, 7, struct.pack(">i", len(topics)) + names + b"\0"))
    answer, _ = entity_reader(MetadataResponse)(read_answer(sock), 8)
    return answer


class _LivingBrokers:
    """The brokers to which there is a connection, as clients keep them; owns those connections.

    Of a broker that was killed nobody asks anything again: its port may be listened at while it is started, and answer
    only then.
    """

    def __init__(self, ports: Mapping[int, int], topic: str) -> None:
        self._topic = topic
        self._sockets = {
            broker: socket.create_connection(("127.0.0.1", port), 1) for broker, port in ports.items()
        }

    def leader(self) -> int:
        """Who leads partition 0, by whoever has heard the newest. Raises ConnectionError when no broker is left."""
        named: list[tuple[int, int]] = []
        for broker, sock in list(self._sockets.items()):
            try:
                (topic,) = _ask_metadata(sock, [self._topic]).topics
                (partition,) = topic.partitions
            except OSError:
                self._sockets.pop(broker).close()
            else:
                named.append((partition.leader_epoch, partition.leader_id))
        if not named:
            raise ConnectionError("no broker answers any more")
        return max(named)[1]

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()


def pause(ports: Mapping[int, int], topic: str, kill: Callable[[int], None]) -> float:
    """Seconds from the last acknowledgement (acks=all) of partition 0 before its leader was killed to the first after.

    One record is in flight; whatever fails is sent again every 5 ms, to the leader that the living brokers name, also
    while the former one is still waited for: so clients do it.
    """
    living = _LivingBrokers(ports, topic)
    try:
        return _pause(living, ports, produce_request(topic), kill)
    finally:
        living.close()


def _pause(
    living: _LivingBrokers, ports: Mapping[int, int], request: bytes, kill: Callable[[int], None]
) -> float:
    killer: threading.Thread | None = None
    has_failed = False
    last = started = time.perf_counter()
    while time.perf_counter() - started < SECONDS_MAX:
        leader = living.leader()
        try:
            with socket.create_connection(("127.0.0.1", ports[leader]), 1) as sock:
                while True:
                    sock.sendall(request)
                    while not select.select([sock], [], [], RETRY_SECONDS)[0]:
                        if living.leader() != leader:
                            raise ConnectionError("another broker leads")
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
        except (KeyError, OSError):
            pass  # nobody leads; or what was asked of the leader failed
        has_failed = killer is not None
        time.sleep(RETRY_SECONDS)
    raise TimeoutError(f"nothing was acknowledged for {SECONDS_MAX:.0f} s")


def acknowledged(ports: Mapping[int, int], topic: str, seconds_max: float) -> None:
    """Return once a record of partition 0, whoever leads it, was acknowledged with acks=all; raises TimeoutError."""
    request = produce_request(topic)
    deadline = time.perf_counter() + seconds_max
    while time.perf_counter() < deadline:
        leader = _leader(ports, topic)
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


def _leader(ports: Mapping[int, int], topic: str) -> int:
    """Who leads partition 0, by the first broker that answers."""
    deadline = time.perf_counter() + SECONDS_MAX
    while time.perf_counter() < deadline:
        for port in ports.values():
            with contextlib.suppress(OSError, KeyError):
                leader = partitions_of(port, [topic])[topic, 0].leader
                if leader in ports:
                    return leader
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
