"""The papers' algorithms in plain numpy: one process, all workers in a list.

The package is tested against them, so they import nothing of it.  Each follows the statement in its paper:
the server holds x and the workers see x.  Random draws and compressed vectors come in as arguments:
``compress(i, k, v)`` is the vector that the server decodes from worker i's message number k about v.  Each
has its section in docs/methods.md#methods, which says what was written from memory.
"""
