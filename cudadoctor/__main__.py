"""`python -m cudadoctor` and the `cudadoctor` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; `--version` alone is answered without loading it, since scripts ask it often."""
    if sys.argv[1:] == ["--version"]:
        from cudadoctor import __version__

        print(f"cudadoctor {__version__}")
        return
    from cudadoctor.cli import run

    run()


if __name__ == "__main__":
    main()
