"""The command ``mizzen``: replaces this process with the binary of the package."""

import os
import sys
from typing import NoReturn

from .cluster import binary_path


def main() -> NoReturn:
    binary = binary_path()
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
