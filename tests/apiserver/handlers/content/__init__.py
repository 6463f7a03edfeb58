"""What goes over the wire besides objects: media types, forms, compression, documents about the API, streams."""
