"""Parts that several methods share: checks, step sizes, averaging, starts, whitening."""
