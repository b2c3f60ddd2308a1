"""Settings of topics, brokers, groups and client metrics: described, altered, listed."""

from __future__ import annotations

from typing import Any, Final

from golden_session import UNKNOWN_TOPIC, Run, scenario

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES = 32, 33, 44, 74
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
CREATE_TOPICS: Final = 19
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

OWN_SETTINGS: Final = frozenset(
    {
        "advertised.listeners", "broker.id", "controller.listener.names", "controller.quorum.voters",
        "group.initial.rebalance.delay.ms", "inter.broker.listener.name", "listener.security.protocol.map", "listeners",
        "log.dir", "log.dirs", "log.initial.task.delay.ms", "metadata.log.dir", "node.id",
        "offsets.topic.replication.factor", "process.roles",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor", "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }
)  # fmt: skip
"""What each side is started with: not compared."""

Change = tuple[str, str | None] | tuple[str, str | None, int]


def described(kind: int, name: str, *keys: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}


def changed(kind: int, name: str, *changes: Change) -> dict[str, Any]:
    rows = [
        {"name": row[0], "value": row[1], "config_operation": row[2] if len(row) == 3 else SET}
        for row in changes
    ]
    return {"resource_type": kind, "resource_name": name, "configs": rows}


@scenario(DESCRIBE_CONFIGS)
def describe_configs(run: Run) -> None:
    topic = run.topic(retention_ms="1234", cleanup_policy="compact,delete")

    def describe(step: str, *resources: dict[str, Any], **fields: Any) -> None:
        run.ask(step, {"resources": resources, "include_synonyms": True, **fields})

    describe("topic", described(TOPIC, topic.name))
    describe("topic, without synonyms", described(TOPIC, topic.name), include_synonyms=False)
    describe("some", described(TOPIC, topic.name, "retention.ms", "segment.bytes"))
    describe("unknown key", described(TOPIC, topic.name, "no.such.setting", "retention.ms"))
    describe("no keys", {**described(TOPIC, topic.name), "configuration_keys": []})
    describe("unknown topic", described(TOPIC, UNKNOWN_TOPIC.name))
    describe("invalid name", described(TOPIC, "not a name"))
    describe("empty name", described(TOPIC, ""))
    describe("broker defaults", described(BROKER, ""))
    describe("unknown broker", described(BROKER, "99"))
    describe("broker that is no number", described(BROKER, "one"))
    describe("group", described(GROUP, run.name("group")))
    describe("empty group", described(GROUP, ""))
    describe("client metrics", described(CLIENT_METRICS, run.name("metrics")))
    describe("empty client metrics", described(CLIENT_METRICS, ""))
    describe("unknown broker's loggers", described(BROKER_LOGGER, "99"))
    describe("loggers of nobody", described(BROKER_LOGGER, ""))
    describe("root logger", described(BROKER_LOGGER, "1", "root"))
    describe("unknown type", described(3, "x"))
    describe("nothing")
    describe(
        "twice", described(TOPIC, topic.name, "retention.ms"), described(TOPIC, topic.name, "segment.ms")
    )
    describe(
        "topic and broker",
        described(TOPIC, topic.name, "retention.ms"),
        described(BROKER, "1", "log.retention.ms"),
    )
    if run.version >= 3:
        answer = run.quietly(
            DESCRIBE_CONFIGS,
            {"resources": [described(TOPIC, topic.name)], "include_documentation": True},
            version=run.version,
        )
        without = [row.name for row in answer.results[0].configs if not row.documentation]
        run.record("settings without documentation", without)


@scenario(DESCRIBE_CONFIGS)
def describe_broker(run: Run) -> None:
    body = {"resources": [described(BROKER, "1")], "include_synonyms": True}
    answer = run.quietly(DESCRIBE_CONFIGS, body, version=run.version)
    (broker,) = answer.results
    run.record(
        "settings",
        {
            "error_code": broker.error_code,
            "configs": [row for row in broker.configs if row.name not in OWN_SETTINGS],
        },
    )


@scenario(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_configs(run: Run) -> None:
    topic = run.topic()

    def alter(step: str, *resources: dict[str, Any], **fields: Any) -> None:
        run.ask(step, {"resources": resources, "validate_only": False, **fields})

    def alter_topic(step: str, *changes: Change) -> None:
        alter(step, changed(TOPIC, topic.name, *changes))

    alter_topic("set", ("retention.ms", "1000"), ("segment.bytes", "2000000"))
    alter_topic("deleted", ("segment.bytes", None, DELETE))
    alter_topic("deleted, never set", ("flush.ms", None, DELETE))
    alter_topic("set to null", ("retention.ms", None))
    alter_topic("appended", ("cleanup.policy", "compact", APPEND))
    alter_topic("appended again", ("cleanup.policy", "compact", APPEND))
    alter_topic("subtracted", ("cleanup.policy", "delete", SUBTRACT))
    alter_topic("subtracted, not there", ("cleanup.policy", "delete", SUBTRACT))
    alter_topic("appended to what is no list", ("retention.ms", "1", APPEND))
    alter_topic("appended, not allowed", ("cleanup.policy", "shred", APPEND))
    alter_topic("unknown setting", ("no.such.setting", "1"))
    alter_topic("unknown setting deleted", ("no.such.setting", None, DELETE))
    alter_topic("bad value", ("retention.ms", "soon"))
    alter_topic("out of range", ("retention.ms", "-2"))
    alter_topic("not one of the choices", ("compression.type", "rar"))
    alter_topic("not a truth value", ("preallocate", "perhaps"))
    alter_topic("with spaces", ("retention.ms", " 77 "))
    alter_topic("empty", ("retention.ms", ""))
    alter_topic("same setting twice", ("flush.ms", "1"), ("flush.ms", "2"))
    alter_topic("unknown operation", ("flush.ms", "1", 9))
    alter_topic("empty name of a setting", ("", "1"))
    alter_topic("nothing")
    alter("validated only", changed(TOPIC, topic.name, ("flush.ms", "5")), validate_only=True)
    alter(
        "good and bad",
        changed(TOPIC, topic.name, ("flush.ms", "6")),
        changed(TOPIC, UNKNOWN_TOPIC.name, ("flush.ms", "6")),
    )
    alter("unknown topic", changed(TOPIC, UNKNOWN_TOPIC.name, ("flush.ms", "6")))
    alter("invalid name", changed(TOPIC, "not a name", ("flush.ms", "6")))
    alter("empty name", changed(TOPIC, "", ("flush.ms", "6")))
    alter("resource twice", *[changed(TOPIC, topic.name, ("flush.ms", "7"))] * 2)
    alter("unknown type", changed(3, "x", ("flush.ms", "6")))
    alter("no resources")
    run.settle()
    keys = ("retention.ms", "segment.bytes", "cleanup.policy", "flush.ms")
    run.ask(
        "described",
        {"resources": [described(TOPIC, topic.name, *keys)], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )


SPELLINGS: Final = {
    "retention.ms": " +77 ",
    "segment.bytes": "0002000000",
    "preallocate": " TRUE",
    "min.cleanable.dirty.ratio": "0.250",
    "cleanup.policy": " compact , delete ",
    "compression.type": " gzip ",
    "leader.replication.throttled.replicas": "0:1 , 1:1",
}
"""Values that are the same as others which are written more plainly."""


@scenario(INCREMENTAL_ALTER_CONFIGS)
def spellings(run: Run) -> None:
    """The same value written in other ways: as it is taken, and as it is shown."""
    topic = run.topic()
    changes = [changed(TOPIC, topic.name, *SPELLINGS.items())]
    run.ask("taken", {"resources": changes, "validate_only": False})
    brokers = [changed(BROKER, "1", ("log.cleaner.threads", " +2 "), ("compression.type", " gzip "))]
    run.ask("taken by a broker", {"resources": brokers, "validate_only": False})
    group = run.name("group")
    groups = [changed(GROUP, group, ("consumer.session.timeout.ms", " +50000 "))]
    run.ask("taken by a group", {"resources": groups, "validate_only": False})
    metrics = run.name("metrics")
    subscriptions = [changed(CLIENT_METRICS, metrics, ("interval.ms", " +1000 "), ("metrics", " a , b "))]
    run.ask("taken by client metrics", {"resources": subscriptions, "validate_only": False})
    created = [{"name": key, "value": value} for key, value in SPELLINGS.items()]
    row = {"name": run.name("new"), "num_partitions": 1, "replication_factor": 1, "configs": created}
    answer = run.quietly(CREATE_TOPICS, {"topics": [row], "timeout": 10_000})
    run.record("taken by a new topic", [each for each in answer.topics[0].configs if each.name in SPELLINGS])
    run.settle()
    for step, shown in (
        ("shown", described(TOPIC, topic.name, *SPELLINGS)),
        ("shown of a new topic", described(TOPIC, run.name("new"), *SPELLINGS)),
        ("shown of a broker", described(BROKER, "1", "log.cleaner.threads", "compression.type")),
        ("shown of a group", described(GROUP, group, "consumer.session.timeout.ms")),
        ("shown of client metrics", described(CLIENT_METRICS, metrics)),
        ("behind a topic's", described(TOPIC, run.topic("plain").name, "compression.type")),
    ):
        run.ask(step, {"resources": [shown], "include_synonyms": True}, api=DESCRIBE_CONFIGS)
    emptied = [
        changed(BROKER, "1", ("log.cleaner.threads", None, DELETE), ("compression.type", None, DELETE)),
        changed(GROUP, group, ("consumer.session.timeout.ms", None, DELETE)),
        changed(CLIENT_METRICS, metrics, ("interval.ms", None, DELETE), ("metrics", None, DELETE)),
    ]
    run.quietly(INCREMENTAL_ALTER_CONFIGS, {"resources": emptied, "validate_only": False})
    run.settle()


@scenario(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_brokers(run: Run) -> None:
    def alter(step: str, kind: int, name: str, *changes: Change) -> None:
        run.ask(step, {"resources": [changed(kind, name, *changes)], "validate_only": False})

    alter("broker set", BROKER, "1", ("log.cleaner.threads", "2"))
    alter("all brokers set", BROKER, "", ("log.retention.ms", "7000"))
    alter("read only", BROKER, "1", ("log.dirs", "/elsewhere"))
    alter("read only for all", BROKER, "", ("num.partitions", "2"))
    alter("bad value", BROKER, "1", ("log.cleaner.threads", "many"))
    alter("out of range", BROKER, "1", ("log.cleaner.threads", "-5"))
    alter("unknown setting", BROKER, "1", ("no.such.setting", "1"))
    alter("unknown broker", BROKER, "99", ("log.cleaner.threads", "1"))
    alter("broker that is no number", BROKER, "one", ("log.cleaner.threads", "1"))
    run.settle()
    some = described(BROKER, "1", "log.cleaner.threads", "log.retention.ms", "log.retention.hours")
    run.ask("described", {"resources": [some], "include_synonyms": True}, api=DESCRIBE_CONFIGS)
    run.ask(
        "described for all",
        {"resources": [described(BROKER, "")], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    topic = run.topic("after")
    run.ask(
        "seen by a topic",
        {"resources": [described(TOPIC, topic.name, "retention.ms")], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    alter("broker deleted", BROKER, "1", ("log.cleaner.threads", None, DELETE))
    alter("all brokers deleted", BROKER, "", ("log.retention.ms", None, DELETE))


@scenario(INCREMENTAL_ALTER_CONFIGS)
def incremental_alter_groups_and_metrics(run: Run) -> None:
    def alter(step: str, kind: int, name: str, *changes: Change) -> None:
        run.ask(step, {"resources": [changed(kind, name, *changes)], "validate_only": False})

    group = run.name("group")
    alter("group set", GROUP, group, ("consumer.session.timeout.ms", "50000"))
    alter("group out of range", GROUP, group, ("consumer.session.timeout.ms", "1"))
    alter("group, unknown setting", GROUP, group, ("no.such.setting", "1"))
    alter("group without a name", GROUP, "", ("consumer.session.timeout.ms", "50000"))
    metrics = run.name("metrics")
    alter(
        "client metrics set",
        CLIENT_METRICS,
        metrics,
        ("interval.ms", "1000"),
        ("metrics", "org.apache."),
        ("match", "client_id=a.*"),
    )
    alter("client metrics out of range", CLIENT_METRICS, metrics, ("interval.ms", "1"))
    alter("client metrics, bad match", CLIENT_METRICS, metrics, ("match", "nobody=x"))
    alter("client metrics, unknown setting", CLIENT_METRICS, metrics, ("no.such.setting", "1"))
    alter("client metrics without a name", CLIENT_METRICS, "", ("interval.ms", "1000"))
    alter("logger of an unknown broker", BROKER_LOGGER, "99", ("root", "INFO"))
    alter("logger, bad level", BROKER_LOGGER, "1", ("root", "LOUD"))
    alter("logger, good level", BROKER_LOGGER, "1", ("kafka.no.such.logger", "INFO"))
    run.settle()
    run.ask(
        "group described",
        {"resources": [described(GROUP, group)], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    run.ask(
        "client metrics described",
        {"resources": [described(CLIENT_METRICS, metrics)], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    alter("group deleted", GROUP, group, ("consumer.session.timeout.ms", None, DELETE))
    names = ("interval.ms", "metrics", "match")
    alter("client metrics deleted", CLIENT_METRICS, metrics, *[(name, None, DELETE) for name in names])
    run.settle()


@scenario(ALTER_CONFIGS)
def alter_configs(run: Run) -> None:
    topic = run.topic(flush_ms="9")

    def alter(step: str, kind: int, name: str, *changes: Change, **fields: Any) -> None:
        rows = [{"name": change[0], "value": change[1]} for change in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": rows}
        run.ask(step, {"resources": [resource], "validate_only": False, **fields})

    alter("validated only", TOPIC, topic.name, ("retention.ms", "5"), validate_only=True)
    alter("replaced", TOPIC, topic.name, ("retention.ms", "1000"))
    run.settle()
    keys = ("retention.ms", "flush.ms")
    run.ask(
        "described",
        {"resources": [described(TOPIC, topic.name, *keys)], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    alter("unknown setting", TOPIC, topic.name, ("no.such.setting", "1"))
    alter("bad value", TOPIC, topic.name, ("retention.ms", "soon"))
    alter("null", TOPIC, topic.name, ("retention.ms", None))
    alter("setting twice", TOPIC, topic.name, ("retention.ms", "1"), ("retention.ms", "2"))
    alter("unknown topic", TOPIC, UNKNOWN_TOPIC.name, ("retention.ms", "1"))
    alter("invalid name", TOPIC, "not a name", ("retention.ms", "1"))
    alter("unknown broker", BROKER, "99", ("log.cleaner.threads", "1"))
    alter("read only", BROKER, "1", ("log.dirs", "/elsewhere"))
    alter("unknown type", 3, "x", ("flush.ms", "6"))
    alter("emptied", TOPIC, topic.name)
    run.settle()
    run.ask(
        "emptied, described",
        {"resources": [described(TOPIC, topic.name, *keys)], "include_synonyms": True},
        api=DESCRIBE_CONFIGS,
    )
    run.ask("no resources", {"resources": [], "validate_only": False})


@scenario(LIST_CONFIG_RESOURCES)
def list_config_resources(run: Run) -> None:
    """Topics of other runs are there too: of the topics only those of this one are recorded."""
    run.topic()

    def show(step: str, *types: int) -> None:
        answer = run.quietly(LIST_CONFIG_RESOURCES, {"resource_types": types}, version=run.version)
        rows = [
            row
            for row in answer.config_resources
            if getattr(row, "resource_type", CLIENT_METRICS) != TOPIC
            or row.resource_name.startswith(run.name(""))
        ]
        run.record(step, {"error_code": answer.error_code, "config_resources": rows})

    show("all")
    if run.version >= 1:
        for kind in (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, 3, 0, -1):
            show(f"type {kind}", kind)
        show("two types", TOPIC, GROUP)
