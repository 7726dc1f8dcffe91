"""`matrix`: look into the compatibility data, with the source and date of every row."""

from __future__ import annotations

from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.listing import MatrixName, as_of, lines, title_of
from cudadoctor.saying import say


def run(name: str, query: str) -> ExitCode:
    """Print the rows in which all words of the query occur."""
    matrices = Matrices.load()
    matrix = MatrixName(name)
    rows = lines(matrices, matrix, query)
    if not rows:
        say(f"no row of {name} has all of {query!r}")
        return ExitCode.PROBLEMS
    print(f"{title_of(matrices, matrix)} (state of {as_of(matrices, matrix)})")
    table = ""
    for row in rows:
        if row.table != table:
            table = row.table
            print(f"\n{table}")
        print(f"  {row.text}")
        print(f"    source: {row.origin.source} ({row.origin.as_of}, {row.origin.verified.value})")
    return ExitCode.OK
