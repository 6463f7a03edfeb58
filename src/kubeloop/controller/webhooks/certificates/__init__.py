"""Certificates of webhook servers: made and renewed here and kept in a Secret, or read from files that somebody else renews."""
