"""Sharding: the keys of controllers spread over replicas, each reconciled by one at a time."""

from kubeloop.controller.sharding.config import ShardConfig, by_namespace, by_object
from kubeloop.controller.sharding.member import ShardMember
from kubeloop.controller.sharding.ownership import Ownership

__all__ = ["Ownership", "ShardConfig", "ShardMember", "by_namespace", "by_object"]
