"""Codes: numbers to bits and back.  Nothing here knows of vectors, workers or methods."""
