"""From the flags of `barnabas up` to the processes of a cluster, each with its config file.

Services meet on unix sockets in one private folder, so a cluster takes no port but those that clients use.
"""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.cli.child import ServiceSpec
from barnabas.cli.data_directory import DataDirectory
from barnabas.cli.options import UpOptions, bracketed
from barnabas.kernel.config import to_properties


def plan_cluster(options: UpOptions, directory: DataDirectory) -> list[list[ServiceSpec]]:
    """Write every service's config file; returns the services in the stages in which they stop."""
    planner = _Planner(options, directory)
    return [
        [planner.gateway(number) for number in range(1, options.gateways + 1)],
        [planner.coordinator(number) for number in range(1, options.coordinators + 1)],
        [planner.storage(number) for number in range(1, options.nodes + 1)],
        [planner.controller()],
    ]


class _Planner:
    def __init__(self, options: UpOptions, directory: DataDirectory) -> None:
        self._options = options
        self._directory = directory
        self._data = directory.path.absolute()
        self._controllers = (self._grpc("controller"),)

    def controller(self) -> ServiceSpec:
        from barnabas.controller.config import ControllerConfig

        name = "controller"
        config = ControllerConfig(
            listen_address=self._grpc(name),
            data_dir=str(self._data / "controller"),
            etcd_endpoints=self._options.etcd_endpoints,
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
        )
        return self._service(name, "controller", config)

    def storage(self, number: int) -> ServiceSpec:
        from barnabas.storage.config import StorageConfig

        name = f"storage-{number}"
        config = StorageConfig(
            node_id=number,
            position=number - 1,
            log_dirs=(str(self._data / f"node-{number}"),),
            listen_address=self._grpc(name),
            controllers=self._controllers,
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
        )
        return self._service(name, "storage", config)

    def coordinator(self, number: int) -> ServiceSpec:
        from barnabas.coordinator.config import CoordinatorConfig

        name = f"coordinator-{number}"
        config = CoordinatorConfig(
            coordinator_id=name,
            listen_address=self._grpc(name),
            controllers=self._controllers,
            # As in the server.properties that Kafka ships: on one machine nobody waits for more members.
            group_initial_rebalance_delay_ms=0,
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
        )
        return self._service(name, "coordinator", config)

    def gateway(self, number: int) -> ServiceSpec:
        from barnabas.gateway.config import GatewayConfig

        name = f"gateway-{number}"
        options = self._options
        config = GatewayConfig(
            gateway_id=name,
            controllers=self._controllers,
            listeners=(f"PLAINTEXT://{bracketed(options.host)}:{options.port}",),
            advertise=options.advertise.value,
            ports_per_listener=len(options.kafka_ports),
            http_address=f"unix:{self._http(name)}",
            log_level=self._log_level,
        )
        return self._service(name, "gateway", config)

    @property
    def _log_level(self) -> str:
        return self._options.log_level.value.upper()

    def _grpc(self, name: str) -> str:
        return f"unix:{self._directory.sockets / name}.grpc"

    def _http(self, name: str) -> Path:
        return self._directory.sockets / f"{name}.http"

    def _service(self, name: str, service: str, config: object) -> ServiceSpec:
        path = self._directory.run / f"{name}.properties"
        path.write_text(to_properties(config), encoding="utf-8")
        command = (sys.executable, "-m", f"barnabas.{service}", "--config", str(path.absolute()))
        return ServiceSpec(name, service, command, http_socket=str(self._http(name)))
