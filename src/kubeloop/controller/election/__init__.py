"""Leader election with a Lease: one of several replicas works, and the others stand by."""

from kubeloop.controller.election.elector import LeaderElector, LeaseLost
from kubeloop.controller.election.lease import LeaseCandidate, LeaseConfig, LeaseRecord, unique_identity

__all__ = ["LeaderElector", "LeaseCandidate", "LeaseConfig", "LeaseLost", "LeaseRecord", "unique_identity"]
