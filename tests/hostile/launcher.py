"""Starts a program under hostile conditions; run as `python -IS launcher.py CONDITIONS PROGRAM ARGUMENT...`.

CONDITIONS is a JSON object:
    limits      {"NOFILE": 32, ...}: soft and hard resource limits
    humble      true: without the super-user's right to pass over file permissions, where it is the super-user who runs the tests
    close       [0, 1, 2]: descriptors that are closed
    open        {"1": "/dev/full"}: descriptors that lead to another file
    mounts      [[TYPE, TARGET], ...]: filesystems mounted over folders in a mount namespace of its own; `tmpfs:64k` is a tiny
                one, `bind:/path` that file or folder
Ends with 77 where the conditions cannot be made here.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from typing import Any, NoReturn

IMPOSSIBLE = 77
PR_CAPBSET_DROP = 24
PASSING_OVER_PERMISSIONS = (1, 2, 3)
"""linux/capability.h: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER."""
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
"""linux/sched.h: CLONE_NEWNS, CLONE_NEWUSER."""
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18
"""linux/mount.h: MS_BIND, MS_REC, MS_PRIVATE."""
LIBC = ctypes.CDLL(None, use_errno=True)


def impossible(what: str) -> NoReturn:
    print(f"{what}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
    sys.exit(IMPOSSIBLE)


def mount(mounts: list[list[str]]) -> None:
    """Mount in a namespace of our own, as the user's own super-user where we are not the machine's."""
    if LIBC.unshare(NEW_MOUNTS) and LIBC.unshare(NEW_USER | NEW_MOUNTS):
        impossible("no mount namespaces here")
    if LIBC.mount(None, b"/", None, RECURSIVE | PRIVATE, None):
        impossible("the mounts of this namespace cannot be kept from the machine")
    for kind, target in mounts:
        name, _, detail = kind.partition(":")
        size = f"size={detail}".encode() if detail else None
        source, flags = (detail.encode(), BIND) if name == "bind" else (b"none", 0)
        if LIBC.mount(source, target.encode(), name.encode(), flags, None if flags else size):
            impossible(f"cannot mount over {target}")


def main(conditions: dict[str, Any], argv: list[str]) -> None:
    if conditions.get("mounts"):
        mount(conditions["mounts"])
    if conditions.get("humble") and os.geteuid() == 0:
        for capability in PASSING_OVER_PERMISSIONS:
            LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    for name, value in conditions.get("limits", {}).items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    for number, path in conditions.get("open", {}).items():
        os.dup2(os.open(path, os.O_RDWR), int(number))
    for number in conditions.get("close", []):
        os.close(number)
    os.execve(argv[0], argv, os.environ)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
