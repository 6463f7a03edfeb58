"""Services: validation, and the addresses and ports that they are given."""
