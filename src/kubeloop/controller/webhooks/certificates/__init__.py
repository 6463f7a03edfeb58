"""Certificates of webhook servers: made and renewed here and stored in a Secret, or read from files that another program renews."""
