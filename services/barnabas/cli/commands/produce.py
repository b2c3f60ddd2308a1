"""`barnabas produce`: kafka-console-producer and `kcat -P`."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import typer

from barnabas.cli.commands import flags
from barnabas.cli.commands.flag_sets import spread
from barnabas.cli.commands.shell_command import OptionalValue, ShellCommand
from barnabas.cli.refusal import Refused, usage

if TYPE_CHECKING:
    from barnabas.cli.kafka.producing import Sender
    from barnabas.cli.text.envelope import Header
    from barnabas.cli.text.record_input import LineShape, Read


class InputFormat(enum.StrEnum):
    """How records stand in the input."""

    lines = "lines"
    json = "json"


CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

FilesFlag = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="What to send instead of stdin: a record, or lines with -l; repeatable.",
    ),
]
TopicFlag = Annotated[
    str,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="Where to; JSON may name it.",
        autocompletion=flags.complete_topic,
    ),
]
PartitionFlag = Annotated[int, typer.Option("--partition", "-p", min=-1, help="-1: by key, or any.")]
KeySeparatorFlag = Annotated[
    str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="What ends the key in a line.")
]
KeyFlag = Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")]
DelimiterFlag = Annotated[
    str, typer.Option("--delimiter", "-D", metavar="TEXT", help="What stands between records.")
]
HeaderFlag = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
]
CompressionCodecFlag = Annotated[
    str,
    typer.Option("--compression-codec", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
]
NullFlag = Annotated[bool, typer.Option("--null", "-Z", help="Empty keys and values are null.")]
LinesFlag = Annotated[bool, typer.Option("--lines", "-l", help="Files are read as lines.")]
InputFlag = Annotated[
    InputFormat, typer.Option("--input", help="lines, or what consume --output json wrote.")
]
JsonFlag = Annotated[bool, typer.Option("-J", help="As --input json.")]
KeepPartitionsFlag = Annotated[
    bool, typer.Option("--keep-partitions", help="Into the partitions that the JSON names.")
]
PropertyFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "--reader-property",
        metavar="NAME=VALUE",
        help="parse.key, key.separator, parse.headers, null.marker, ... as kafka-console-producer has them.",
    ),
]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", hidden=True, help="It says nothing anyway.")]
AcksFlag = Annotated[
    str, typer.Option("--acks", "--request-required-acks", metavar="ACKS", help="all, 1 or 0.")
]
IdempotenceFlag = Annotated[
    bool, typer.Option("--idempotence/--no-idempotence", help="Each record once and in order.")
]
CommandConfigFlag = Annotated[
    flags.ConfigFile,
    typer.Option("--command-config", "--producer.config", "-F", metavar="FILE", help=flags.CONFIG_HELP),
]
CommandPropertyFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--command-property", "--producer-property", "-X", metavar="NAME=VALUE", help=flags.PROPERTY_HELP
    ),
]


@dataclass(frozen=True)
class ClientFlags:
    """Properties of the producer that have a flag of their own in kafka-console-producer."""

    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size", "--max-partition-memory-bytes", min=1, metavar="BYTES", help="As batch.size."
        ),
    ] = None
    max_memory_bytes: Annotated[
        int | None, typer.Option(min=1024, metavar="BYTES", help="As buffer.memory.")
    ] = None
    max_block_ms: Annotated[
        int | None, typer.Option(min=0, metavar="MS", help="Give up when the buffer stays full so long.")
    ] = None
    message_send_max_retries: Annotated[int | None, typer.Option(min=0, help="As retries.")] = None
    metadata_expiry_ms: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="As metadata.max.age.ms.")
    ] = None
    request_timeout_ms: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="How long brokers wait for acks.")
    ] = None
    retry_backoff_ms: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="As retry.backoff.ms.")
    ] = None
    socket_buffer_size: Annotated[
        int | None, typer.Option(min=0, metavar="BYTES", help="As send.buffer.bytes.")
    ] = None
    timeout: Annotated[int | None, typer.Option(min=0, metavar="MS", help="As linger.ms.")] = None

    @property
    def block_seconds(self) -> float | None:
        """How long the buffer may stay full; None for as long as it takes."""
        return None if self.max_block_ms is None else self.max_block_ms / 1000

    def settings(self) -> dict[str, Any]:
        """librdkafka's names of what was given."""
        memory = None if self.max_memory_bytes is None else self.max_memory_bytes // 1024
        named = {
            "batch.size": self.batch_size,
            "queue.buffering.max.kbytes": memory,
            "message.send.max.retries": self.message_send_max_retries,
            "metadata.max.age.ms": self.metadata_expiry_ms,
            "topic.metadata.refresh.interval.ms": self.metadata_expiry_ms,
            "request.timeout.ms": self.request_timeout_ms,
            "retry.backoff.ms": self.retry_backoff_ms,
            "socket.send.buffer.bytes": self.socket_buffer_size,
            "linger.ms": self.timeout,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class ReaderFlags:
    """How kafka-console-producer reads."""

    property_: PropertyFlag = None
    reader_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Properties as of --property; those go before.")
    ] = None
    line_reader: Annotated[
        str, typer.Option(hidden=True, help="org.apache.kafka.tools.LineMessageReader, what is done anyway.")
    ] = ""
    sync: Annotated[bool, typer.Option("--sync", help="Wait for each record to be acknowledged.")] = False
    tee: Annotated[bool, typer.Option("--tee", "-T", help="Write to stdout what is sent.")] = False
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="End after so many records.")] = (
        None
    )

    def properties(self) -> dict[str, str]:
        """Those of the file and of the flags. Raises Refused."""
        from barnabas.cli.kafka.properties import parse_pairs, parse_properties

        if self.line_reader and not self.line_reader.endswith("LineMessageReader"):
            raise usage(f"--line-reader {self.line_reader} is a class that only a JVM can load: leave it out")
        found = parse_properties(self.reader_config.read_text()) if self.reader_config else {}
        return found | parse_pairs(self.property_ or (), "--property")


@spread
def produce(
    reader: ReaderFlags,
    client: ClientFlags,
    name: flags.TopicWord = None,
    topic: TopicFlag = "",
    files: FilesFlag = None,
    partition: PartitionFlag = -1,
    key_separator: KeySeparatorFlag = None,
    key: KeyFlag = None,
    delimiter: DelimiterFlag = "\\n",
    header: HeaderFlag = None,
    compression_codec: CompressionCodecFlag = "none",
    null: NullFlag = False,
    lines: LinesFlag = False,
    input_: InputFlag = InputFormat.lines,
    json_: JsonFlag = False,
    quiet: QuietFlag = False,
    keep_partitions: KeepPartitionsFlag = False,
    acks: AcksFlag = "all",
    idempotence: IdempotenceFlag = True,
    bootstrap_server: flags.BootstrapServer = "",
    command_config: CommandConfigFlag = None,
    command_property: CommandPropertyFlag = None,
) -> None:
    """Send records from lines, files or JSON (kafka-console-producer, kcat -P)."""
    from barnabas.cli.text import record_input
    from barnabas.cli.text.escapes import unescape

    is_json = json_ or input_ is InputFormat.json
    topic = flags.one_topic(name, topic, "produce", advice="a file to send is named by --file")
    check_topic(topic, is_json=is_json)
    if not delimiter:
        raise usage("--delimiter is empty")
    properties = reader.properties()
    if is_json and (properties or key_separator is not None):
        raise usage("--input json has keys and headers of its own: leave --property and --key-separator out")
    shape = record_input.shape_of(properties, key_separator, is_empty_null=null)
    headers = [record_input.parse_header(text) for text in header or ()]
    settings = producer_settings(compression_codec, acks, is_idempotent=idempotence) | client.settings()
    connection = flags.connect(bootstrap_server, command_config, command_property)
    from barnabas.cli.kafka.producing import Sender, size_errors_named

    content = Content(
        paths=tuple(files or ()),
        is_json=is_json,
        has_lines=lines or is_json or not files,
        separator=unescape(delimiter),
        headers=tuple(headers),
        key=None if key is None else key.encode(errors="surrogateescape"),
        keeps_partition=keep_partitions,
        records_max=reader.count,
        is_tee=reader.tee,
        is_synchronous=reader.sync,
    )
    sender = Sender(
        connection, topic, partition=partition, settings=settings, block_seconds_max=client.block_seconds
    )
    with sender, size_errors_named():
        send_all(sender, content, shape)


def check_topic(topic: str, *, is_json: bool) -> None:
    """Raise Refused for a topic that no cluster can have, and for none where the records do not name theirs."""
    if not topic:
        if is_json:
            return
        raise usage("produce needs a topic: barnabas produce TOPIC")
    from barnabas.metadata.topic_names import topic_name_problem

    problem = topic_name_problem(topic)
    if problem is not None:
        raise usage(f"--topic is no valid name: {problem}")


class ProduceCommand(ShellCommand):
    """Kafka's --compression-codec alone is gzip."""

    optional_values: ClassVar = {
        "--compression-codec": OptionalValue(
            "--compression-codec",
            ("--compression-codec", "gzip"),
            lambda text: text in CODECS,
        )
    }


app = flags.application(produce, ProduceCommand)


@dataclass(frozen=True)
class Content:
    """Where the records come from, and what every one of them gets."""

    paths: tuple[Path, ...]
    is_json: bool
    has_lines: bool
    """Whether files hold many records, or are one each."""
    separator: bytes
    headers: tuple[Header, ...]
    key: bytes | None
    keeps_partition: bool
    records_max: int | None = None
    is_tee: bool = False
    is_synchronous: bool = False

    @property
    def is_simple(self) -> bool:
        """Whether records need nothing but to be sent."""
        return not (self.is_json or self.is_tee or self.is_synchronous) and self.key is None


def send_all(sender: Sender, content: Content, shape: LineShape) -> None:
    """Send everything there is; raises Refused that says at which record it stopped."""
    from barnabas.cli.text import record_input

    read = record_input.json_reader() if content.is_json else record_input.line_reader(shape)
    if not content.has_lines:
        for path in content.paths[: content.records_max]:
            _send_pieces(sender, [path.read_bytes()], read, content, first=1)
        return
    is_plain = content.is_simple and shape.is_value_only
    number = 1
    for pieces in _limited(_pieces(content.paths, content.separator), content.records_max):
        if is_plain:
            sender.send_values(pieces, content.headers)
        else:
            kept = [piece for piece in pieces if piece.strip()] if content.is_json else pieces
            _send_pieces(sender, kept, read, content, first=number)
        number += len(pieces)


def producer_settings(compression: str, acks: str, *, is_idempotent: bool) -> dict[str, Any]:
    """librdkafka's settings for these flags. Raises Refused for what it does not take."""
    if compression not in CODECS:
        raise usage(f"--compression-codec {compression}: none, gzip, snappy, lz4 or zstd")
    if acks not in ("all", "-1", "0", "1"):
        raise usage(f"--acks {acks}: all, 1 or 0")
    is_all = acks in ("all", "-1")
    return {
        "compression.type": compression,
        "acks": "all" if is_all else acks,
        "enable.idempotence": is_idempotent and is_all,
        "linger.ms": 0 if sys.stdin.isatty() else 20,
    }


def _send_pieces(
    sender: Sender, pieces: Sequence[bytes], read: Read, content: Content, *, first: int
) -> None:
    """Send each piece; a refusal says at which of them."""
    for at, piece in enumerate(pieces):
        try:
            record = read(piece)
        except Refused as error:
            raise Refused(
                f"record {first + at} of the input: {error}; the {sender.sent} before it are sent"
            ) from error
        if content.key is not None and record.key is None:
            record = record._replace(key=content.key)
        sender.send(record, content.headers, keeps_partition=content.keeps_partition)
        if content.is_synchronous:
            sender.flush()
        if content.is_tee:
            sys.stdout.buffer.write(piece + content.separator)
            sys.stdout.buffer.flush()
    sender.poll()


def _limited(batches: Iterator[list[bytes]], most: int | None) -> Iterator[list[bytes]]:
    """No more than `most` pieces; the rest of the input is not read."""
    if most is None:
        yield from batches
        return
    for pieces in batches:
        yield pieces[:most]
        most -= len(pieces)
        if most <= 0:
            return


def _pieces(paths: Sequence[Path], delimiter: bytes) -> Iterator[list[bytes]]:
    """The pieces of stdin, or of each file in turn."""
    from barnabas.cli.text.pieces import split_input

    if not paths:
        yield from split_input(sys.stdin.fileno(), delimiter)
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield from split_input(descriptor, delimiter)
        finally:
            os.close(descriptor)
