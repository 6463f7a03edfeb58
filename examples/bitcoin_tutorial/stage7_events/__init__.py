"""Stage 7: Events that people read, and a Secret with the credentials of the daemons."""
