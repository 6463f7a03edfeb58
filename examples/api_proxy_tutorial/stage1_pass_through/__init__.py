"""A proxy that passes everything."""
