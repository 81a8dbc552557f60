"""Python's classes of the messages that a .proto file has."""

import importlib
import os
import subprocess
import sys


def load(folder, protos):
    """Makes them in `folder`: one module for each of {file name: text}, in that order."""
    for name, text in protos.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I" + folder, "--python_out=" + folder, *protos], check=True)
    sys.path.insert(0, folder)
    return tuple(importlib.import_module(name.replace(".proto", "_pb2")) for name in protos)
