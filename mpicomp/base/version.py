"""The version, on its own so that the build and the record of a run can both read it."""

__version__ = "0.1.0"
