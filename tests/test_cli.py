"""The command line as a process: exit codes, standard output against standard error, bad input, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from cudadoctor import __version__
from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.codec import to_json
from cudadoctor.model.fact import Known
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Driver, Gpu, Snapshot, Torch
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease, SmTarget

TIMEOUT_S = 60


def run(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "cudadoctor", *arguments]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, env={**os.environ, **(env or {})})


def saved(folder: Path, snapshot: Snapshot) -> str:
    report = Report(
        tool=Tool(version="0"), created="2026-11-30T00:00:00Z", verdict=Verdict.HEALTHY, summary="", snapshot=snapshot
    )
    path = folder / "saved.json"
    path.write_bytes(to_json(report))
    return str(path)


def volta_with_new_torch() -> Snapshot:
    gpu = Gpu(index=0, name=Known("Tesla V100", "test"), compute_capability=Known(ComputeCapability(7, 0), "test"))
    torch = Torch(
        torch_version=Known("2.9.1+cu130", "test"),
        torch_cuda_version=Known(CudaVersion.of(13, 0), "test"),
        arch_list=Known((SmTarget.parse("sm_75"), SmTarget.parse("sm_90")), "test"),
    )
    driver = Driver(
        driver_release=Known(DriverRelease.parse("580.95.05"), "test"), driver_cuda_version=Known(CudaVersion.of(13, 0), "test")
    )
    snapshot = Snapshot(driver=driver, gpus=Known((gpu,), "test"))
    from msgspec import structs

    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=Known(torch, "test")))


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.decode().strip()) == (0, f"cudadoctor {__version__}")


def test_help_names_every_command_and_the_exit_codes() -> None:
    done = run("--help", env={"COLUMNS": "120"})
    text = done.stdout.decode()
    for command in ("check", "report", "triage", "explain", "rules", "matrix", "archs", "recommend", "compare", "fleet"):
        assert f"  {command} " in text
    groups = [line for line in text.splitlines() if line in ("Diagnose:", "Ask:", "Measure:", "Many machines:")]
    assert groups == ["Diagnose:", "Ask:", "Measure:", "Many machines:"]
    assert "..." not in text.partition("Diagnose:")[2], "a command's sentence is cut"
    assert "Exit codes" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("check", "--nonsense"),
        ("check", "--format", "yaml"),
        ("check", "--select", "no-such-rule"),
        ("check", "--require", "cc>>8"),
        ("check", "--require", "colour>=8"),
        ("check", "--no-run", "--assume", "weather=fine"),
        ("check", "--timeout", "0"),
        ("check", "--snapshot", "/no/such/file"),
        ("check", "--snapshot", "/"),
        ("explain", "no such thing at all"),
        ("archs", "--gpu", "RTX"),
        ("archs", "--gpu", "Voodoo 2"),
        ("recommend", "--gpu", "4090", "--driver", "new"),
        ("triage", "/no/such/file"),
        ("matrix", "weather"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_and_says_why(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == b""
    assert done.stderr.strip()
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("chek",), "no such command 'chek'. Did you mean 'check'?"),
        (("check", "--fromat", "json"), "no such option: --fromat (Possible options: --format)"),
        (("check", "--format", "pdf"), "invalid value for '--format': 'pdf' is not one of 'text', 'json',"),
        (("check", "--python"), "option '--python' requires an argument"),
        (("check", "--python", "/no/such/python"), "invalid value for '--python': no Python can be started as '/no/such/python'"),
        (("preflight", "--python", "/no/such/python"), "no Python can be started as '/no/such/python'"),
        (("preflight", "--driver", "abc"), "'abc' is not a driver release or branch such as 550.54.15 or 550"),
        (
            ("recommend", "--gpu", "4090", "--platform", "amiga"),
            "invalid value for '--platform': 'amiga' is not one of",
        ),
        (
            ("recommend", "--gpu", "4090", "--python-version", "abc"),
            "invalid value for '--python-version': 'abc'",
        ),
        (("matrix",), "missing argument 'NAME'. Choose from: gpus, capabilities, drivers,"),
        (
            ("explain", "arch-mising-in-wheel"),
            "nothing is known about 'arch-mising-in-wheel' (did you mean arch-missing-in-wheel?)",
        ),
        (("archs", "--gpu", "RTX"), "'RTX' leaves several compute capabilities; give more of the name, or one of these:"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_error_begins_alike_and_says_what_is_wrong(arguments: tuple[str, ...], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.decode().startswith(f"cudadoctor: {said}")


def test_nothing_asked_for_shows_the_help_on_standard_error() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.startswith(b"Usage: python -m cudadoctor [OPTIONS] COMMAND") and b"Exit codes" in done.stderr


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"schema": "other"}', b"\x00\xff" * 100, b"[" * 100_000, b'{"tool": 1}', b"null"],
    ids=["empty", "cut", "list", "other schema", "binary", "deep", "wrong types", "null"],
)
def test_a_snapshot_that_is_none_ends_with_2(data: bytes) -> None:
    done = run("check", "--snapshot", "-", stdin=data)
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr


def test_problems_end_with_1_and_fail_on_never_with_0(tmp_path: Path) -> None:
    path = saved(tmp_path, volta_with_new_torch())
    assert run("check", "--snapshot", path).returncode == ExitCode.PROBLEMS
    assert run("check", "--snapshot", path, "--fail-on", "never").returncode == ExitCode.OK
    assert (
        run("check", "--snapshot", path, "--ignore", "arch-missing-in-wheel", "--select", "CD412").returncode != ExitCode.PROBLEMS
    )


def test_select_and_ignore_take_names_codes_and_blocks(tmp_path: Path) -> None:
    path = saved(tmp_path, volta_with_new_torch())
    chosen = json.loads(run("check", "--snapshot", path, "--format", "json", "--select", "CD412").stdout)
    assert [finding["name"] for finding in chosen["findings"]] == ["arch-missing-in-wheel"]
    without = json.loads(run("check", "--snapshot", path, "--format", "json", "--ignore", "CD4").stdout)
    assert all(not finding["code"].startswith("CD4") for finding in without["findings"])


def test_requirements_met_unmet_and_unknown(tmp_path: Path) -> None:
    path = saved(tmp_path, volta_with_new_torch())
    only = ("check", "--snapshot", path, "--select", "requirement-unmet")
    assert run(*only, "--require", "cc>=7.0,driver>=550,torch>=2.6").returncode == ExitCode.OK
    assert run(*only, "--require", "cc>=8.0").returncode == ExitCode.PROBLEMS
    assert run(*only, "--require", "glibc>=2.28").returncode == ExitCode.UNDETERMINED


def test_an_assumption_changes_the_judgement(tmp_path: Path) -> None:
    path = saved(tmp_path, volta_with_new_torch())
    done = run("check", "--snapshot", path, "--assume", "gpu=Tesla T4", "--format", "json", "--select", "CD412")
    assert json.loads(done.stdout)["findings"] == []


def test_output_goes_to_the_file_and_nothing_to_stdout(tmp_path: Path) -> None:
    path, target = saved(tmp_path, volta_with_new_torch()), tmp_path / "report.txt"
    done = run("check", "--snapshot", path, "--output", str(target))
    assert done.stdout == b""
    assert "arch-missing-in-wheel" in target.read_text(encoding="utf-8")
    assert list(tmp_path.glob(".report*")) == []
    assert run("check", "--snapshot", path, "--output", str(tmp_path / "no" / "folder")).returncode == ExitCode.USAGE


@pytest.mark.parametrize("format", ["text", "json", "markdown"])
def test_a_pipe_gets_no_colour_and_a_closed_pipe_no_traceback(format: str, tmp_path: Path) -> None:
    path = saved(tmp_path, volta_with_new_torch())
    assert b"\x1b" not in run("check", "--snapshot", path, "--format", format).stdout
    argv = [sys.executable, "-m", "cudadoctor", "check", "--snapshot", path, "--format", format]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait(TIMEOUT_S)
    process.stderr.close()


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    started = tmp_path / "started"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n: > '{started}'\nexec sleep 60\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "cudadoctor", "check", "--timeout", "50"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.INTERRUPTED, (stderr, stdout)
    assert b"Traceback" not in stderr


def test_a_ctrl_c_that_cleaning_up_swallows_still_ends_with_130() -> None:
    """Python prints what is raised in __del__ and goes on."""
    code = """
import os, signal, sys, types
class Cleaned:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
import cudadoctor.commands.rules as command
listing = command.as_text
def listing_after_ctrl_c(*rules):
    Cleaned()
    return listing(*rules)
command.as_text = listing_after_ctrl_c
sys.argv = ["cudadoctor", "rules"]
from cudadoctor.cli import run
run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT_S)
    assert b"CD101" in done.stdout
    assert done.returncode == ExitCode.INTERRUPTED


def test_explain_prints_the_rule_by_name_and_code_and_an_error_by_number() -> None:
    assert run("explain", "CD412").stdout == run("explain", "arch-missing-in-wheel").stdout
    assert b"CUDA_ERROR_NO_BINARY_FOR_GPU" in run("explain", "209").stdout
    assert b"fallen off the bus" in run("explain", "Xid 79").stdout


def test_explain_takes_words_without_quotes_and_says_nothing_twice() -> None:
    by_name = run("explain", "CUDA_ERROR_NO_BINARY_FOR_GPU").stdout.decode()
    assert by_name.count("CUDA error 209") == 1
    quoted = run("explain", "no kernel image is available for execution on the device")
    words = run("explain", *["no", "kernel", "image", "is", "available", "for", "execution", "on", "the", "device"])
    assert words.stdout == quoted.stdout and b"CUDA error 209" in words.stdout


def test_archs_prints_only_the_value() -> None:
    done = run("archs", "--gpu", "RTX 4090", "--gpu", "12.0")
    assert (done.returncode, done.stdout) == (0, b"8.9;12.0\n")


def test_archs_without_a_gpu_prints_nothing_and_ends_with_4() -> None:
    done = run("archs", env={"LD_LIBRARY_PATH": "", "PATH": "/usr/bin:/bin"})
    if done.stdout:
        pytest.skip("this machine has a GPU")
    assert done.returncode == ExitCode.UNDETERMINED
    assert b"--gpu" in done.stderr


def test_recommend_for_a_machine_that_is_elsewhere() -> None:
    done = run("recommend", "--gpu", "V100", "--driver", "535", "--python-version", "3.12")
    assert done.returncode == ExitCode.OK
    assert done.stdout.decode().startswith("pip install torch==") and "+cu126" in done.stdout.decode()
    nothing = run("recommend", "--gpu", "K20", "--driver", "470")
    assert (nothing.returncode, nothing.stdout) == (ExitCode.PROBLEMS, b"")


def test_triage_reads_standard_input_and_a_dump(tmp_path: Path) -> None:
    ticket = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)"
    done = run("triage", "-", "--format", "json", stdin=ticket.encode())
    assert done.returncode == ExitCode.PROBLEMS
    assert "driver-too-old" in {finding["name"] for finding in json.loads(done.stdout)["findings"]}
    lines = [json.dumps({"id": "one", "text": ticket}), "not json", json.dumps({"id": "two", "text": "hello"})]
    dump = run("triage", "-", "--jsonl", stdin="\n".join(lines).encode())
    results = [json.loads(line) for line in dump.stdout.splitlines()]
    assert [result["id"] for result in results] == ["one", "two"]
    assert b"line 2 skipped" in dump.stderr


def test_scan_judges_a_binary_for_a_gpu(tmp_path: Path) -> None:
    with zipfile.ZipFile(Path(__file__).parent / "binary" / "data" / "samples.zip") as samples:
        samples.extractall(tmp_path)
    done = run("scan", str(tmp_path), "--format", "json")
    report = json.loads(done.stdout)
    assert report["schema"] == "cudadoctor.scan/1"
    assert any(file["modules"] for file in report["files"])
    assert run("scan").returncode == ExitCode.USAGE
    assert run("scan", "no-such-package-anywhere").returncode == ExitCode.USAGE


def test_triage_says_what_a_text_lacks() -> None:
    nothing = run("triage", "-", stdin=b"hello")
    assert nothing.returncode == ExitCode.UNDETERMINED
    assert b"Nothing in this text is known" in nothing.stdout
    little = run("triage", "-", stdin=b"Cuda compilation tools, release 12.4, V12.4.131")
    assert little.returncode == ExitCode.UNDETERMINED
    assert b"nvidia-smi" in little.stdout


def test_a_dump_goes_to_the_file_named_and_many_bad_lines_are_counted(tmp_path: Path) -> None:
    dump, results = tmp_path / "tickets.jsonl", tmp_path / "results.jsonl"
    dump.write_text('{"id": "a", "text": "CUDA error 209"}\n' + '{"id": "b"}\n' * 20, encoding="utf-8")
    done = run("triage", "--jsonl", str(dump), "--output", str(results))
    assert (done.returncode, done.stdout) == (ExitCode.OK, b"")
    assert [json.loads(line)["id"] for line in results.read_text(encoding="utf-8").splitlines()] == ["a"]
    assert len(done.stderr.splitlines()) == 6
    assert b"20 of 21 lines skipped" in done.stderr
    assert run("triage", "--jsonl", str(dump), "--format", "html").returncode == ExitCode.USAGE
    full = run("triage", "--jsonl", str(dump), "--output", "/dev/full")
    assert (full.returncode, full.stderr) == (ExitCode.USAGE, b"cudadoctor: cannot write the results: No space left on device\n")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_a_saved_report_is_read_as_windows_tools_write_it(encoding: str, tmp_path: Path) -> None:
    saved = tmp_path / "report.json"
    saved.write_text(run("demo", "old-wheel", "--format", "json").stdout.decode(), encoding=encoding)
    done = run("check", "--snapshot", str(saved))
    assert done.returncode == ExitCode.PROBLEMS and b"CD412" in done.stdout
    assert run("compare", str(saved), str(saved)).returncode == ExitCode.OK


READERS = (
    ("triage",),
    ("triage", "--jsonl"),
    ("check", "--snapshot"),
    ("compare", __file__),
    ("bench", "--judge"),
    ("bench", "--judge", __file__, "--against"),
    ("check", "--policy"),
    ("preflight", "--dockerfile"),
)


@pytest.mark.parametrize("command", READERS, ids=" ".join)
@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "folder", "loop", "absent"])
def test_what_never_ends_or_is_no_file_ends_with_2_at_once(command: tuple[str, ...], name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    done = run(*command, str(tmp_path / name))
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.startswith(b"cudadoctor: ") and done.stderr.count(b"\n") == 1


def test_a_pipe_among_reports_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    report = saved(tmp_path, volta_with_new_torch())
    done = run("fleet", "summary", str(tmp_path / "pipe"), report)
    assert done.returncode == ExitCode.USAGE
    assert b"is not a regular file" in done.stdout and b"1 report" in done.stdout


def test_a_list_of_nodes_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_bytes(b"x" * (2 << 20))
    done = run("fleet", "summary", saved(tmp_path, volta_with_new_torch()), "--nodes", str(tmp_path / "nodes"))
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert b"is larger than 1 MiB, too large for a list of nodes" in done.stderr


HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]"


@pytest.mark.parametrize(
    "arguments",
    [
        (HOSTILE,),
        ("check", HOSTILE),
        ("check", "--snapshot", HOSTILE),
        ("check", "--format", HOSTILE),
        ("check", "--policy", "hostile.toml"),
        ("triage", HOSTILE),
        ("compare", HOSTILE, HOSTILE),
        ("fleet", "summary", HOSTILE),
        ("scan", HOSTILE),
        ("bench", "--judge", HOSTILE),
        ("demo", HOSTILE),
        ("explain", HOSTILE),
        ("matrix", "gpus", HOSTILE),
        ("archs", "--gpu", HOSTILE),
        ("preflight", "--dockerfile", HOSTILE),
        ("preflight", "--root", HOSTILE),
    ],
    ids=lambda arguments: " ".join(arguments).replace(HOSTILE, "HOSTILE"),
)
def test_no_message_carries_control_codes_of_its_input(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile.toml").write_text('"\\u001b[31m" = 1', encoding="utf-8")
    done = run(*arguments)
    assert done.returncode in (ExitCode.USAGE, ExitCode.PROBLEMS)
    assert done.stderr or done.stdout
    assert b"\x1b" not in done.stdout + done.stderr and b"\x07" not in done.stdout + done.stderr
