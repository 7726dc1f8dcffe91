"""Builds cudadoctor.pyz: one file with all that cudadoctor needs, for machines that reach no package index.

    pip install shiv && python tools/build_zipapp.py [FILE]

For this machine's platform and every Python of VERSIONS: compiled modules carry the version in their names, so they lie side by
side. Needs a package index while it builds.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PREAMBLE = CHECKOUT / "tools" / "zipapp_preamble.py"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
BACKPORTS = ("tomli>=2",)
"""What only older versions need; pip decides by the version that it runs on, so it has to be asked for."""


def install(wheel: Path, version: str, folder: Path) -> None:
    """Put the wheel and what it depends on into the folder, as that version of Python wants it."""
    options = ("--only-binary", ":all:", "--python-version", version, "--target", str(folder))
    subprocess.run([*PIP, "install", *options, str(wheel), *BACKPORTS], check=True)


def build(output: Path) -> None:
    """Write the zipapp."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", name, str(CHECKOUT)], check=True)
        (wheel,) = folder.glob("cudadoctor-*.whl")
        for version in VERSIONS:
            install(wheel, version, folder / version)
            shutil.copytree(folder / version, folder / "all", dirs_exist_ok=True)
        options = ("--site-packages", str(folder / "all"), "--entry-point", "cudadoctor.__main__:main")
        extras = ("--preamble", str(PREAMBLE), "--reproducible", "--output-file", str(output))
        subprocess.run([sys.executable, "-m", "shiv", *options, *extras], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "cudadoctor.pyz"))
