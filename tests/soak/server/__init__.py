"""A long run of the embedded API server under load and overload, with roles, admission and audit on."""
