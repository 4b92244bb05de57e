"""The papers' algorithms in plain numpy: one process, all workers in a list.

They are what the package is tested against, so they import nothing of it.  Each is written from its
paper's statement: the server holds x and the workers see x.  What is random or compressed comes in as an
argument: ``compress(i, k, v)`` is the vector that the server makes of worker i's message number k about v.
"""
