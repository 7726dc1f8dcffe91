"""Says what is wrong with a machine's CUDA stack, why, and the exact command that fixes it."""

from __future__ import annotations

# Not from typing: nothing may be imported before own_process.prepare() has taken the working folder off sys.path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudadoctor.api import check, judge, probe, prove, triage

__version__ = "0.1.0"
__all__ = ["__version__", "check", "judge", "probe", "prove", "triage"]


def __getattr__(name: str) -> object:
    """The functions of cudadoctor.api, loaded when one of them is first asked for: the command line has no use for them."""
    if name in __all__:
        from cudadoctor import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
