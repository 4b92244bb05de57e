"""The time of a training step, and time to accuracy: torch's DistributedDataParallel beside our methods."""
