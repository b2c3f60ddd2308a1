"""Talking to a Kafka cluster from the command line."""
