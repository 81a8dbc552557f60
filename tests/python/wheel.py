"""The wheels (scripts/build-wheel): built twice, installed by pip into an environment of its own, used by the command, by numba and by
Jupyter's kernel, against a server over TLS; with the extra `soft`, without any other server. numba, ipykernel and nbclient come from
PyPI; status 77 where they cannot.

usage: wheel.py BUILD_FOLDER
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from trial import Build, Failure, Server, free_port, run_program, stop_with_servers  # noqa: E402

SKIPPED = 77
PACKAGES = ["numba-cuda[cu13]==0.30.4", "numba==0.68.1", "ipykernel", "nbclient", "nbformat"]
KERNEL = """
import numpy, numba.cuda as cuda
@cuda.jit
def double(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2
x = numpy.arange(1000, dtype=numpy.float32)
double[8, 128](x)
assert (x == 2 * numpy.arange(1000)).all()
print("doubled on", cuda.get_current_device().name)
"""
CONNECT = "import remote_gpu\nprint(remote_gpu.connect(gpus=1, memory='1G'))\n"
# Cells of a notebook: the second uses the GPU, the third connects otherwise, which is refused.
NOTEBOOK = """
import nbformat, nbclient
cells = %r
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", allow_errors=True).execute()
for cell in notebook.cells:
    for output in cell.outputs:
        print(output.get("text") or "%%s: %%s" %% (output.get("ename"), output.get("evalue")))
"""


def wheel(folder, *options):
    """Builds a wheel, twice the same; its path."""
    paths = []
    for part in ("one", "two"):
        result = run_program([sys.executable, os.path.join(ROOT, "scripts", "build-wheel"), *options, "--output",
                              os.path.join(folder, part)], timeout=3000)
        if result.status != 0:
            raise Failure("no wheel\n" + result.report())
        paths.append(result.output.strip())
    if not filecmp.cmp(*paths, shallow=False):
        raise Failure("the wheel is not the same when it is built again")
    return paths[0]


def install(folder, wheel):
    """An environment with the wheel and what uses it; the path of its Python, or None without PyPI."""
    python = os.path.join(folder, "venv", "bin", "python3")
    subprocess.run([sys.executable, "-m", "venv", "--clear", os.path.join(folder, "venv")], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    subprocess.run([*pip, "--no-index", wheel], check=True)
    return python if subprocess.run([*pip, *PACKAGES], check=False).returncode == 0 else None


def use_soft(folder, python, environment):
    """The extra: nothing of this build is used, and no server runs. What is installed goes away with pip."""
    command = os.path.join(os.path.dirname(python), "remote-gpu")
    lacking = run_program([command, "run", "--local", "--", "true"], environment)
    if lacking.status != 125 or "remote-gpu[soft]" not in lacking.errors:
        raise Failure("nothing says what --local needs\n" + lacking.report())
    wheel(folder, "--soft")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--find-links", os.path.join(folder, "one"), "remote-gpu[soft]"], check=True)
    expect(run_program([command, "run", "--local", "--", python, "-c", KERNEL], environment, timeout=600), "doubled on .*Software GPU")
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "remote-gpu-soft"], check=True)
    if run_program([command, "run", "--local", "--", "true"], environment).status != 125 or run_program(
            [command, "--version"], environment).status != 0:
        raise Failure("the client is not what it was without the extra")


def expect(result, *wanted):
    """Ends the test unless a program ended well and wrote what is wanted."""
    if result.status != 0 or not all(re.search(pattern, result.output) for pattern in wanted):
        raise Failure("not so: %s\n%s" % (", ".join(wanted), result.report()))


def main():
    """Builds, installs and uses it."""
    stop_with_servers()
    build = Build(sys.argv[1])
    build.check()
    folder = os.path.join(build.folder, "wheel")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    client = os.path.join(build.folder, "portable-client")
    subprocess.run([os.path.join(ROOT, "scripts", "build-client"), "--output", client], check=True)
    python = install(folder, wheel(folder, "--tree", client))
    if not python:
        print("skipped: %s cannot be had from PyPI" % ", ".join(PACKAGES))
        return SKIPPED
    environment = {"XDG_CONFIG_HOME": os.path.join(folder, "config"), "IPYTHONDIR": os.path.join(folder, "ipython")}
    command = os.path.join(os.path.dirname(python), "remote-gpu")
    state = os.path.join(folder, "state")
    with Server(build, listen="127.0.0.1:%d" % free_port(), arguments=["--state-dir", state]) as server:
        token = run_program([build.daemon, "token", "--state-dir", state, "--user", "user", "--server", server.address]).output
        token = re.search(r"^rgpu1:\S+$", token, re.MULTILINE).group(0)
        expect(run_program([command, "join", token], environment))
        expect(run_program([command, "run", "--", python, "-c", KERNEL], environment), "doubled on .*Software GPU")
        print("remote-gpu run -- python: ok", flush=True)
        expect(run_program([python, "-c", CONNECT + KERNEL], environment), "Connection to", "doubled on .*Software GPU")
        print("remote_gpu.connect, numba: ok", flush=True)
        cells = [CONNECT, KERNEL, "remote_gpu.connect(gpus=2)", KERNEL]
        result = run_program([python, "-c", NOTEBOOK % cells], environment, timeout=600)
        expect(result, "Connection to", "(?s)doubled on .*Software GPU.*Error: this process is connected.*doubled on .*Software GPU")
        late = run_program([python, "-c", NOTEBOOK % ["import ctypes; ctypes.CDLL(%r)" % os.path.join(build.soft_dir, "libcuda.so.1"),
                                                      CONNECT]], environment, timeout=600)
        expect(late, "Error: CUDA is in use in this process already .*restart the kernel")
        print("remote_gpu.connect in Jupyter's kernel: ok", flush=True)
    use_soft(folder, python, environment)
    print("remote-gpu[soft]: ok", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit("error: %s" % failure)
