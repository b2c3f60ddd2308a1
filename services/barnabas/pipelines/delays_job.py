"""The Structured Streaming job: flights topic -> delays per day, carrier and origin -> result topic and Parquet.

Two streaming queries, both with Spark's own Kafka source, both run until they have read what was in their
topic when they started (`Trigger.AvailableNow`):

1. flights topic, joined with the airlines and airports tables, aggregated in event-time windows, to the
   result topic through Spark's Kafka sink;
2. result topic to Parquet.

Why two in a row, and update mode: the flights are keyed by carrier, so each partition is in time order but the
partitions advance independently, and a window is whole only when the slowest carrier has passed it. Append
mode (the only one the file sink takes) hands out a window when the watermark has passed its end, which for the
last days of the year never happens: nothing later comes. Update mode hands out every window that a
micro-batch changed. The source has no per-batch limit here, so the first run is one micro-batch, the watermark
starts to move only after it, no row can be late, and each window is handed out once, complete. A later run on
the same checkpoints hands out changed windows again under the same key, which is why the result topic is
compacted. Should a row ever be dropped as late, the run fails (`rows_late`) rather than show wrong numbers.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.pipelines.config import PipelineConfig, PipelineError, spark_jars
from barnabas.pipelines.dataset import FLIGHT_COLUMNS, table_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOPBACK = "127.0.0.1"

WINDOW = "1 day"
WINDOW_START = "5 hours"
"""Windows start at 05:00 UTC, midnight in New York in winter. No flight is scheduled between then and
midnight in summer (04:00 UTC), so a window is exactly a local calendar day all year round."""

WATERMARK = "7 days"
"""How far a carrier may lag behind the others between two micro-batches before its windows are closed."""

RESULT_SCHEMA = (
    "window_start timestamp, window_end timestamp, carrier string, carrier_name string, origin string, "
    "origin_name string, flights long, flights_cancelled long, flights_arrived long, "
    "departure_delay_minutes_mean double, departure_delay_minutes_max int, "
    "arrival_delay_minutes_mean double, arrival_delay_minutes_max int"
)
"""One row a window, carrier and origin; a mean or maximum is null where no flight departed (arrived)."""


@dataclass(frozen=True)
class JobReport:
    """What the two queries did."""

    rows_read: int
    """Flights that the first query read."""
    rows_late: int
    """Flights that came behind the watermark and were left out; a run with any fails."""
    rows_written: int
    """Rows that the second query moved from the result topic to Parquet."""


def start_spark(config: PipelineConfig) -> SparkSession:
    """A Spark session inside this process's own JVM, bound to loopback, quiet, in UTC.

    Raises `PipelineError` if Java or the Kafka jars are missing.
    """
    jars = spark_jars(config)
    # PySpark says this on import where pandas is new; nothing here hands pandas to Spark.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    from pyspark.sql import SparkSession

    # Spark's JVM inherits this: without it, Spark takes the host name's address for its own.
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    log_settings = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": f"{config.memory_mib}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # The default is a timestamp without time zone that only Spark reads as UTC.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The default of 200 is for a farm: each shuffle partition keeps a state store of its own.
        "spark.sql.shuffle.partitions": str(config.threads),
        "spark.sql.warehouse.dir": (config.output / "spark-warehouse").absolute().as_uri(),
    }
    builder = SparkSession.builder.master(f"local[{config.threads}]").appName("flight-delays")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read_topic(spark: SparkSession, config: PipelineConfig, topic: str) -> DataFrame:
    """A stream of the topic's records from its first offset on."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        # Records that retention took away before they were read are an error, not a gap.
        .option("failOnDataLoss", "true")
        .load()
    )


def parse_flights(records: DataFrame) -> DataFrame:
    """Flights from the records' JSON, with `event_time`; a record that is not a flight fails the query."""
    from pyspark.sql import functions as f

    types = ((name, "int" if kind is int else "string") for name, kind in FLIGHT_COLUMNS.items())
    schema = ", ".join(f"{name} {kind}" for name, kind in types)
    flight = f.from_json(f.col("value").cast("string"), schema, {"mode": "FAILFAST"})
    return records.select(flight.alias("flight")).select(
        "flight.*", f.to_timestamp("flight.time_hour").alias("event_time")
    )


def delays(flights: DataFrame, airlines: DataFrame, airports: DataFrame) -> DataFrame:
    """Delays per window, carrier and origin, in the columns of `RESULT_SCHEMA`.

    `airlines` has columns carrier and name, `airports` faa and name. Left joins: a flight of an unknown
    carrier or airport still counts, with no name.
    """
    from pyspark.sql import functions as f

    carriers = f.broadcast(airlines.select("carrier", f.col("name").alias("carrier_name")))
    origins = f.broadcast(airports.select(f.col("faa").alias("origin"), f.col("name").alias("origin_name")))
    window = f.window("event_time", WINDOW, WINDOW, WINDOW_START).alias("window")
    return (
        flights.withWatermark("event_time", WATERMARK)
        .join(carriers, "carrier", "left")
        .join(origins, "origin", "left")
        .groupBy(window, "carrier", "carrier_name", "origin", "origin_name")
        .agg(
            f.count("*").alias("flights"),
            f.count_if(f.col("dep_time").isNull()).alias("flights_cancelled"),
            f.count("arr_delay").alias("flights_arrived"),
            f.avg("dep_delay").alias("departure_delay_minutes_mean"),
            f.max("dep_delay").alias("departure_delay_minutes_max"),
            f.avg("arr_delay").alias("arrival_delay_minutes_mean"),
            f.max("arr_delay").alias("arrival_delay_minutes_max"),
        )
        .select(f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"), "*")
        .drop("window")
    )


def as_records(results: DataFrame) -> DataFrame:
    """Key `day|carrier|origin` and the whole row as JSON, nulls included: what the Kafka sink takes."""
    from pyspark.sql import functions as f

    day = f.date_format("window_start", "yyyy-MM-dd")
    return results.select(
        f.concat_ws("|", day, "carrier", "origin").alias("key"),
        f.to_json(f.struct("*"), {"ignoreNullFields": "false"}).alias("value"),
    )


def run_job(config: PipelineConfig, flights_topic: str, result_topic: str, parquet: Path) -> JobReport:
    """Run both queries to the end of their topics; `result_topic` must exist, `parquet` must not.

    Raises `PipelineError` if Spark cannot start, a query fails, or a row was too late for its window.
    """
    spark = start_spark(config)
    try:
        checkpoints = config.output / "checkpoints" / result_topic
        airlines = read_table(spark, "airlines.csv")
        airports = read_table(spark, "airports.csv")
        results = delays(parse_flights(read_topic(spark, config, flights_topic)), airlines, airports)
        to_topic = (
            as_records(results)
            .writeStream.queryName("delays to topic")
            .outputMode("update")
            .format("kafka")
            .option("kafka.bootstrap.servers", config.bootstrap)
            .option("topic", result_topic)
            .option("kafka.compression.type", "zstd")
            .option("checkpointLocation", str(checkpoints / "topic"))
        )
        rows_read, rows_late = finish(to_topic.trigger(availableNow=True).start())
        if rows_late:
            raise PipelineError(
                f"{rows_late:,} flights came behind the watermark: raise WATERMARK ({WATERMARK})"
            )
        to_parquet = (
            parse_results(read_topic(spark, config, result_topic))
            .writeStream.queryName("delays to Parquet")
            .outputMode("append")
            .format("parquet")
            .option("path", str(parquet))
            .option("checkpointLocation", str(checkpoints / "parquet"))
        )
        rows_written, _ = finish(to_parquet.trigger(availableNow=True).start())
        return JobReport(rows_read, rows_late, rows_written)
    finally:
        spark.stop()


def parse_results(records: DataFrame) -> DataFrame:
    """Rows of `RESULT_SCHEMA` from the result topic's JSON."""
    from pyspark.sql import functions as f

    result = f.from_json(f.col("value").cast("string"), RESULT_SCHEMA, {"mode": "FAILFAST"})
    return records.select(result.alias("result")).select("result.*")


def read_table(spark: SparkSession, name: str) -> DataFrame:
    """One of the package's small CSV tables, every column as text."""
    return spark.read.option("header", True).csv(table_path(name))


def finish(query: StreamingQuery) -> tuple[int, int]:
    """Wait for the query's end; rows read, and rows dropped behind the watermark, over all its batches."""
    from pyspark.errors import StreamingQueryException

    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        reason = str(error).strip().splitlines()[0]
        raise PipelineError(f"Spark's query '{query.name}' failed: {reason}") from error
    rows_read = rows_late = 0
    for progress in query.recentProgress:
        rows_read += progress.numInputRows
        rows_late += sum(state.numRowsDroppedByWatermark for state in progress.stateOperators)
    return rows_read, rows_late
