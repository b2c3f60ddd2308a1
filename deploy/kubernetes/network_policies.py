"""Enforces the NetworkPolicies of the test Kubernetes: nftables rules, made anew when policies or pods change.

    network_policies.py NODE_ADDRESS        until it is killed; `nft delete table inet network_policies` ends the rules

Here is what policies of IPv4 over TCP and UDP can say, but for ports by name, which it refuses. As Kubernetes has it,
the node reaches every pod (the kubelet's probes, and clients that come by a NodePort of this machine), a pod reaches
itself, and what a connection answers is never stopped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Object = Mapping[str, Any]

TABLE: Final = "inet network_policies"
POLL_SECONDS: Final = 0.5
ENDED: Final = ("Succeeded", "Failed")


def main() -> None:
    (node_address,) = sys.argv[1:]
    applied = ""
    while True:
        try:
            wanted = ruleset(*current_objects(), node_address)
            if wanted != applied:
                subprocess.run(["nft", "-f", "-"], input=wanted, text=True, check=True)
                applied = wanted
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"tried again soon: {error}\n")  # an API server that is busy
        time.sleep(POLL_SECONDS)


def current_objects() -> tuple[list[Object], list[Object], dict[str, Object]]:
    """Policies, pods that have an address of their own, and the labels of every namespace."""
    kinds = "networkpolicies,pods,namespaces"
    command = ["kubectl", "get", kinds, "--all-namespaces", "--output", "json"]
    items = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["items"]
    policies = [item for item in items if item["kind"] == "NetworkPolicy"]
    pods = [item for item in items if item["kind"] == "Pod" and has_own_address(item)]
    labels = {
        item["metadata"]["name"]: item["metadata"].get("labels", {})
        for item in items
        if item["kind"] == "Namespace"
    }
    return policies, pods, labels


def has_own_address(pod: Object) -> bool:
    status = pod["status"]
    return "podIP" in status and status["phase"] not in ENDED and not pod["spec"].get("hostNetwork")


def ruleset(
    policies: Sequence[Object], pods: Sequence[Object], namespaces: Mapping[str, Object], node_address: str
) -> str:
    """What `nft -f` takes: all of the table, in place of what was in it."""
    chains: list[str] = []
    jumps = []
    for direction, own, other in (("Egress", "saddr", "daddr"), ("Ingress", "daddr", "saddr")):
        verdicts = []
        for pod in pods:
            chosen = [policy for policy in policies if is_isolated_by(pod, policy, direction)]
            if not chosen:
                continue
            address = pod["status"]["podIP"]
            chain = f"{direction.lower()}_{address}"
            verdicts.append(f"{address} : jump {chain}")
            allowed = [f"ip {other} {address} return"]
            for policy in chosen:
                allowed += allowed_by(policy, direction, other, pods, namespaces)
            chains += [f"chain {chain} {{", *sorted(set(allowed)), "drop", "}"]
        if verdicts:
            jumps.append(f"ip {own} vmap {{ {', '.join(sorted(verdicts))} }}")
    lines = [
        f"table {TABLE}",
        f"delete table {TABLE}",
        f"table {TABLE} {{",
        *chains,
        "chain policies {",
        "ct state established,related accept",
        f"ip saddr {node_address} accept",
        *jumps,
        "}",
        # From pod to pod and beyond; and from a pod to the node.
        "chain forwarded { type filter hook forward priority 0; jump policies; }",
        "chain arriving { type filter hook input priority 0; jump policies; }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def is_isolated_by(pod: Object, policy: Object, direction: str) -> bool:
    spec, metadata = policy["spec"], pod["metadata"]
    return (
        policy["metadata"]["namespace"] == metadata["namespace"]
        and direction in spec["policyTypes"]
        and selects(spec["podSelector"], metadata.get("labels", {}))
    )


def selects(selector: Object, labels: Object) -> bool:
    """Whether a label selector takes an object with these labels; an empty one takes all."""
    if any(labels.get(name) != value for name, value in selector.get("matchLabels", {}).items()):
        return False
    return all(holds(requirement, labels) for requirement in selector.get("matchExpressions", ()))


def holds(requirement: Object, labels: Object) -> bool:
    found, values = labels.get(requirement["key"]), requirement.get("values", ())
    match requirement["operator"]:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case unknown:
            raise ValueError(f"{unknown!r} is no operator of a label selector")


def allowed_by(
    policy: Object,
    direction: str,
    other: str,
    pods: Sequence[Object],
    namespaces: Mapping[str, Object],
) -> Iterable[str]:
    """A line for each pair of peers and ports that one policy lets through; `other` is the peers' side of a packet."""
    rules = policy["spec"].get(direction.lower()) or []
    for rule in rules:
        peers = rule.get("to" if direction == "Egress" else "from")
        matches = [""]  # without peers: everyone
        if peers:
            home = policy["metadata"]["namespace"]
            matches = [match for peer in peers for match in matches_of(peer, other, home, pods, namespaces)]
        for match in matches:
            for ports in [ports_match(port) for port in rule.get("ports", ())] or [""]:
                yield " ".join(f"{match} {ports} return".split())


def matches_of(
    peer: Object, other: str, home: str, pods: Sequence[Object], namespaces: Mapping[str, Object]
) -> list[str]:
    """nft's matches of one peer: none when it selects no pod that is there."""
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        without = "".join(f" ip {other} != {part}" for part in block.get("except", ()))
        return [f"ip {other} {block['cidr']}{without}"]
    addresses = [
        pod["status"]["podIP"]
        for pod in pods
        if is_chosen_namespace(peer, pod["metadata"]["namespace"], home, namespaces)
        and selects(peer.get("podSelector", {}), pod["metadata"].get("labels", {}))
    ]
    return [f"ip {other} {{ {', '.join(sorted(addresses))} }}"] if addresses else []


def is_chosen_namespace(peer: Object, name: str, home: str, namespaces: Mapping[str, Object]) -> bool:
    """A peer without a namespaceSelector is of the policy's own namespace."""
    if "namespaceSelector" not in peer:
        return name == home
    return selects(peer["namespaceSelector"], namespaces.get(name, {}))


def ports_match(port: Object) -> str:
    protocol, first = port.get("protocol", "TCP").lower(), port.get("port")
    if first is None:
        return f"meta l4proto {protocol}"
    if not isinstance(first, int):
        raise ValueError(f"port {first!r}: ports by name are not known here")
    last = port.get("endPort", first)
    return f"{protocol} dport {first}" + (f"-{last}" if last != first else "")


if __name__ == "__main__":
    main()
