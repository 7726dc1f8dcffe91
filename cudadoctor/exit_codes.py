"""The meaning of each exit code of the `cudadoctor` command."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process's exit status says to a script."""

    OK = 0
    """Nothing at or above the severity named by `--fail-on`."""
    PROBLEMS = 1
    """At least one finding at or above that severity."""
    USAGE = 2
    """Wrong usage, or an input that cannot be read."""
    INTERNAL = 3
    """A bug of cudadoctor itself; the report is still printed."""
    UNDETERMINED = 4
    """No problem found, but something essential could not be determined."""
    INTERRUPTED = 130
    """Ended by Ctrl-C."""
