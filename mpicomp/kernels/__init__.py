"""Array kernels.  These numpy versions are the definition; a faster backend must give the same bytes."""
