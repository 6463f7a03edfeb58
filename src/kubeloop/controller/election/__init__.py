"""Leader election by Lease: of several replicas one works, and the others stand by."""

from kubeloop.controller.election.config import LeaseConfig, unique_identity
from kubeloop.controller.election.elector import LeaderElector, LeaseLost
from kubeloop.controller.election.lease import LeaseCandidate, LeaseRecord

__all__ = ["LeaderElector", "LeaseCandidate", "LeaseConfig", "LeaseLost", "LeaseRecord", "unique_identity"]
