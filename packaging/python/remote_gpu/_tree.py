"""Where the client's tree is: beside this file, as scripts/build-client makes it."""

import os

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client")


def command():
    """The path of the command remote-gpu."""
    return os.path.join(TREE, "bin", "remote-gpu")


def library(name):
    """The path of a library of the client's."""
    return os.path.join(TREE, "lib", "remote-gpu", name)
