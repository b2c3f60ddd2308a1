"""One request and its answer over a socket of our own, for what librdkafka does not offer.

Requests and answers are kio's dataclasses. TLS and SASL PLAIN work with the same properties as librdkafka's clients;
SCRAM, OAUTHBEARER and Kerberos do not, nor do key stores and client certificates with a password.
"""

from __future__ import annotations

import io
import itertools
import socket
import ssl
import struct
import time
from typing import Any, Final, Self

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from barnabas.cli.kafka.connection import (
    ANSWER_SECONDS_MAX,
    REACH_SECONDS_MAX,
    Connection,
    addresses_of,
    check_reachable,
)
from barnabas.cli.refusal import Refused
from barnabas.wire.schema import API_VERSIONS_KEY, api_name, is_flexible, response_schema

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""The longest answer that is read: log directories of a large cluster are some megabytes."""

_CLIENT_ID: Final = b"barnabas"
_HEADER: Final = struct.Struct(">hhih")
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36


class Unanswered(Refused):
    """A broker that could not be reached, or whose connection broke: what was asked may have been done all the same."""


def request_schema(api_key: int, version: int) -> Any:
    """kio's dataclass of a request: its fields differ from version to version."""
    return load_request_schema(api_key, version)


class PlainConnection:
    """Owns one socket to one broker. A context manager."""

    def __init__(self, connection: Connection, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._properties = connection.properties
        self._correlation_ids = itertools.count(1)
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._socket = socket.create_connection((host, port), REACH_SECONDS_MAX)
            self._secure(host)
        except OSError as error:
            raise Unanswered(f"cannot reach {self.address} ({error.strerror or error})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def versions(self, seconds: float = ANSWER_SECONDS_MAX) -> dict[int, tuple[int, int]]:
        """API key to (lowest, highest) version that this broker serves; asked once."""
        if not self._versions:
            answer = self._ask(API_VERSIONS_KEY, 0, request_schema(API_VERSIONS_KEY, 0)(), seconds)
            self._versions = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
        return self._versions

    def ask(self, request: Any, seconds: float = ANSWER_SECONDS_MAX) -> Any:
        """Send a kio request and return the answer; raises Refused where the broker does not know the request.

        Raises Unanswered where the answer is not there whole after so many seconds.
        """
        key, version = int(request.__api_key__), int(request.__version__)
        lowest, highest = self.versions(seconds).get(key, (0, -1))
        if not lowest <= version <= highest:
            raise Refused(
                f"the broker at {self.address} does not serve {api_name(key)} in version {version}: "
                "`barnabas cluster api-versions` shows what it does"
            )
        return self._ask(key, version, request, seconds)

    def _ask(self, key: int, version: int, request: Any, seconds: float = ANSWER_SECONDS_MAX) -> Any:
        correlation_id = next(self._correlation_ids)
        buffer = io.BytesIO()
        entity_writer(type(request))(buffer, request)
        header = _HEADER.pack(key, version, correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
        header += b"\0" if is_flexible(key, version) else b""
        frame = header + buffer.getvalue()
        deadline = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", self._read(4, deadline))
            answer = self._read(size, deadline)
        except OSError as error:
            raise Unanswered(f"{self.address} did not answer ({error.strerror or error})") from error
        offset = 5 if key != API_VERSIONS_KEY and is_flexible(key, version) else 4
        body, _ = entity_reader(response_schema(key, version))(answer, offset)
        return body

    def _read(self, count: int, deadline: float) -> bytes:
        if not 0 <= count <= ANSWER_BYTES_MAX:
            raise ConnectionError("what it sends is not Kafka's protocol")
        parts = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
            part = self._socket.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionError("it closed the connection: does it want TLS or SASL?")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _secure(self, host: str) -> None:
        protocol = self._properties.get("security.protocol", "plaintext").lower()
        if protocol in ("ssl", "sasl_ssl"):
            self._socket = self._tls_context().wrap_socket(self._socket, server_hostname=host)
        if protocol in ("sasl_plaintext", "sasl_ssl"):
            self._authenticate()

    def _tls_context(self) -> ssl.SSLContext:
        settings = self._properties
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
            context.check_hostname = False
        if settings.get("enable.ssl.certificate.verification", "true") == "false":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if "ssl.certificate.location" in settings:
            context.load_cert_chain(
                settings["ssl.certificate.location"],
                settings.get("ssl.key.location"),
                settings.get("ssl.key.password"),
            )
        return context

    def _authenticate(self) -> None:
        mechanism = self._properties.get("sasl.mechanism", self._properties.get("sasl.mechanisms", "GSSAPI"))
        if mechanism.upper() != "PLAIN":
            raise Refused(f"this command cannot use sasl.mechanism={mechanism}, only PLAIN")
        handshake = self._ask(_SASL_HANDSHAKE, 1, request_schema(_SASL_HANDSHAKE, 1)(mechanism="PLAIN"))
        if handshake.error_code != 0:
            raise Refused(f"{self.address} does not offer SASL PLAIN, only {', '.join(handshake.mechanisms)}")
        user, password = (self._properties.get(f"sasl.{name}", "") for name in ("username", "password"))
        token = b"\0".join((b"", user.encode(), password.encode()))
        answer = self._ask(_SASL_AUTHENTICATE, 1, request_schema(_SASL_AUTHENTICATE, 1)(auth_bytes=token))
        if answer.error_code != 0:
            raise Refused(f"{self.address} refused the user or the password in --command-config")


def open_bootstrap(connection: Connection) -> PlainConnection:
    """A connection to the first bootstrap address that takes one."""
    check_reachable(connection.bootstrap)
    refused = Refused("no address")
    for host, port in addresses_of(connection.bootstrap):
        try:
            return PlainConnection(connection, host, port)
        except Refused as error:
            refused = error
    raise refused
