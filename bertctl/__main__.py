"""`python -m bertctl`."""

import sys

from bertctl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
