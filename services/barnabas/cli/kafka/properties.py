"""Client properties from a file or from flags, in librdkafka's names or in the Java client's where these overlap.

A file is one `name=value` a line (`name: value` is read too), with # or ! before comments and a backslash before a
line's end to go on, as java.util.Properties reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from barnabas.cli.refusal import usage

JAVA_ONLY: Final = frozenset(
    {
        "default.api.timeout.ms",
        "key.serializer",
        "value.serializer",
        "key.deserializer",
        "value.deserializer",
        "max.poll.records",
        "buffer.memory",
        "max.block.ms",
        "metrics.recording.level",
        "reconnect.backoff.jitter",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.enabled.protocols",
    }
)
"""Names of the Java client that say nothing to librdkafka and may be left out."""

JAVA_NAMES: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.request.size": "message.max.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""The same thing under another name."""

TOPIC_OWN: Final = ("topic.blacklist", "topic.metadata.")
"""Properties of librdkafka's that begin with `topic.`; before any other it is what kcat lets users write."""

_JAAS_WORD = re.compile(
    r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"""
)


def read_properties(path: Path) -> dict[str, str]:
    """The properties in a file, in librdkafka's names; raises Refused where the file cannot be read."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise usage(f"cannot read the client properties in {path} ({reason})") from error
    return for_librdkafka(parse_properties(text))


def parse_properties(text: str) -> dict[str, str]:
    """Name to value, the last of a name counts."""
    found: dict[str, str] = {}
    joined = re.sub(r"(?<!\\)\\\n[ \t]*", "", text)
    for line in joined.splitlines():
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, _, value = line.partition(min((s for s in "=:" if s in line), key=line.index, default="="))
        found[name.strip()] = value.strip()
    return found


def parse_pairs(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """`name=value` words; raises Refused that names `flag`, and never the value."""
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise usage(f"{flag} {name!r} has no value: write it as NAME=VALUE")
        found[name.strip()] = value
    return found


def for_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """The same settings with the Java client's names translated, and those it alone knows left out."""
    translated: dict[str, str] = {}
    for given, value in properties.items():
        name = given.removeprefix("topic.") if not given.startswith(TOPIC_OWN) else given
        if name in JAVA_ONLY:
            continue
        if name == "sasl.jaas.config":
            translated.update(_jaas_settings(value))
        elif name == "ssl.truststore.location":
            translated["ssl.ca.location"] = _pem(name, value)
        elif name == "ssl.keystore.location" and value.endswith((".pem", ".crt")):
            translated["ssl.certificate.location"] = value
            translated.setdefault("ssl.key.location", value)
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = value or "none"
        else:
            translated[JAVA_NAMES.get(name, name)] = value
    return translated


def _jaas_settings(value: str) -> dict[str, str]:
    """User and password of PlainLoginModule and ScramLoginModule lines."""
    words = {
        match[1]: re.sub(r"\\(.)", r"\1", next(word for word in match.groups()[1:] if word is not None))
        for match in _JAAS_WORD.finditer(value)
    }
    if "username" not in words or "password" not in words:
        raise usage(
            "sasl.jaas.config names no username and password: give sasl.username and sasl.password instead"
        )
    return {"sasl.username": words["username"], "sasl.password": words["password"]}


def _pem(name: str, path: str) -> str:
    if path.endswith((".jks", ".p12", ".pfx")):
        raise usage(
            f"{name}={path} is a Java key store, which librdkafka cannot read: export the certificates as PEM and name "
            "them in ssl.ca.location"
        )
    return path
