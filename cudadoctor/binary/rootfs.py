"""Paths inside a folder that stands for `/`: an unpacked container image, or the root of another process."""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import dataclass

from cudadoctor.paths import exists, is_folder

MAX_LINKS = 40
"""Symbolic links followed for one path, as in the Linux kernel."""


@dataclass(frozen=True, slots=True)
class RootFolder:
    """Translates paths of the image to paths here; links with absolute targets stay inside the image."""

    folder: str = "/"

    def real_path(self, path: str) -> str | None:
        """The path inside the image with all links followed; None where it does not exist or its links go in circles."""
        if self.folder == "/":
            return _real_path_here(path)
        return self._follow(path)

    def _follow(self, path: str) -> str | None:
        pending = [part for part in reversed(path.split("/")) if part not in {"", "."}]
        current, links = "/", 0
        while pending:
            part = pending.pop()
            if part == "..":
                current = posixpath.dirname(current)
                continue
            step = posixpath.join(current, part)
            try:
                target = os.readlink(self.here(step))
            except OSError:
                current = step  # not a link, or absent: told apart at the end
                continue
            except ValueError:
                return None
            links += 1
            if links > MAX_LINKS:
                return None
            if target.startswith("/"):
                current = "/"
            pending += [piece for piece in reversed(target.split("/")) if piece not in {"", "."}]
        return current if os.path.lexists(self.here(current)) else None

    def is_circle(self, path: str) -> bool:
        """True where the links of an existing path never end; told only for this machine's own root folder."""
        if self.folder != "/":
            return False
        try:
            os.stat(path)
        except OSError as error:
            return error.errno == errno.ELOOP
        except ValueError:
            return False
        return False

    def here(self, path: str) -> str:
        """The path on this machine of a path of the image that has no links left."""
        return path if self.folder == "/" else self.folder.rstrip("/") + "/" + path.lstrip("/")

    def is_folder(self, path: str) -> bool:
        """True where `path`, links followed, is a folder of the image."""
        real = self.real_path(path)
        return real is not None and is_folder(self.here(real))


def _real_path_here(path: str) -> str | None:
    try:
        return os.path.realpath(path, strict=True) if exists(path) else None  # most are not there: asking first is the quick way
    except (OSError, ValueError):
        return None
