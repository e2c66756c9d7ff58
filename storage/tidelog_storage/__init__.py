"""One broker's disk: logs, indexes, checkpoints. Synchronous; time comes as an argument."""
