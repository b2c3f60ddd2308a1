"""What a client library raised, as one line with a way out."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.refusal import Refused

ADVICE: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "`barnabas topics --list` shows what there is",
    KafkaError._UNKNOWN_TOPIC: "`barnabas topics --list` shows what there is",
    KafkaError._UNKNOWN_PARTITION: "`barnabas topics --describe` shows the partitions there are",
    KafkaError.TOPIC_ALREADY_EXISTS: "choose another name, or add --if-not-exists",
    KafkaError.GROUP_ID_NOT_FOUND: "`barnabas groups --list` shows what there is",
    KafkaError.NON_EMPTY_GROUP: "stop its consumers first; `barnabas groups --describe --members` lists them",
    KafkaError.INVALID_RECORD: "a compacted topic takes records with keys only: give them with -K or -k",
    KafkaError.OFFSET_OUT_OF_RANGE: "`barnabas offsets --time earliest` and `--time latest` show the range",
    KafkaError._TIMED_OUT: "the cluster is slow or busy; try again, or with a longer --timeout",
    KafkaError._ALL_BROKERS_DOWN: "is the cluster running?",
    KafkaError._TRANSPORT: "does --command-config name the right security.protocol?",
    KafkaError._AUTHENTICATION: "check the user and the password in --command-config",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "ask for an ACL, or use another user in --command-config",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "ask for an ACL, or use another user in --command-config",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "ask for an ACL, or use another user in --command-config",
}


def describe(error: Any) -> str:
    """What the broker said, with the error's name: `no such topic (UNKNOWN_TOPIC_OR_PARTITION)`."""
    if isinstance(error, KafkaException):
        error = error.args[0]
    if not isinstance(error, KafkaError):
        return " ".join(str(error).split())
    text = " ".join(str(error.str()).split())
    text = text.removeprefix("Broker: ").removeprefix("Local: ")
    name = str(error.name()).removeprefix("_")
    return text if name in text else f"{text} ({name})"


def describe_with_advice(error: Any) -> str:
    """`describe`, and what to do about it where that is known."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    advice = ADVICE.get(inner.code()) if isinstance(inner, KafkaError) else None
    return f"{describe(error)}; {advice}" if advice else describe(error)


def refusal_of(error: Exception) -> Refused | None:
    """The refusal for what confluent_kafka raised; None for an error of another making."""
    if isinstance(error, KafkaException):
        return Refused(describe_with_advice(error))
    return None


def is_code(error: Any, *codes: int) -> bool:
    """Whether this is one of Kafka's (or librdkafka's) error codes."""
    inner = error.args[0] if isinstance(error, KafkaException) else error
    return isinstance(inner, KafkaError) and inner.code() in codes
