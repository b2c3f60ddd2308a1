"""The whole demo: produce, compute, read back, compare, show."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from barnabas.pipelines.config import PipelineConfig, PipelineError, spark_jars
from barnabas.pipelines.dataset import FLIGHTS_TOTAL, flights
from barnabas.pipelines.delays_job import run_job
from barnabas.pipelines.produce_flights import produce_flights
from barnabas.pipelines.report import delay_table, save_plot
from barnabas.pipelines.results import Delays, difference, read_parquet, read_result_topic
from barnabas.pipelines.topics import connect, create_topic, free_name

if TYPE_CHECKING:
    from rich.console import Console

RESULT_SUFFIX = "-delays"
"""The result topic is named for the flights topic."""


def create_topics(config: PipelineConfig, console: Console) -> tuple[str, str]:
    """A fresh flights topic and its result topic, created; returns their names."""
    admin = connect(config)
    existing = set(admin.list_topics(timeout=config.timeout_seconds).topics)
    name = free_name(config.flights_topic, existing, ("", RESULT_SUFFIX))
    if name != config.flights_topic:
        console.print(f"topic {config.flights_topic} exists already: using {name}")
    create_topic(admin, config, name, {})
    create_topic(admin, config, name + RESULT_SUFFIX, {"cleanup.policy": "compact"})
    return name, name + RESULT_SUFFIX


def check_results(from_topic: Delays, from_parquet: Delays) -> None:
    """Raises `PipelineError` unless topic and Parquet say the same and account for every flight."""
    found = difference(from_topic, from_parquet)
    if found is not None:
        raise PipelineError(f"result topic and Parquet differ: {found}")
    total = sum(delay.flights for delay in from_topic.values())
    if total != FLIGHTS_TOTAL:
        raise PipelineError(f"the results account for {total:,} flights, not {FLIGHTS_TOTAL:,}")


def run_demo(config: PipelineConfig, console: Console) -> None:
    """Run the demo against the cluster at `config.bootstrap`; raises `PipelineError` with one line."""
    spark_jars(config)  # before anything is written: a missing jar should not cost a minute of producing
    flights_topic, result_topic = create_topics(config, console)
    parquet = config.output / "delays.parquet"
    config.output.mkdir(parents=True, exist_ok=True)
    for left_over in (parquet, config.output / "checkpoints"):
        shutil.rmtree(left_over, ignore_errors=True)

    started = time.monotonic()
    produced = produce_flights(config, flights_topic, flights(), console)
    seconds = time.monotonic() - started
    console.print(f"{produced:,} flights acknowledged in {seconds:.1f} s")

    started = time.monotonic()
    with console.status("Spark: delays per day, carrier and origin"):
        report = run_job(config, flights_topic, result_topic, parquet)
    seconds = time.monotonic() - started
    console.print(
        f"Spark read {report.rows_read:,} flights, wrote {report.rows_written:,} results in {seconds:.1f} s"
    )

    from_topic = read_result_topic(config, result_topic)
    check_results(from_topic, read_parquet(parquet))
    console.print(delay_table(from_topic.values()))
    plot = config.output / "delays.png"
    save_plot(from_topic.values(), plot)
    console.print(f"result topic: {result_topic}\nParquet: {parquet}\nplot: {plot}", soft_wrap=True)
