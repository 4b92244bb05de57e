"""The command `mpicomp`, and `python -m mpicomp`."""

import sys

from mpicomp.base.extras import NotInstalled


def main() -> None:
    try:
        from mpicomp.lab.cli import main as run_command_line
    except NotInstalled as error:
        sys.exit(f"mpicomp: {error}")
    run_command_line()


if __name__ == "__main__":
    main()
