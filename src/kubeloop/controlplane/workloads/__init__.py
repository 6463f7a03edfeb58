"""Controllers that create pods: ReplicaSets, Deployments and the other workload kinds."""
