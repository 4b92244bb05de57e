"""Parts that several methods share: step sizes, averaging, starts, whitening."""
