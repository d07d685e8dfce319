"""`python -m bonafed` is the command `bonafed`."""

from bonafed.cli import main

main()
