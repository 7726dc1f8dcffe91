"""Runs first in the zipapp: a Python that is too old for the rest is told so. Written for Python 3.6."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  # this is where the other versions are turned away
    sys.stderr.write(f"cudadoctor: needs Python 3.10 or newer; this is {sys.version.split()[0]}, {sys.executable}\n")
    sys.exit(2)
