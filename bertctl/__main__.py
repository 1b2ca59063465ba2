"""`python -m bertctl`."""

from bertctl.cli.main import entry

if __name__ == "__main__":
    entry()
