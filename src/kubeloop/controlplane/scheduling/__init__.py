"""The scheduler: the facts that it reads from nodes, pods and volumes, its filters, and the controller that binds pods."""
