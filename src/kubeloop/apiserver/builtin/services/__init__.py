"""Services: validation, and ranges of cluster IPs and node ports."""
