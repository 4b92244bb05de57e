"""What several methods share: steps of a theory, averaging, whitening."""
