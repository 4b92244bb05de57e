"""What several methods share: checks, steps of a theory, averaging, whitening."""
