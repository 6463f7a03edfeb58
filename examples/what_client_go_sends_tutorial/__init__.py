"""The programs of docs/tutorials/what-client-go-sends.md."""
