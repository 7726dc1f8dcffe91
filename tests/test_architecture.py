"""docs/architecture.md says which part may use which: the imports of the code keep to it, those inside functions too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cudadoctor"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|$", TEXT, re.MULTILINE)
MAY_USE = {part: set(re.findall(r"`(\w+)`", used)) for part, used in ROWS}
PARTS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())
PURE = ("model", "matrices", "rules", "report", "archs.py", "recommend.py")
MACHINE = {"subprocess", "ctypes", "cudadoctor.system", "cudadoctor.process", "cudadoctor.probes"}
NETWORK = {"socket", "ssl", "http", "urllib.request", "ftplib", "smtplib", "xmlrpc", "requests", "httpx", "aiohttp"}


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """File and module, for each import of the files at or below a path."""
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((str(file.relative_to(ROOT)), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield str(file.relative_to(ROOT)), node.module
                yield from ((str(file.relative_to(ROOT)), f"{node.module}.{alias.name}") for alias in node.names)


def within(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def test_every_part_is_described() -> None:
    assert sorted(MAY_USE) == PARTS


@pytest.mark.parametrize("part", [part for part in PARTS if part != "commands"])
def test_a_part_uses_only_what_it_may(part: str) -> None:
    others = {f"cudadoctor.{other}" for other in PARTS if other != part and other not in MAY_USE[part]}
    assert [pair for pair in imported(PACKAGE / part) if within(pair[1], others)] == []


@pytest.mark.parametrize("part", sorted(MAY_USE))
def test_no_part_is_said_to_use_what_it_does_not(part: str) -> None:
    used = {module.split(".")[1] for _, module in imported(PACKAGE / part) if module.startswith("cudadoctor.")}
    assert MAY_USE[part] - used == set()


@pytest.mark.parametrize("part", PURE)
def test_what_judges_and_shows_does_not_ask_the_machine(part: str) -> None:
    assert [pair for pair in imported(PACKAGE / part) if within(pair[1], MACHINE)] == []


def test_no_module_is_made_for_the_network() -> None:
    assert [pair for pair in imported(PACKAGE) if within(pair[1], NETWORK)] == []
