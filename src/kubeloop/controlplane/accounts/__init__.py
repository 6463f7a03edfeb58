"""Controllers of service accounts, their tokens, certificates and aggregated roles."""
