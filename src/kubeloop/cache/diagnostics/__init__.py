"""Numbers, tables, metrics and warnings about informers."""
