"""`python -m cudadoctor` and the `cudadoctor` command."""

from __future__ import annotations

import sys
from contextlib import suppress

from cudadoctor.own_process import prepare


def main() -> None:
    """Run the command line; `--version` alone is answered without loading it, since scripts ask it often."""
    prepare()
    if sys.argv[1:] == ["--version"]:
        from cudadoctor import __version__

        with suppress(OSError):  # what cannot be written is said by the command line
            print(f"cudadoctor {__version__}", flush=True)
            return
    from cudadoctor.cli import run

    run()


if __name__ == "__main__":
    main()
