"""Makes this process safe to work in, before anything else is imported: what modules it finds, and its three streams."""

from __future__ import annotations

import os
import sys

READ, WRITE = "r", "w"


def prepare() -> None:
    """Call this first."""
    sys.path[:] = own_modules_first(sys.path, os.environ.get("PYTHONPATH", ""), started_as_module=_started_as_module())
    restore_streams()


def own_modules_first(path: list[str], python_path: str, *, started_as_module: bool) -> list[str]:
    """sys.path with the folders of PYTHONPATH, and the working folder that `python -m` puts first, behind all others.

    A json.py that lies there belongs to the user's programs; this one needs the standard library's and its own packages.
    """
    others = {_absolute(folder) for folder in python_path.split(os.pathsep) if folder}
    if started_as_module and path:
        others.add(_absolute(path[0]))
    return sorted(path, key=lambda folder: _absolute(folder) in others)


def _started_as_module() -> bool:
    """Did `python -m` put the working folder first?"""
    return "-m" in sys.orig_argv and not getattr(sys.flags, "safe_path", False)


def _absolute(folder: str) -> str:
    try:
        return os.path.abspath(folder)  # noqa: PTH100  # pathlib would be imported from where it must not be
    except OSError:  # the working folder is gone
        return folder


def restore_streams() -> None:
    """Stand-ins for closed streams, so that no file that is opened later gets their numbers and what is printed.

    Output that was to go to a closed stdout fails when it is written, as it has to; messages for a closed stderr are lost.
    """
    for number in (0, 1, 2):
        if _is_closed(number):
            _open_nothing(number)
    if sys.stdin is None:
        sys.stdin = open(0, READ, encoding="utf-8", closefd=False)  # noqa: SIM115  # a descriptor, for the whole run
    if sys.stdout is None:
        sys.stdout = open(1, WRITE, encoding="utf-8", closefd=False)  # noqa: SIM115  # as above
    if sys.stderr is None:
        sys.stderr = open(2, WRITE, encoding="utf-8", closefd=False)  # noqa: SIM115  # as above


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _open_nothing(number: int) -> None:
    """Open the null device as that descriptor: as stdout for reading only, so that writing there is an error."""
    opened = os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
