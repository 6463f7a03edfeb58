"""The tutorial of the bitcoin operator, in nine stages: docs/tutorials/bitcoin.md."""
