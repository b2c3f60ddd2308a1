"""Frames that are not requests: whether the connection ends, or what is answered."""

from __future__ import annotations

import struct

from golden_session import CLOSED, NO_ANSWER, SOFTWARE, Run, scenario
from raw_client import request_frame, request_header, with_length

API_VERSIONS, METADATA, PRODUCE, FETCH, CREATE_TOPICS, JOIN_GROUP = 18, 3, 0, 1, 19, 11


def header(api_key: int, version: int) -> bytes:
    """Header version 1 without a client id, for any key, even one that there is not."""
    return struct.pack(">hhih", api_key, version, 1, -1)


UNKNOWN_API = header(999, 0)


def send(run: Run, step: str, frame: bytes, *, framed: bool = True) -> None:
    """Record whether `frame` is answered, and with how many bytes and which first ones, or ends the connection."""
    connection = run.connect()
    with connection:
        connection.send(with_length(frame) if framed else frame)
        try:
            answer = connection.read_frame()
        except (ConnectionError, TimeoutError) as error:
            run.record(step, CLOSED if isinstance(error, ConnectionError) else NO_ANSWER)
            return
        run.record(step, f"correlation id {struct.unpack_from('>i', answer)[0]}, then {answer[4:8].hex()}")


@scenario(API_VERSIONS, newest_only=True)
def frames(run: Run) -> None:
    good = request_frame(METADATA, 1, {"topics": []})
    flexible = request_frame(METADATA, 12, {"topics": []})
    send(run, "unknown api key", UNKNOWN_API)
    send(run, "negative api key", header(-1, 0))
    send(run, "an inter-broker api", header(4, 0))
    send(run, "a controller's api", header(52, 0))
    send(run, "no client id", header(METADATA, 1) + struct.pack(">i", 0))
    send(
        run,
        "client id not UTF-8",
        struct.pack(">hhih", METADATA, 1, 1, 2) + b"\xff\xfe" + struct.pack(">i", 0),
    )
    send(run, "client id cut", struct.pack(">hhih", METADATA, 1, 1, 20) + b"abc")
    send(run, "header cut", good[:5])
    send(run, "empty frame", b"")
    send(run, "body cut", good[:-1])
    send(run, "flexible body cut", flexible[:-1])
    send(run, "trailing bytes", good + b"\0\0\0\0")
    send(run, "flexible trailing bytes", flexible + b"\0")
    send(run, "array longer than the frame", request_header(METADATA, 1) + struct.pack(">i", 1_000_000))
    send(run, "array of negative length", request_header(METADATA, 1) + struct.pack(">i", -5))
    send(run, "string longer than the frame", request_header(METADATA, 1) + struct.pack(">ih", 1, 30_000))
    send(run, "null where none may be", request_header(METADATA, 1) + struct.pack(">ih", 1, -1))
    send(run, "name not UTF-8", request_header(METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe")
    send(run, "unknown tagged field", flexible[:-1] + b"\x01\x63\x02ab")
    send(run, "negative length", struct.pack(">i", -1), framed=False)
    send(run, "oversized", struct.pack(">i", 104_857_601), framed=False)
    send(run, "not Kafka at all", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", framed=False)
    for api_key, version in (
        (METADATA, 14),
        (METADATA, -1),
        (PRODUCE, 2),
        (PRODUCE, 14),
        (FETCH, 3),
        (FETCH, 19),
        (CREATE_TOPICS, 1),
        (CREATE_TOPICS, 8),
        (JOIN_GROUP, 10),
    ):
        send(
            run,
            f"api {api_key} version {version}",
            header(api_key, version) + b"\0" * 20,
        )
    for version in (5, 99, -1):
        send(
            run,
            f"ApiVersions version {version}",
            struct.pack(">hhih", API_VERSIONS, version, 7, -1) + b"\0" + b"\x02a\x02b\0",
        )
    send(run, "ApiVersions cut", request_frame(API_VERSIONS, 3, SOFTWARE)[:-3])


@scenario(API_VERSIONS, newest_only=True)
def frames_in_a_row(run: Run) -> None:
    """Several requests on one connection before any answer: answered in their order, up to the one that is broken."""
    with run.connect() as connection:
        asked = [
            request_frame(METADATA, version, {"topics": []}, number)
            for number, version in enumerate((1, 5, 12), start=1)
        ]
        connection.send(b"".join(map(with_length, asked)))
        run.record("order", [struct.unpack_from(">i", connection.read_frame())[0] for _ in asked])
    with run.connect() as connection:
        connection.send(with_length(asked[0]) + with_length(UNKNOWN_API) + with_length(asked[1]))
        seen: list[str] = []
        while len(seen) < 3 and CLOSED not in seen:
            try:
                seen.append(str(struct.unpack_from(">i", connection.read_frame())[0]))
            except ConnectionError:
                seen.append(CLOSED)
        run.record("a broken one between", seen)
