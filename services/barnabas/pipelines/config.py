"""What a run of the demo is told, and the one error that it shows a person."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path


class PipelineError(Exception):
    """A run cannot go on; the message is one line that says what to change."""


@dataclass(frozen=True)
class PipelineConfig:
    """Settings of one run. Only `__main__` fills it from the command line and the environment."""

    bootstrap: str = "localhost:9092"
    """Kafka bootstrap servers: `host:port`, several separated by commas."""
    output: Path = Path("demo-output")
    """Folder for Parquet, plot and Spark's checkpoints; created if missing."""
    jars: Path = Path("build/jars/spark-kafka")
    """Folder that `deploy/jars/fetch.sh spark-kafka` filled."""
    java_home: str = ""
    """JAVA_HOME as Spark's launcher will see it; empty: `java` from PATH."""
    flights_topic: str = "flights"
    """Topic of the flights. One that exists is left alone: the next free name is taken."""
    partitions: int = 6
    """Partitions of the topics that the run creates."""
    replication_factor: int = -1
    """Replicas a partition; -1 leaves it to the cluster's `default.replication.factor`."""
    threads: int = 2
    """Threads that Spark computes with."""
    memory_mib: int = 1024
    """Heap of Spark's process, in MiB."""
    timeout_seconds: float = 30.0
    """How long to wait for the cluster's answer before giving up, in seconds."""

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise PipelineError("no bootstrap server: pass --bootstrap HOST:PORT")
        if self.partitions < 1 or self.threads < 1:
            raise PipelineError("--partitions and --threads must be 1 or more")


def spark_jars(config: PipelineConfig) -> list[str]:
    """Paths of the jars that let Spark speak Kafka, after checking that Spark can start at all.

    Raises `PipelineError` where Java or the jars are missing.
    """
    # Spark's launcher prefers JAVA_HOME over PATH, so the check does too.
    java = os.path.join(config.java_home, "bin", "java") if config.java_home else "java"
    if shutil.which(java) is None:
        raise PipelineError(
            "java is missing: Spark needs a Java runtime, 17 or newer, on PATH or at JAVA_HOME"
        )
    jars = sorted(str(path) for path in config.jars.glob("*.jar"))
    if not any("spark-sql-kafka" in jar for jar in jars):
        raise PipelineError(
            f"no Spark Kafka jars in {config.jars}: run `make demo`, "
            f"or `deploy/jars/fetch.sh spark-kafka {config.jars}`"
        )
    return jars
