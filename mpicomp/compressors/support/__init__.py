"""Parts of several compressors: their base classes, scales and variances."""
