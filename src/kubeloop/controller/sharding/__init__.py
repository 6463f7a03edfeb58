"""Sharding: the keys of controllers spread over replicas, each reconciled by one at a time."""

from kubeloop.controller.sharding.member import ShardMember
from kubeloop.controller.sharding.membership import Ownership, ShardConfig, by_namespace, by_object

__all__ = ["Ownership", "ShardConfig", "ShardMember", "by_namespace", "by_object"]
