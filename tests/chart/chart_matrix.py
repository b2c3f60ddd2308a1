"""The values that the chart is checked with: every example, and every switch by itself and where it meets others."""

from __future__ import annotations

from typing import Final

from rendered_chart import CHART

EXAMPLES: Final = sorted(path.stem for path in (CHART / "examples").glob("*.yaml"))

_SECRETS: Final = ("tls.existingSecret=a", "internalTls.existingSecret=b", "sasl.existingSecret=c")
_LOAD_BALANCER: Final = ("gateway.external.type=LoadBalancer", "gateway.external.host=kafka.example.com")

SWITCHES: Final[tuple[tuple[str, ...], ...]] = (
    ("nameOverride=log",),
    ("fullnameOverride=events",),
    ("commonLabels.team=streaming", "podAnnotations.note=yes"),
    ("ipFamily=IPv6",),
    ("image.registry=registry.example.com/streaming", "image.tag=0.2.0", "image.pullSecrets={one,two}"),
    (f"gateway.image.digest=sha256:{'0' * 64}", f"etcd.image.digest=sha256:{'1' * 64}"),
    ("log.level=DEBUG", "log.format=text"),
    ("tracing.otlpEndpoint=http://otel-collector:4317",),
    ("rack.enabled=false",),
    _SECRETS,
    ("serviceAccount.create=false", "serviceAccount.name=given"),
    ("podSecurityContext.fsGroup=null", "podSecurityContext.runAsUser=null"),
    ("gateway.advertise=one",),
    (*_LOAD_BALANCER, "gateway.advertise=one"),
    (
        *_LOAD_BALANCER,
        "gateway.external.loadBalancerClass=inner",
        "gateway.external.externalTrafficPolicy=Local",
    ),
    ("gateway.external.type=NodePort", "gateway.external.host=192.0.2.7", "gateway.advertise=one"),
    ("gateway.external.type=ClusterIP", "gateway.external.host=2001:db8::7", "ipFamily=IPv6"),
    ("gateway.autoscaling.enabled=true",),
    ("storage.replicas=1", "gateway.replicas=1", "coordinator.replicas=1", "controller.replicas=1"),
    ("storage.replicas=100", *_LOAD_BALANCER),
    ("storage.persistence.disks=3", "storage.persistence.storageClassName=fast"),
    ("storage.config.log\\.retention\\.ms=604800000", "controller.config.num\\.partitions=6"),
    ("storage.extraEnv[0].name=A", "storage.extraEnv[0].value=b", "storage.podLabels.a=b"),
    ("storage.podAntiAffinity=hard", "storage.zoneSpread=DoNotSchedule"),
    ("storage.podAntiAffinity=off", "storage.zoneSpread=off", "gateway.podAntiAffinity=off"),
    ("storage.podDisruptionBudget.enabled=false", "gateway.podDisruptionBudget.maxUnavailable=25%"),
    ("storage.nodeSelector.disk=fast", "storage.tolerations[0].key=a", "storage.priorityClassName=high"),
    ("broker.enabled=true", "storage.replicas=1", "gateway.advertise=one"),
    ("broker.enabled=true", *_LOAD_BALANCER, *_SECRETS, "canary.enabled=true", "redis.enabled=true"),
    ("broker.enabled=true", "ipFamily=IPv6", "redis.address=r:6379", "storage.persistence.disks=2"),
    ("broker.enabled=true", "networkPolicy.clientsFrom[0].podSelector.matchLabels.a=b"),
    ("broker.enabled=true", "monitoring.serviceMonitor.enabled=true"),
    ("controller.store=embedded", "controller.replicas=1", "etcd.enabled=false"),
    ("etcd.replicas=1",),
    ("etcd.replicas=5",),
    ("redis.enabled=true",),
    ("networkPolicy.enabled=false",),
    ("networkPolicy.clientsFrom[0].podSelector.matchLabels.a=b",),
    ("canary.enabled=true",),
    ("canary.enabled=true", "gateway.advertise=one"),
    ("monitoring.serviceMonitor.enabled=true",),
    ("monitoring.prometheusRule.enabled=true", "monitoring.dashboards.enabled=true"),
)

MATRIX: Final[tuple[tuple[str, ...], ...]] = ((), *((example,) for example in EXAMPLES), *SWITCHES)


def name_of(values: tuple[str, ...]) -> str:
    """What a case is called in a report, and its file."""
    text = ",".join(values) or "default"
    return "".join(letter if letter.isalnum() or letter in "-.,=" else "_" for letter in text)[:100]
