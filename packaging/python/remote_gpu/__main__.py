"""The command remote-gpu, as `python -m remote_gpu` and as the script that pip installs."""

import os
import sys

from remote_gpu._tree import command


def main():
    """Becomes the command; never returns."""
    path = command()
    try:
        os.execv(path, ["remote-gpu", *sys.argv[1:]])
    except OSError as error:
        sys.exit("remote-gpu: cannot run %s: %s" % (path, error.strerror))


if __name__ == "__main__":
    main()
