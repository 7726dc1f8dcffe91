"""What the `cudadoctor` script of an installation does; in a folder of its own, as its folder comes first on sys.path."""

from cudadoctor.__main__ import main

main()
