"""Clients' own metrics: subscriptions and pushes (KIP-714). Both clusters hide the two APIs, and answer them."""

from __future__ import annotations

import uuid
from typing import Any, Final

from golden_session import Run, scenario

GET_SUBSCRIPTIONS, PUSH_TELEMETRY, INCREMENTAL_ALTER_CONFIGS = 71, 72, 44
CLIENT_METRICS: Final = 16
GZIP: Final = 1
NO_CODEC: Final = 9
RESERVED: Final = (bytes(16), bytes(15) + b"\1")


def subscribed(run: Run, instance: bytes | None = None) -> Any:
    return run.quietly(GET_SUBSCRIPTIONS, {"client_instance_id": instance or uuid.uuid4().bytes})


def push_body(got: Any, **fields: Any) -> dict[str, Any]:
    return {
        "client_instance_id": got.client_instance_id.bytes,
        "subscription_id": got.subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": b"",
        **fields,
    }


def set_metrics(run: Run, name: str, **settings: str | None) -> None:
    """Change a subscription; None deletes a setting."""
    rows = [
        {"name": key.replace("_", "."), "value": value, "config_operation": int(value is None)}
        for key, value in settings.items()
    ]
    resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": rows}
    run.quietly(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    run.settle()


@scenario(GET_SUBSCRIPTIONS)
def get_telemetry_subscriptions(run: Run) -> None:
    known = run.ask("new instance", {"client_instance_id": None}).client_instance_id.bytes
    run.ask("again", {"client_instance_id": known})
    run.ask("chosen id", {"client_instance_id": uuid.uuid4().bytes})
    for number, instance in enumerate(RESERVED):
        run.ask(f"reserved id {number}", {"client_instance_id": instance})
    name = run.name("metrics")
    set_metrics(run, name, metrics="org.apache.kafka.", interval_ms="60000", match="client_id=raw")
    run.ask("with a subscription", {"client_instance_id": None})
    run.ask("known instance, with a subscription", {"client_instance_id": known})
    set_metrics(run, name, metrics="*")
    run.ask("all metrics", {"client_instance_id": None})
    set_metrics(run, name, metrics="")
    run.ask("no metrics", {"client_instance_id": None})
    set_metrics(run, name, metrics="a.,b.", match="client_id=another")
    run.ask("of another client", {"client_instance_id": None})
    set_metrics(run, name, metrics=None, interval_ms=None, match=None)
    run.ask("subscription deleted", {"client_instance_id": None})


@scenario(PUSH_TELEMETRY)
def push_telemetry(run: Run) -> None:
    got = subscribed(run)
    run.ask("pushed", push_body(got))
    run.ask("pushed again", push_body(got))
    run.ask("terminating", push_body(got, terminating=True))
    run.ask("after terminating", push_body(got))
    run.ask("terminating twice", push_body(got, terminating=True))
    for number, instance in enumerate(RESERVED):
        run.ask(f"reserved id {number}", push_body(got, client_instance_id=instance))
    run.ask("instance without a subscription", push_body(got, client_instance_id=uuid.uuid4().bytes))
    for step, fields in (
        ("another subscription", {"subscription_id": got.subscription_id + 1}),
        ("unknown codec", {"compression_type": NO_CODEC}),
        ("too large", {"metrics": bytes(1_048_577)}),
        ("no metrics at all", {"metrics": b"not metrics"}),
        ("garbled gzip", {"compression_type": GZIP, "metrics": b"not gzip"}),
    ):
        got = subscribed(run)
        wrong = {**push_body(got), **fields}
        run.ask(step, wrong)
        run.ask(f"{step}, again", wrong)
        run.ask(f"mended after {step}", push_body(got))
        asked = {"client_instance_id": got.client_instance_id.bytes}
        run.ask(f"asked after {step}", asked, api=GET_SUBSCRIPTIONS)
        run.ask(f"pushed after {step} and asking", push_body(got))
