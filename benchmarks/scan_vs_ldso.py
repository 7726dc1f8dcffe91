"""Compares our resolution of NEEDED entries with the real loader's, line by line, for every library below some folders.

    python benchmarks/scan_vs_ldso.py FOLDER... [--ld-library-path DIRS]

Only for files that you trust: the real loader is run on each of them (LD_TRACE_LOADED_OBJECTS, as ldd does).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudadoctor.binary.inputs import folder_files  # noqa: E402 - after the path
from cudadoctor.binary.source import BinaryError, FileSource  # noqa: E402
from tests.binary.test_loader import our_answers, real_answers  # noqa: E402


def libraries(folder: Path) -> Iterator[Path]:
    """The 64-bit programs and libraries below a folder, or the folder itself where it is a file."""
    files = folder_files(str(folder)) if folder.is_dir() else (str(folder),)
    return (Path(path) for path in files if is_loadable(path))


def is_loadable(path: str) -> bool:
    """True for an ELF file of the 64-bit class that is a program or a library."""
    try:
        with FileSource(path) as source:
            head = source.read(0, 18)
    except BinaryError:
        return False
    return head[:5] == b"\x7fELF\x02" and head[16:17] in {b"\2", b"\3"}


def main() -> None:
    """Compare and print what differs and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--ld-library-path", default="")
    options = parser.parse_args()
    environ = {"LD_LIBRARY_PATH": options.ld_library_path} if options.ld_library_path else {}
    files, lines, different, seconds = 0, 0, 0, 0.0
    for path in (path for folder in options.folder for path in libraries(folder)):
        real = real_answers(path, environ)
        if not real:
            continue
        started = time.perf_counter()
        ours = our_answers(path, environ)
        seconds += time.perf_counter() - started
        files += 1
        for name in {*real, *ours}:
            lines += 1
            if real.get(name) != ours.get(name):
                different += 1
                print(f"{path}: {name}: ld.so {real.get(name)}, ours {ours.get(name)}")
    print(f"{files} files, {lines} lines, {lines - different} equal, {1000 * seconds / max(files, 1):.1f} ms a file")


if __name__ == "__main__":
    main()
