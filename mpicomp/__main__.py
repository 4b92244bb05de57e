"""The command `mpicomp`, and `python -m mpicomp`."""

from mpicomp.cli import main

if __name__ == "__main__":
    main()
