"""Rewrites of logical plans."""

from __future__ import annotations

from whence.plan.logical import Node


def optimize(node: Node) -> Node:
    return node
