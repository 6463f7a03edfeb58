"""Programs of other languages, with those languages' own client libraries, against the server under test."""
