"""Calls of other servers: webhooks, their addresses, and the policy on which addresses may be dialled."""
