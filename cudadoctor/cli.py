"""The command line: parses, calls, exits. What a command does lives in the module that it calls; imports are made there too,
so that `--help` stays fast."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer

from cudadoctor.cli_group import ASK, DIAGNOSE, MANY, MEASURE, Grouped
from cudadoctor.cli_options import (
    ArchStyleName,
    AssumeOption,
    BenchPart,
    BuildArgOption,
    BuildOption,
    DockerfileOption,
    DriverOption,
    EngineName,
    FailOn,
    FailOnOption,
    FleetFormat,
    FormatOption,
    GateFailOnOption,
    GpuOption,
    IgnoreOption,
    ImageVariableOption,
    LibrariesOption,
    ListFormat,
    ListFormatOption,
    LiveOption,
    MachinesToCompare,
    MatrixChoice,
    NodeOption,
    NodesOption,
    OrdinalOption,
    OutputOption,
    PidOption,
    PlatformOption,
    PolicyOption,
    PreflightPythonOption,
    PythonOption,
    PythonVersionOption,
    QuietOption,
    ReportFormat,
    ReportPaths,
    RequireOption,
    RootOption,
    ScanDetail,
    ScanDetailOption,
    ScanGpuOption,
    ScanPaths,
    SelectOption,
    StageOption,
    TimeoutOption,
    VerboseOption,
)
from cudadoctor.exit_codes import ExitCode
from cudadoctor.interrupts import remembered_interrupts
from cudadoctor.saying import say

OUTPUT_FAILS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})
"""Errors of a write to standard output; those of a file carry its name."""


MATRIX_NAMES = tuple(choice.value for choice in MatrixChoice)

app = typer.Typer(
    name="cudadoctor",
    cls=Grouped,
    help="Says what is wrong with this machine's CUDA stack, why, and the exact command that fixes it.\n\n"
    "Reads and measures only: no fix is executed, nothing is sent anywhere.",
    epilog="Exit codes: 0 no problem, 1 problems, 2 usage or unreadable input, 3 a bug of cudadoctor, 4 undetermined.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def fail(code: ExitCode, message: str) -> NoReturn:
    """Say what is wrong on standard error and end with this code."""
    say(message)
    raise typer.Exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        from cudadoctor import __version__

        print(f"cudadoctor {__version__}")
        raise typer.Exit(ExitCode.OK)


@app.callback()
def cudadoctor(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options that come before the command."""


@app.command(rich_help_panel=DIAGNOSE)
def check(
    python: PythonOption = None,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", help="Judge a machine saved by --format json, or - for standard input."),
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Do not run kernels on the GPU.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Also the slow proofs: a CUDA extension built through torch.")] = False,
    format: FormatOption = ReportFormat.TEXT,
    output: OutputOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    fail_on: GateFailOnOption = None,
    assume: AssumeOption = None,
    require: RequireOption = None,
    policy: PolicyOption = None,
    timeout: TimeoutOption = 30.0,
    node: NodeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Diagnose this machine: probe, judge, run kernels, report."""
    from cudadoctor.commands import check as command

    raise typer.Exit(
        command.run(
            command.CheckOptions(
                python=python,
                snapshot=snapshot,
                prove=command.Prove.NOTHING if no_run else command.Prove.ALL if full else command.Prove.QUICK,
                timeout=timeout,
                node=node,
                output=command.OutputOptions(format.value, output, fail_on.value if fail_on else "", quiet, verbose),
                selection=command.Selection(tuple(select or ()), tuple(ignore or ())),
                assumptions=tuple(assume or ()),
                requirements=",".join(require or ()),
                policy=policy,
            )
        )
    )


@app.command(rich_help_panel=DIAGNOSE)
def preflight(
    gpu: GpuOption = None,
    driver: DriverOption = None,
    root: RootOption = None,
    dockerfile: DockerfileOption = None,
    stage: StageOption = None,
    build_arg: BuildArgOption = None,
    env: ImageVariableOption = None,
    build: BuildOption = False,
    python: PreflightPythonOption = None,
    format: FormatOption = ReportFormat.TEXT,
    output: OutputOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    fail_on: GateFailOnOption = None,
    assume: AssumeOption = None,
    require: RequireOption = None,
    policy: PolicyOption = None,
    timeout: TimeoutOption = 30.0,
    node: NodeOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Say whether what is installed here, or in an image, will run on GPUs that are elsewhere."""
    from cudadoctor.commands import preflight as command

    raise typer.Exit(
        command.run(
            command.PreflightOptions(
                gpus=tuple(gpu or ()),
                driver=driver,
                root=root,
                dockerfile=dockerfile,
                stage=stage,
                build_arguments=tuple(build_arg or ()),
                variables=tuple(env or ()),
                builds=build,
                python=python,
                timeout=timeout,
                node=node,
                output=command.OutputOptions(format.value, output, quiet=quiet, verbosity=verbose),
                fail_on=fail_on.value if fail_on else None,
                selection=command.Selection(tuple(select or ()), tuple(ignore or ())),
                assumptions=tuple(assume or ()),
                requirements=",".join(require or ()),
                policy=policy,
            )
        )
    )


@app.command(rich_help_panel=DIAGNOSE)
def report(
    python: PythonOption = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Do not run kernels on the GPU.")] = False,
    output: OutputOption = None,
    timeout: TimeoutOption = 30.0,
    node: NodeOption = None,
) -> None:
    """Write `check` as Markdown for a ticket: redacted, details folded, readable back by `triage`."""
    from cudadoctor.commands import check as command

    raise typer.Exit(
        command.run(
            command.CheckOptions(
                python=python,
                prove=command.Prove.NOTHING if no_run else command.Prove.QUICK,
                timeout=timeout,
                node=node,
                output=command.OutputOptions("markdown", output),
            )
        )
    )


@app.command(rich_help_panel=DIAGNOSE)
def triage(
    file: Annotated[Path, typer.Argument(metavar="FILE|-", help="The pasted text, or - for standard input.")],
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help='The input is a dump of tickets, {"id": …, "text": …} a line; one result a line.')
    ] = False,
    format: FormatOption = ReportFormat.TEXT,
    output: OutputOption = None,
    select: SelectOption = None,
    ignore: IgnoreOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Diagnose pasted text offline: collect_env, nvidia-smi, tracebacks, logs, what `report` wrote."""
    from cudadoctor.commands import triage as command
    from cudadoctor.commands.output import OutputOptions
    from cudadoctor.diagnosis import Selection

    options = command.TriageOptions(
        file,
        OutputOptions(format.value, output, fail_on.value, quiet, verbose),
        Selection(tuple(select or ()), tuple(ignore or ())),
    )
    raise typer.Exit(command.run_dump(options) if jsonl else command.run(options))


@app.command(rich_help_panel=ASK)
def demo(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which recording; none lists them.")] = None,
    format: FormatOption = ReportFormat.TEXT,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Replay a recorded machine: what `check` and `triage` say, without a GPU. Ends with 0."""
    from cudadoctor.commands import demo as command
    from cudadoctor.commands.output import OutputOptions

    options = command.DemoOptions(name, OutputOptions(format.value, output, "never", quiet, verbose))
    raise typer.Exit(command.run(options))


@app.command(rich_help_panel=ASK)
def scan(
    paths: ScanPaths = None,
    pid: PidOption = None,
    gpu: ScanGpuOption = None,
    driver: DriverOption = None,
    by: ScanDetailOption = ScanDetail.FILE,
    libraries: LibrariesOption = False,
    live: LiveOption = False,
    python: PythonOption = None,
    format: ListFormatOption = ListFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Show which GPUs a binary, wheel, folder, package or process carries code for, without loading it."""
    from cudadoctor.commands import scan as command
    from cudadoctor.commands.output import OutputOptions

    request = command.ScanRequest(
        tuple(paths or ()),
        pid,
        gpu,
        driver,
        by is ScanDetail.MODULE,
        libraries,
        live,
        python,
        OutputOptions(format.value, output),
    )
    raise typer.Exit(command.run(request))


@app.command(rich_help_panel=ASK)
def explain(
    words: Annotated[
        list[str], typer.Argument(metavar="X...", help="Rule name or code, error code or name, `Xid 79`, or error text.")
    ],
) -> None:
    """Explain a rule, an error code or an error text."""
    from cudadoctor.commands.explain import NothingKnownError
    from cudadoctor.commands.explain import explain as explanation
    from cudadoctor.matrices import Matrices

    try:
        print(explanation(" ".join(words), Matrices.load()), end="")
    except NothingKnownError as error:
        fail(ExitCode.USAGE, str(error))


@app.command(rich_help_panel=ASK)
def rules(format: Annotated[ListFormat, typer.Option("--format", help="How to print the list.")] = ListFormat.TEXT) -> None:
    """List all rules, those of installed plugins too."""
    from cudadoctor.commands import rules as listing

    rules = listing.all_rules()
    print(listing.as_json(rules) if format is ListFormat.JSON else listing.as_text(rules), end="")


@app.command(rich_help_panel=ASK)
def matrix(
    name: Annotated[MatrixChoice, typer.Argument(metavar="NAME", help=f"One of: {', '.join(MATRIX_NAMES)}.")],
    query: Annotated[list[str] | None, typer.Argument(metavar="[QUERY...]", help="Words that the rows must have.")] = None,
) -> None:
    """Look into the compatibility data, with sources and dates."""
    from cudadoctor.commands import matrix as command

    raise typer.Exit(command.run(name.value, " ".join(query or ())))


@app.command(rich_help_panel=ASK)
def archs(
    gpu: GpuOption = None,
    style: Annotated[ArchStyleName, typer.Option("--style", help="What the value is for.")] = ArchStyleName.TORCH,
    ptx: Annotated[bool, typer.Option("--ptx", help="Add PTX of the highest architecture, for GPUs that come later.")] = False,
    python: PythonOption = None,
) -> None:
    """Print the architectures to compile for, as TORCH_CUDA_ARCH_LIST, CMake or nvcc want them."""
    from cudadoctor.archs import ArchStyle, PtxChoice
    from cudadoctor.commands import archs as command

    choice = PtxChoice.ALWAYS if ptx else PtxChoice.WHERE_NEEDED
    raise typer.Exit(command.run(command.ArchsOptions(tuple(gpu or ()), ArchStyle(style.value), choice, python)))


@app.command(rich_help_panel=ASK)
def recommend(
    gpu: GpuOption = None,
    driver: DriverOption = None,
    python_version: PythonVersionOption = None,
    platform: PlatformOption = None,
    python: PythonOption = None,
    format: Annotated[ListFormat, typer.Option("--format", help="How to print the advice.")] = ListFormat.TEXT,
) -> None:
    """Print the torch install line that works here, or for the GPU, driver and Python named."""
    from cudadoctor.commands import recommend as command

    options = command.RecommendOptions(tuple(gpu or ()), driver, python_version, platform.value if platform else None)
    raise typer.Exit(command.run(options, python, format.value))


@app.command(rich_help_panel=ASK)
def mcp() -> None:
    """Serve what only reads to language models: MCP on standard input and output."""
    try:
        from cudadoctor.mcp_server import serve
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("anyio", "mcp"):  # what the extra brings
            raise
        fail(ExitCode.USAGE, "`mcp` needs the extra mcp: pip install 'cudadoctor[mcp]', or '.[mcp]' in a checkout")
    serve()


@app.command(rich_help_panel=MANY)
def compare(
    machines: MachinesToCompare,
    format: ListFormatOption = ListFormat.TEXT,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Say what differs between machines and matters: reports, snapshots or pasted texts, the first against the others."""
    from cudadoctor.commands import compare as command
    from cudadoctor.commands.output import OutputOptions

    options = OutputOptions(format.value, output, quiet=quiet, verbosity=verbose)
    raise typer.Exit(command.run(command.CompareOptions(tuple(machines), options)))


fleet = typer.Typer(
    name="fleet",
    cls=Grouped,
    help="Run `check` on every node, and see all reports in one table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(fleet, rich_help_panel=MANY)


@fleet.command("summary")
def fleet_summary(
    paths: ReportPaths,
    nodes: NodesOption = None,
    format: Annotated[FleetFormat, typer.Option("--format", help="How to print the summary.")] = FleetFormat.TEXT,
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Sum up any number of reports: classes of equal nodes, the odd ones first."""
    from cudadoctor.commands import fleet_summary as command
    from cudadoctor.commands.output import OutputOptions

    options = OutputOptions(format.value, output, fail_on.value, quiet, verbose)
    raise typer.Exit(command.run(command.SummaryOptions(tuple(paths), nodes, options)))


@fleet.command("run")
def fleet_run(
    engine: Annotated[EngineName, typer.Argument(help="What runs a command on each node.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the reports go; new, or empty.")],
    engine_options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTION...]", help="Options of srun or ssh, such as -- --partition=gpu.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="LIST|FILE", help="These nodes, as node[01-16]; default: all that Slurm or Ray has."),
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="How cudadoctor is called on a node; default: as here, for ssh by its name.")
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Do not run kernels on the GPUs.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, max=86400, help="Deadline of the check on each node.")
    ] = 30.0,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=1, max=86400, help="How long a node may take to be free and start.")
    ] = 60.0,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", min=1, max=1024, help="Nodes asked side by side.")] = 32,
    format: Annotated[FleetFormat, typer.Option("--format", help="How to print the summary.")] = FleetFormat.TEXT,
    output: OutputOption = None,
    fail_on: FailOnOption = FailOn.ERROR,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
) -> None:
    """Run `check` on every node, keep one report a node, and sum up; a node without a report is named with the reason."""
    from cudadoctor.commands import fleet_run as command_module
    from cudadoctor.commands.output import OutputOptions

    options = command_module.RunOptions(
        engine=command_module.Engine(engine.value),
        folder=folder,
        nodes=nodes,
        command=command,
        run_kernels=not no_run,
        timeout_s=timeout,
        start_s=wait,
        at_once=at_once,
        engine_options=tuple(engine_options or ()),
        output=OutputOptions(format.value, output, fail_on.value, quiet, verbose),
    )
    raise typer.Exit(command_module.run(options))


@app.command(rich_help_panel=MEASURE)
def bench(
    part: Annotated[BenchPart, typer.Argument(metavar="[gemm|attention|memory|all]", help="What to measure.")] = BenchPart.ALL,
    quick: Annotated[bool, typer.Option("--quick", help="Only the best rung of each, in less than ten seconds.")] = False,
    gpu: OrdinalOption = 0,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="OLD.json", help="Say what changed since a saved run, beyond the noise of both."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the roofline with the kernels on it: .svg, .png or .html.")
    ] = None,
    ncu: Annotated[bool, typer.Option("--ncu", help="Also profile the kernels with Nsight Compute.")] = False,
    judge: Annotated[
        Path | None, typer.Option("--judge", metavar="FILE.json", help="Judge a run saved by --format json; measure nothing.")
    ] = None,
    python: PythonOption = None,
    format: ListFormatOption = ListFormat.TEXT,
    output: OutputOption = None,
) -> None:
    """Measure this GPU: is it as fast as it should be, and what holds it back."""
    from cudadoctor.commands import bench as command
    from cudadoctor.commands.output import OutputOptions

    options = command.BenchOptions(part.value, quick, gpu, python, judge, against, plot, ncu, OutputOptions(format.value, output))
    raise typer.Exit(command.run(options))


def run() -> NoReturn:
    """Run the command line; a closed pipe and Ctrl-C end it quietly, a bug with the code that says so."""
    interrupts = remembered_interrupts()
    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()
    except SystemExit:
        if not interrupts:
            raise
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _drop(sys.stdout)
        sys.exit(ExitCode.OK)
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT_FAILS:
            _report_bug(error)
        _drop(sys.stdout)
        _say(f"cudadoctor: cannot write to standard output: {error.strerror}")
        sys.exit(ExitCode.USAGE)
    except KeyboardInterrupt:
        _say("cudadoctor: interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as bug:  # noqa: BLE001  # the last line of defence: a bug of ours ends with its own exit code
        _report_bug(bug)
    sys.exit(ExitCode.OK)


def _report_bug(bug: Exception) -> NoReturn:
    _say(f"cudadoctor: a bug of cudadoctor: {type(bug).__name__}: {bug}\n{_where(bug)}")
    sys.exit(ExitCode.INTERNAL)


def _say(text: str) -> None:
    """Print the text to standard error; where that cannot be written either, the exit code alone has to tell."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _drop(sys.stderr)


def _where(bug: BaseException) -> str:
    """The places in our code that lead to the bug, without values, for the bug report."""
    import traceback

    frames = [frame for frame in traceback.extract_tb(bug.__traceback__) if "cudadoctor" in frame.filename]
    return "\n".join(f"  at {Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in frames)


def _drop(stream: TextIO) -> None:
    from cudadoctor.commands.output import drop

    drop(stream)
