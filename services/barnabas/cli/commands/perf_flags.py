"""Flags of the performance tools: what is sent, how much of it, and how fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.commands import flags
from barnabas.cli.refusal import usage

NumRecordsFlag = Annotated[int, typer.Option(min=1, help="How many records.")]
RecordSizeFlag = Annotated[int | None, typer.Option(min=1, metavar="BYTES", help="Bytes of each value.")]
PayloadFileFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Values to choose from at random instead.")
]
PayloadDelimiterFlag = Annotated[str, typer.Option(metavar="TEXT", help="Between the file's values.")]
ThroughputFlag = Annotated[
    float, typer.Option(metavar="RECORDS/S", help="At most so many a second; -1 for no limit.")
]
ProducerPropsFlag = Annotated[
    list[str] | None,
    typer.Option("--producer-props", metavar="NAME=VALUE", help="Client properties; repeatable, or k=v,k=v."),
]
PrintMetricsFlag = Annotated[
    bool, typer.Option("--print-metrics", help="librdkafka's own counters at the end.")
]
CommandConfigFlag = Annotated[
    flags.ConfigFile,
    typer.Option("--command-config", "--producer.config", metavar="FILE", help=flags.CONFIG_HELP),
]


@dataclass(frozen=True)
class PayloadFlags:
    """What the records hold: exactly one of the three."""

    record_size: RecordSizeFlag = None
    payload_file: PayloadFileFlag = None
    payload_delimiter: PayloadDelimiterFlag = "\\n"
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Values are 0, 1, 2, ... as text.")
    ] = False

    def check(self) -> None:
        if sum((self.record_size is not None, self.payload_file is not None, self.payload_monotonic)) != 1:
            raise usage("give one of --record-size, --payload-file and --payload-monotonic")


@dataclass(frozen=True)
class PaceFlags:
    """How many records, how fast, and what is reported of them."""

    num_records: NumRecordsFlag = 100_000
    throughput: ThroughputFlag = -1
    warmup_records: Annotated[
        int, typer.Option(min=0, help="So many in the beginning are left out of a second summary.")
    ] = 0
    reporting_interval: Annotated[
        int, typer.Option(metavar="MS", min=1, help="A line of progress each time.")
    ] = 5000
    transactional_id: Annotated[str, typer.Option(metavar="ID", help="Send in transactions.")] = ""
    transaction_duration_ms: Annotated[
        int | None, typer.Option(min=1, metavar="MS", help="Commit after so long (3000).")
    ] = None
    print_metrics: PrintMetricsFlag = False

    def check(self) -> None:
        if self.warmup_records >= self.num_records:
            raise usage("--warmup-records must be fewer than --num-records")
