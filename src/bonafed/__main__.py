"""`python -m bonafed` is the command `bonafed`."""

from bonafed.cli import main

if __name__ == "__main__":  # processes that compute cells import this module too
    main()
