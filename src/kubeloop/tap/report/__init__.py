"""The report of a recording: one HTML page without external files."""
