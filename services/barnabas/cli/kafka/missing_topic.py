"""Why a topic that a producer asked for does not come to be.

Brokers create a topic that a producer names; where they cannot, its client hears the same as of a topic that is about
to come, and asks until its record is five minutes old, without a word.
"""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from barnabas.cli.kafka import errors
from barnabas.cli.kafka.admin_types import NewTopic
from barnabas.cli.kafka.connection import ANSWER_SECONDS_MAX, Connection
from barnabas.cli.refusal import Refused

CREATION_SECONDS_MAX: Final = 5.0
"""How long a topic may take to come to be before somebody asks why: a broker that just starts again needs some."""

PAUSE_SECONDS: Final = 0.1
BROKERS_DEFAULT: Final = -1

_NOT_THERE: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.INVALID_REPLICATION_FACTOR,
)
"""What brokers say of a topic that they would create; a client tells what else they say with the record."""


def check_topic(
    connection: Connection, producer: Any, topic: str, seconds: float = CREATION_SECONDS_MAX
) -> None:
    """Have the brokers create the topic that is missing. Raises Refused with the reason for which they cannot.

    One that is missing for another reason, or one that cannot be told, is left to the producer.
    """
    give_up = time.monotonic() + seconds
    while _is_missing(connection.cluster(producer, topic), topic):
        if time.monotonic() >= give_up:
            reason = _why_not(connection, topic)
            if reason is not None:
                raise Refused(f"topic {topic} cannot be created: {errors.describe_with_advice(reason)}")
            return
        time.sleep(PAUSE_SECONDS)


def _is_missing(metadata: Any, topic: str) -> bool:
    found = metadata.topics.get(topic)
    return found is not None and errors.is_code(found.error, *_NOT_THERE)


def _why_not(connection: Connection, topic: str) -> KafkaException | None:
    """What the controller would refuse it with; None when it would not, or may not be asked."""
    asked = NewTopic(topic, num_partitions=BROKERS_DEFAULT, replication_factor=BROKERS_DEFAULT)
    admin = connection.admin()  # what it promised ends with it
    try:
        answers = admin.create_topics([asked], validate_only=True)
        answers[topic].result(ANSWER_SECONDS_MAX)
    except KafkaException as error:
        harmless = (
            KafkaError.TOPIC_ALREADY_EXISTS,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        return None if errors.is_code(error, *harmless) else error
    return None
