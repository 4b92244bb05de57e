"""What several compressors share: the families, scales, variances."""
