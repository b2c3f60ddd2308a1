from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas.cli.commands.dump_log import app
from barnabas.cli.refusal import Refused
from barnabas.log.segments.offset_index import OffsetIndex
from barnabas.log.segments.time_index import TimeIndex
from barnabas.records.control import encode_marker
from barnabas.records.record import encode_batch

NAME = "00000000000000000010"


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """Three batches from offset 10, the last a marker, with indexes that say so."""
    first = encode_batch(
        [(1000, b"k", b"v\xff", [("h", b"1")]), (1001, None, b'{"a":1}', ())],
        base_offset=10,
        compression=4,
        producer_id=7,
        producer_epoch=0,
        base_sequence=3,
    )
    second = encode_batch([(1002, b"k", None, ())], base_offset=12)
    marker = encode_marker(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=5, timestamp=1003
    )
    marker = (13).to_bytes(8, "big") + marker[8:]
    path = tmp_path / f"{NAME}.log"
    path.write_bytes(first + second + marker)
    path.with_suffix(".index").write_bytes(OffsetIndex.entry.pack(2, len(first)))
    path.with_suffix(".timeindex").write_bytes(TimeIndex.entry.pack(1002, 2) + TimeIndex.entry.pack(1003, 3))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n4 10\n")
    return path


def dump(*arguments: object, faults: str = "") -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if faults:
        assert isinstance(result.exception, Refused), result.output
        assert faults in result.stderr
    else:
        assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_batches_and_records(segment: Path) -> None:
    lines = dump("--print-data-log", "--files", segment).splitlines()
    assert lines[:2] == [f"Dumping {segment}", "Log starting offset: 10"]
    assert lines[2].startswith(
        "baseOffset: 10 lastOffset: 11 count: 2 baseSequence: 3 lastSequence: 4 producerId: 7 producerEpoch: 0 "
        "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        "position: 0 CreateTime: 1001 size: "
    )
    assert "compresscodec: zstd" in lines[2]
    assert lines[3:5] == [
        "| offset: 10 CreateTime: 1000 keySize: 1 valueSize: 2 sequence: 3 headerKeys: [h] key: k payload: v\ufffd",
        '| offset: 11 CreateTime: 1001 keySize: -1 valueSize: 7 sequence: 4 headerKeys: [] payload: {"a":1}',
    ]
    assert lines[-1] == (
        "| offset: 13 CreateTime: 1003 keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] "
        "endTxnMarker: COMMIT coordinatorEpoch: 5"
    )


def test_decoders_and_json(segment: Path) -> None:
    output = dump("--output", "json", "--value-decoder", "hex", "--key-decoder", "base64", segment)
    batches = [json.loads(line) for line in output.splitlines()]
    assert [batch["count"] for batch in batches] == [2, 1, 1]
    assert batches[0]["records"][0] | {"key": "aw==", "value": "76ff"} == batches[0]["records"][0]
    without = dump("--print-data-log", "--skip-record-metadata", segment)
    assert "| key: k payload: v\ufffd" in without
    assert "endTxnMarker" not in without


def test_a_whole_folder(segment: Path) -> None:
    output = dump(segment.parent)
    assert output.count("Dumping ") == 4
    assert "offset: 12 position: " in output
    assert "timestamp: 1003 offset: 13" in output
    assert "epoch: 4 startOffset: 10" in output
    assert "passed sanity check" in dump("--index-sanity-check", segment.with_suffix(".index"))
    assert "offset:" not in dump("--verify-index-only", segment.with_suffix(".timeindex"))


def test_limits(segment: Path) -> None:
    assert dump("--max-bytes", 1, segment).count("baseOffset") == 1
    dump("--max-message-size", 10, segment, faults="raise --max-message-size")


def test_what_is_not_sound(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data + b"xyz")
    output = dump(segment, faults="the CRC of the batch")
    assert "isvalid: false" in output
    segment.write_bytes(bytes(100))
    dump(segment, faults="no batch of format version 2")
    index = segment.with_suffix(".index")
    index.write_bytes(OffsetIndex.entry.pack(1, 50) + b"odd")
    dump(index, faults="no whole number of entries")
    segment.unlink()
    dump(segment.with_suffix(".timeindex"), faults="is not beside it")


def test_indexes_that_lie(segment: Path) -> None:
    segment.with_suffix(".index").write_bytes(OffsetIndex.entry.pack(1, 0) + OffsetIndex.entry.pack(2, 7))
    dump(segment.with_suffix(".index"), faults="where no batch begins")
    segment.with_suffix(".timeindex").write_bytes(TimeIndex.entry.pack(9999, 2) + TimeIndex.entry.pack(5, 30))
    dump(segment.with_suffix(".timeindex"), faults="the log has 1002")


def test_files_of_another_kind(tmp_path: Path) -> None:
    other = tmp_path / "notes.log"
    other.write_text("x")
    for path in (other, tmp_path / "missing.log"):
        result = CliRunner().invoke(app, [str(path)])
        assert isinstance(result.exception, Refused)
