"""Sharding: distributes the keys of controllers over replicas. Each key is reconciled by one replica at a time."""

from kubeloop.controller.sharding.member import ShardMember
from kubeloop.controller.sharding.membership import Ownership, ShardConfig, by_namespace, by_object

__all__ = ["Ownership", "ShardConfig", "ShardMember", "by_namespace", "by_object"]
