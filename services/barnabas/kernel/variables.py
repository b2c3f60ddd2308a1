"""Which environment variable a setting has, and which variables of that look are no settings of ours.

A variable that nobody knows is told and stops nothing: others too put such names into our environment, Kubernetes
for every Service whose name begins so.
"""

from __future__ import annotations

import re
from typing import Final

ENVIRONMENT_PREFIX: Final = "BARNABAS_"

OF_OTHERS: Final = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        # The command line, and the scripts that build images and start engines and clusters.
        *("BOOTSTRAP_SERVER", "ENGINE_DIR", "KUBERNETES_DIR", "PULL_SECONDS", "VERSION"),
        # What `barnabas up` keeps bound for its services.
        "KEPT_SOCKETS",
        # What the compose files put into settings.
        *("BIND", "HOST", "OTLP_ENDPOINT", "TRACES_RATIO"),
        *("BROKER_PORT_1", "BROKER_PORT_2", "BROKER_PORT_3", "PORT_1", "PORT_2", "PORTS_1", "PORTS_2"),
        *("GRAFANA_PORT", "PROMETHEUS_PORT"),
        *("BROKER_MEMORY", "GATEWAY_MEMORY", "STORAGE_MEMORY"),
        # What images, compose files and the chart give to services of which not all have the setting.
        *("CONTROLLERS", "LISTEN_ADDRESS", "REDIS_ADDRESS"),
    )
)
"""Variables that are for somebody else, or for all services: no word is lost on them where they set nothing."""

_OF_KUBERNETES: Final = re.compile(
    ENVIRONMENT_PREFIX
    + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""What every container is told of a Service called barnabas-something."""


def variable_of(name: str) -> str:
    """The variable of a setting: `node.id` -> `BARNABAS_NODE_ID`."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def is_of_others(variable: str) -> bool:
    """Whether a variable with our prefix is known to be no setting of the service that finds it."""
    return variable in OF_OTHERS or _OF_KUBERNETES.fullmatch(variable) is not None
