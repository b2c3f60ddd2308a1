"""Barnabas: a Kafka-compatible distributed commit log, made of small services."""

__version__ = "0.1.0"
