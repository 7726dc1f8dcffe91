"""One module a command: options in, report out, exit code returned. Judging and rendering happen elsewhere."""
