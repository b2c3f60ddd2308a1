"""`python -m barnabas.pipelines demo`: the flights through the cluster and Spark, as a table and a plot."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from barnabas.pipelines.config import PipelineConfig, PipelineError


def parse_arguments(arguments: list[str], environment: dict[str, str]) -> PipelineConfig:
    """The run's settings; exits with argparse's own message if the command line is wrong."""
    default = PipelineConfig()
    parser = argparse.ArgumentParser(prog="python -m barnabas.pipelines")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="produce the flights, compute their delays with Spark, show them")
    demo.add_argument("--bootstrap", default=default.bootstrap, help="HOST:PORT of the cluster [%(default)s]")
    demo.add_argument("--output", type=Path, default=default.output, help="folder for results [%(default)s]")
    demo.add_argument("--jars", type=Path, default=default.jars, help="Spark's Kafka jars [%(default)s]")
    demo.add_argument("--topic", default=default.flights_topic, help="topic of the flights [%(default)s]")
    demo.add_argument(
        "--partitions", type=int, default=default.partitions, help="its partitions [%(default)s]"
    )
    demo.add_argument("--threads", type=int, default=default.threads, help="Spark's threads [%(default)s]")
    demo.add_argument(
        "--replication-factor",
        type=int,
        default=default.replication_factor,
        help="replicas a partition; -1: the cluster's default [%(default)s]",
    )
    given = parser.parse_args(arguments)
    return PipelineConfig(
        bootstrap=given.bootstrap,
        output=given.output,
        jars=given.jars,
        java_home=environment.get("JAVA_HOME", ""),
        flights_topic=given.topic,
        partitions=given.partitions,
        replication_factor=given.replication_factor,
        threads=given.threads,
    )


def main() -> int:
    """Run the command; returns the exit code: 0, or 1 with one line on stderr."""
    from rich.console import Console

    try:
        config = parse_arguments(sys.argv[1:], dict(os.environ))
        from barnabas.pipelines.demo import run_demo

        run_demo(config, Console())
    except PipelineError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
