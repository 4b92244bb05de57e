"""The version of mpicomp, in a file of its own so that the build can read it too."""

__version__ = "0.1.0"
