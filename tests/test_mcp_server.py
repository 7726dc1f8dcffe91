"""`cudadoctor mcp` through the official SDK's client, over the real pipes of a real process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from tests.fakes.machines import build_machine

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
SERVER = ["-m", "cudadoctor", "mcp"]


@asynccontextmanager
async def connected(env: dict[str, str] | None = None) -> AsyncIterator[Client]:
    """A client of a server that runs in this environment."""
    with anyio.fail_after(60):
        async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=SERVER, env=env))) as client:
            yield client


def call(tool: str, arguments: dict[str, Any], env: dict[str, str] | None = None) -> CallToolResult:
    async def ask() -> CallToolResult:
        async with connected(env) as client:
            return await client.call_tool(tool, arguments)

    return anyio.run(ask)


def words(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def document(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, words(result)
    assert result.structured_content is not None
    content: dict[str, Any] = result.structured_content
    return content


def test_the_tools_are_the_commands_that_only_read() -> None:
    async def tools() -> dict[str, bool]:
        async with connected() as client:
            listed = (await client.list_tools()).tools
            assert all(tool.description for tool in listed)
            return {tool.name: bool(tool.annotations and tool.annotations.read_only_hint) for tool in listed}

    assert anyio.run(tools) == dict.fromkeys(("check", "triage", "explain", "archs", "recommend", "scan"), True)


def test_triage_names_the_cause_and_leaves_the_facts_out_unless_asked() -> None:
    report = document(call("triage", {"text": MISMATCH}))
    assert [finding["name"] for finding in report["findings"] if finding["root"]] == ["nvml-version-mismatch"]
    assert "snapshot" not in report
    assert "snapshot" in document(call("triage", {"text": MISMATCH, "facts": True}))


def test_check_says_what_the_command_line_says(tmp_path: Path) -> None:
    machine = build_machine("G", tmp_path)
    report = document(call("check", {"run_kernels": False}, machine.env))
    argv = [sys.executable, "-m", "cudadoctor", "check", "--no-run", "--format", "json"]
    printed = json.loads(subprocess.run(argv, env=machine.env, capture_output=True, timeout=60).stdout)
    assert report["findings"] == printed["findings"]
    assert report["verdict"] == "problems"


def test_the_others_answer() -> None:
    assert "gpu-xid" in words(call("explain", {"query": "CD502"}))
    assert words(call("archs", {"gpus": ["RTX 4090", "9.0"]})).strip() == "8.9;9.0"
    advice = document(
        call("recommend", {"gpus": ["RTX 5090"], "driver": "570", "python_version": "3.12", "platform": "linux-x86_64"})
    )
    assert advice["command"].startswith("pip install torch==")
    assert document(call("scan", {"path": sys.executable}))["schema"].startswith("cudadoctor.scan/")


@pytest.mark.parametrize(
    ("tool", "arguments", "complaint"),
    [
        ("scan", {"path": "/nowhere/at/all"}, "/nowhere/at/all"),
        ("scan", {"path": "--live"}, "--live"),
        ("explain", {"query": "--help"}, "nothing is known about '--help'"),
        ("archs", {"gpus": ["--ptx"]}, "--ptx"),
        ("recommend", {"driver": "abc"}, "abc"),
        ("triage", {"text": "x" * 5_000_000}, "larger than"),
        ("triage", {"text": "\x00\x01\x02"}, "binary, not text"),
    ],
)
def test_wrong_use_is_an_error_in_the_commands_words_and_no_option(tool: str, arguments: dict[str, Any], complaint: str) -> None:
    result = call(tool, arguments)
    assert result.is_error
    assert complaint in words(result)
    assert "Traceback" not in words(result)


def test_without_the_sdk_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    done = subprocess.run(
        [sys.executable, *SERVER], env={"PYTHONPATH": str(tmp_path)}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "cudadoctor: `mcp` needs the extra mcp: pip install 'cudadoctor[mcp]', or '.[mcp]' in a checkout\n"
