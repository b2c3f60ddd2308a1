"""Every node comes to be the preferred leader of as many partitions as the others, give or take one.

First by changing the order of replicas, which moves no byte. Where that does not do, as for a node that has just come
and has hardly a replica, the smallest partitions' replicas move.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from barnabas.cli.balance.layout import Layout, Placed

_Edges = dict[int, dict[int, dict[int, Placed]]]
"""leader -> another replica -> the partitions (by `id`) that the one leads and the other could."""


def even_leaders(layout: Layout, *, tolerance: float | None) -> None:
    """Change who is preferred to lead, and where `tolerance` is given, move replicas for that too, as long as the
    node that gets one is not above the mean load by more than this share of it, or above the one that gives it."""
    _hand_over(layout)
    while tolerance is not None and _move_for_leaders(layout, tolerance):
        _hand_over(layout)


def _hand_over(layout: Layout) -> None:
    """Change the order of replicas, as long as that makes it more even."""
    edges = _edges(layout)
    while (path := _path(layout, edges)) is not None:
        for giver, getter in pairwise(path):
            placed = next(iter(edges[giver][getter].values()))
            _drop(edges, placed)
            layout.prefer(placed, getter)
            _add(edges, placed, layout)


def _edges(layout: Layout) -> _Edges:
    edges: _Edges = {}
    for placed in layout.partitions:
        _add(edges, placed, layout)
    return edges


def _add(edges: _Edges, placed: Placed, layout: Layout) -> None:
    leader = placed.replicas[0]
    if leader in layout.loads:
        for other in placed.replicas[1:]:
            if other in layout.loads:
                edges.setdefault(leader, {}).setdefault(other, {})[id(placed)] = placed


def _drop(edges: _Edges, placed: Placed) -> None:
    reached = edges.get(placed.replicas[0], {})
    for other in placed.replicas[1:]:
        if other in reached:
            reached[other].pop(id(placed), None)
            if not reached[other]:
                del reached[other]


def _path(layout: Layout, edges: _Edges) -> list[int] | None:
    """Nodes of which each can hand one partition to the next, such that the last leads fewer than the first also then.

    The shortest of such paths, for the node that leads the most.
    """
    leaders = layout.leaders
    for start in sorted(layout.takers, key=lambda node: (-leaders[node], node)):
        came_from: dict[int, int] = {start: start}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if leaders[start] - leaders[node] > 1:
                return _walked(came_from, node)
            for other in sorted(edges.get(node, ()), key=lambda each: (leaders[each], each)):
                if other not in came_from:
                    came_from[other] = node
                    queue.append(other)
    return None


def _walked(came_from: dict[int, int], node: int) -> list[int]:
    path = [node]
    while came_from[node] != node:
        node = came_from[node]
        path.append(node)
    return path[::-1]


def _move_for_leaders(layout: Layout, tolerance: float) -> bool:
    """Move replicas that lead to nodes that lead fewer, the smallest first; whether there were any.

    Also from a node that leads no more than its share: others may hand theirs over to it then.
    """
    leaders, limit_load = layout.leaders, layout.mean_load(layout.takers) * (1 + tolerance)
    is_changed = False
    for placed in sorted(layout.partitions, key=lambda each: (each.weight, each.topic, each.number)):
        giver = placed.replicas[0]
        if giver not in layout.loads:
            continue
        for getter in sorted(layout.takers, key=lambda node: (leaders[node], node)):
            if leaders[giver] - leaders[getter] < 2:
                break
            load = layout.loads[getter] + placed.weight
            fits = load <= max(limit_load, layout.loads[giver])
            if fits and layout.may_replace(placed, giver, getter):
                layout.replace(placed, giver, getter)
                is_changed = True
                break
    return is_changed
