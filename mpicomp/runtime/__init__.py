"""One run: its rounds, rows, limits, checkpoints, and the count of its bytes."""
