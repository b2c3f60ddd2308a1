"""`barnabas dump-log`: kafka-dump-log, with a status that tells whether the files are sound."""

from __future__ import annotations

import enum
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
from barnabas.cli.text.output import OutputFormat
from barnabas.cli.text.progress import progress_bar

if TYPE_CHECKING:
    from barnabas.cli.dump.batches import BatchFlags
    from barnabas.cli.dump.entries import Entry, Findings
    from barnabas.cli.dump.indexes import IndexFlags

LINES_AT_ONCE: Final = 1000
FAULTS_SHOWN: Final = 20


class Decoder(enum.StrEnum):
    """How keys and values are shown."""

    text = "text"
    json = "json"
    hex = "hex"
    base64 = "base64"
    long = "long"


PathsFlag = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="Files, or folders with them; or --files.", show_default=False),
]
FilesFlag = Annotated[str, typer.Option(metavar="FILE,...", help="The files, with commas.")]
PrintDataLogFlag = Annotated[bool, typer.Option("--print-data-log", help="Show keys and values.")]
DeepIterationFlag = Annotated[bool, typer.Option("--deep-iteration", help="Show each record.")]
OffsetsDecoderFlag = Annotated[
    bool, typer.Option("--offsets-decoder", help="Records are those of __consumer_offsets.")
]
KeyDecoderFlag = Annotated[Decoder, typer.Option(help="How keys are shown.")]
ValueDecoderFlag = Annotated[Decoder, typer.Option(help="How values are shown.")]
SkipRecordMetadataFlag = Annotated[bool, typer.Option("--skip-record-metadata", help="Keys and values only.")]
IndexSanityCheckFlag = Annotated[
    bool, typer.Option("--index-sanity-check", help="Indexes: the check of a broker's start.")
]
VerifyIndexOnlyFlag = Annotated[
    bool, typer.Option("--verify-index-only", help="Indexes: compare with the log, show nothing.")
]
MissingDecoder = Annotated[bool, typer.Option(hidden=True, help="Refused.")]
MaxMessageSizeFlag = Annotated[int, typer.Option(min=1, metavar="BYTES", help="The largest batch.")]
MaxBytesFlag = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of each .log, no more.")]


@dataclass(frozen=True)
class ClassFlags:
    """Decoder classes of Kafka's, of which the fixed ones have a counterpart here, and decoders that are not here."""

    key_decoder_class: Annotated[
        str, typer.Option(metavar="CLASS", help="Kafka's StringDecoder, LongDecoder, DefaultDecoder, ...")
    ] = ""
    value_decoder_class: Annotated[str, typer.Option(metavar="CLASS", help="The same for values.")] = ""
    transaction_log_decoder: MissingDecoder = False
    cluster_metadata_decoder: MissingDecoder = False
    remote_log_metadata_decoder: MissingDecoder = False
    share_group_state_decoder: MissingDecoder = False

    @property
    def are_given(self) -> bool:
        return bool(self.key_decoder_class or self.value_decoder_class)

    def check(self) -> None:
        """Raise Refused for a decoder that only Kafka's tool has."""
        for name, value in vars(self).items():
            if value is True:
                raise usage(
                    f"--{name.replace('_', '-')} is only in kafka-dump-log, which reads these files as well"
                )

    def decoders(self, key: Decoder, value: Decoder) -> tuple[Decoder, Decoder]:
        """For keys and for values: what the class is for, else what was given by its word. Raises Refused."""
        self.check()
        return _by_class(self.key_decoder_class, key), _by_class(self.value_decoder_class, value)


def _by_class(name: str, otherwise: Decoder) -> Decoder:
    short = name.rpartition(".")[2].removesuffix("Decoder").removesuffix("Deserializer")
    known = {
        "": otherwise,
        "String": Decoder.text,
        "Long": Decoder.long,
        "Integer": Decoder.long,
        "Default": Decoder.hex,
    }
    if short not in known:
        raise usage(f"{name} is a class that only a JVM can load: use --key-decoder and --value-decoder")
    return known[short]


class DumpLogCommand(ShellCommand):
    """Kafka's decoder classes have a default."""

    optional_values: ClassVar = {
        f"--{side}-decoder-class": OptionalValue(
            f"--{side}-decoder-class",
            (f"--{side}-decoder-class", "StringDecoder"),
            lambda text: text.endswith(("Decoder", "Deserializer")),
        )
        for side in ("key", "value")
    }


@spread
def dump_log(
    classes: ClassFlags,
    paths: PathsFlag = None,
    files: FilesFlag = "",
    print_data_log: PrintDataLogFlag = False,
    deep_iteration: DeepIterationFlag = False,
    offsets_decoder: OffsetsDecoderFlag = False,
    key_decoder: KeyDecoderFlag = Decoder.text,
    value_decoder: ValueDecoderFlag = Decoder.text,
    skip_record_metadata: SkipRecordMetadataFlag = False,
    index_sanity_check: IndexSanityCheckFlag = False,
    verify_index_only: VerifyIndexOnlyFlag = False,
    max_message_size: MaxMessageSizeFlag = 100 * 1024 * 1024,
    max_bytes: MaxBytesFlag = 2**31 - 1,
    output: flags.Output = OutputFormat.table,
) -> None:
    """Show and check segments, indexes, snapshots and checkpoints (kafka-dump-log)."""
    wanted = [*(Path(word) for word in files.split(",") if word), *(paths or ())]
    if not wanted:
        raise usage("dump-log needs --files")
    key_decoder, value_decoder = classes.decoders(key_decoder, value_decoder)
    from barnabas.cli.dump.batches import DECODERS, BatchFlags
    from barnabas.cli.dump.indexes import IndexFlags

    has_data = (
        print_data_log
        or offsets_decoder
        or classes.are_given
        or key_decoder is not Decoder.text
        or value_decoder is not Decoder.text
    )
    batch_flags = BatchFlags(
        has_records=has_data or deep_iteration,
        has_data=has_data,
        decodes_offsets=offsets_decoder,
        decode_key=DECODERS[key_decoder],
        decode_value=DECODERS[value_decoder],
        bytes_max=max_bytes,
        message_bytes_max=max_message_size,
    )
    index_flags = IndexFlags(index_sanity_check, verify_index_only)
    show = _Shown(output, skips_record_metadata=skip_record_metadata)
    faults: list[str] = []
    found = list(expand(wanted))
    total = sum(path.stat().st_size for path in found if path.suffix == ".log")
    with progress_bar("reading", total, unit="bytes") as advance:
        for path in found:
            faults += _dump(path, batch_flags, index_flags, show, advance)
    show.flush()
    for fault in faults[:FAULTS_SHOWN]:
        sys.stderr.write(f"{fault}\n")
    if faults:
        raise Refused(
            f"{len(faults)} faults in {len(found)} files: `--index-sanity-check` says which indexes to remove"
        )


app = flags.application(dump_log, DumpLogCommand)


def expand(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as they are; of folders, what a log consists of. Raises Refused for what is not there."""
    for path in paths:
        if path.is_dir():
            yield from sorted(child for child in path.iterdir() if child.is_file() and is_known(child))
        elif not path.exists():
            raise usage(f"{path}: no such file")
        elif not is_known(path):
            raise usage(
                f"{path} is no file of a log, such as 00000000000000000000.log, .index, .timeindex, .snapshot"
            )
        else:
            yield path


def is_known(path: Path) -> bool:
    """Whether this is a file that Kafka writes: a segment's is named by its base offset."""
    if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
        return path.stem.isdigit()
    return path.name.endswith(("-checkpoint", "meta.properties", "partition.metadata"))


def _dump(
    path: Path, batch_flags: BatchFlags, index_flags: IndexFlags, show: _Shown, advance: Any
) -> list[str]:
    from barnabas.cli.dump.entries import Findings

    findings = Findings(str(path))
    show.begin(path)
    for entry in _entries(path, batch_flags, index_flags, findings, advance):
        show.add(entry)
    return findings.faults


def _entries(
    path: Path, batch_flags: BatchFlags, index_flags: IndexFlags, findings: Findings, advance: Any
) -> Iterator[Entry]:
    from barnabas.cli.dump import batches, indexes, small_files

    name = str(path)
    if path.suffix == ".log":
        yield {"type": "note", "file": name, "text": f"Log starting offset: {int(path.stem)}"}
        yield from batches.read_batches(name, batch_flags, findings, advance)
    elif path.suffix == ".index":
        yield from indexes.read_offset_index(name, index_flags, findings)
    elif path.suffix == ".timeindex":
        yield from indexes.read_time_index(name, index_flags, findings)
    elif path.suffix == ".snapshot":
        yield from small_files.read_snapshot(name, findings)
    elif path.suffix == ".txnindex":
        yield from small_files.read_transaction_index(name)
    elif path.name.endswith("-checkpoint"):
        yield from small_files.read_checkpoint_file(name, findings)
    else:
        yield from small_files.read_property_file(name)


class _Shown:
    """Writes entries in the format asked for, many at once: JSON is an object a line, YAML a list."""

    def __init__(self, output: OutputFormat, *, skips_record_metadata: bool) -> None:
        self._output = output
        self._skips = skips_record_metadata
        self._lines: list[str] = []

    def begin(self, path: Path) -> None:
        if self._output is OutputFormat.table:
            self._lines.append(f"Dumping {path}")

    def add(self, entry: Entry) -> None:
        if self._output is OutputFormat.table:
            from barnabas.cli.dump.entries import to_text

            self._lines.append(to_text(entry, skips_record_metadata=self._skips))
        elif entry["type"] != "note":
            self._lines.append(self._encoded(entry))
        if len(self._lines) >= LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            sys.stdout.write("\n".join(self._lines) + "\n")
            self._lines.clear()
        sys.stdout.flush()

    def _encoded(self, entry: Entry) -> str:
        if self._output is OutputFormat.json:
            import json

            return json.dumps(entry, ensure_ascii=False)
        import yaml

        return str(yaml.safe_dump([entry], sort_keys=False, allow_unicode=True)).rstrip("\n")
