"""Puts the stand-in libraries into the process that runs already.

What `remote-gpu run` would set in the environment of a command is asked of the command itself, so that servers are checked,
GPUs of a pool are leased, and everything is refused in the same words. Then the libraries are opened under the names that the CUDA
runtime looks for, and whatever opens libcuda.so.1 later in this process finds them.
"""

import atexit
import ctypes
import os
import subprocess
import sys
import tempfile

from remote_gpu._tree import command, library

# What the command starts: it tells its environment, and where that has a lease of a pool it stays until this process ends, since the
# command holds the lease for as long as that. The end of what is told is marked: the command's end of the pipe stays open, too.
_END = b"\0\0"
_TELL = """
import os, sys
sys.stdout.buffer.write(b"\\0".join(name + b"=" + value for name, value in os.environb.items()) + b"\\0\\0")
sys.stdout.flush()
if "REMOTE_GPU_LEASE" in os.environ:
    sys.stdin.read()
"""
_STANDINS = ("libcuda.so.1", "libnvidia-ml.so.1", "nccl/libnccl.so.2")  # as far as the command wants them preloaded

_connection = None


class Error(RuntimeError):
    """Why this process could not be connected."""


class Connection:
    """What this process is connected to: `server` as it was found, `options` as they were given to the command."""

    def __init__(self, server, options, process):
        self.server = server
        self.options = options
        self._process = process  # holds the lease of a pool; else it has ended

    def __repr__(self):
        return "<remote_gpu.Connection to %s>" % self.server

    def _end(self):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            pass  # it gives its lease back when it is done


def connect(server=None, gpus=None, memory=None, options=()):
    """Lets this process use GPUs of `server`; must come before its first CUDA call. Returns a Connection.

    server   "HOST", "HOST:PORT", several with commas between them, or "unix:/PATH"; by default the one that was joined
    gpus     how many; by default all that the server has, or one of a pool's
    memory   of each GPU, kept for this process: bytes, or text like "8G"
    options  more of what `remote-gpu run` takes: ["--wait-for=10m", "--exclusive"]

    The same again returns the same Connection; anything else once there is one raises Error, as does a process that has used CUDA
    already: restart it (in a notebook: the kernel), and connect first. Processes started later are connected as well.
    """
    global _connection
    words = _words(server, gpus, memory, options)
    if _connection:
        if _connection.options == words:
            return _connection
        raise Error("this process is connected to %s already; to change that, start it anew (in a notebook: restart the kernel)"
                    % _connection.server)
    _expect_unused()
    environment, process = _ask_command(words)
    _apply(environment)
    preloaded = {os.path.basename(path) for path in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":")}
    for name in (name for name in _STANDINS if os.path.basename(name) in preloaded):
        ctypes.CDLL(library(name), mode=ctypes.RTLD_GLOBAL)
    _connection = Connection(os.environ.get("REMOTE_GPU_SERVER", ""), words, process)
    atexit.register(_connection._end)
    return _connection


def _words(server, gpus, memory, options):
    """The command's options."""
    if isinstance(options, str):
        raise TypeError('options is a list of words, like ["--exclusive"]')
    words = ["-s", str(server)] if server is not None else []
    words += ["-n", str(int(gpus))] if gpus is not None else []
    words += ["-m", str(memory)] if memory is not None else []
    return words + [str(word) for word in options]


def _expect_unused():
    """Raises Error where a driver, or a client that has made a session already, is in this process."""
    ours = {os.path.realpath(library(name)) for name in _STANDINS}
    client = os.path.realpath(library("client.so"))
    with open("/proc/self/maps") as maps:
        paths = {line.rstrip("\n").split(None, 5)[5] for line in maps if line.count("/")}
    for path in sorted(paths):
        name = os.path.basename(path)
        if path == client or (name.startswith(("libcuda.so", "libnvidia-ml.so")) and os.path.realpath(path) not in ours):
            raise Error("CUDA is in use in this process already (%s is loaded): call remote_gpu.connect before anything that uses "
                        "a GPU, in a process started anew (in a notebook: restart the kernel)" % path)


def _ask_command(words):
    """The environment that the command gives to a program, and the process that holds it."""
    with tempfile.TemporaryFile() as messages:
        # In a session of its own, since an interrupt of a notebook's cell is none of a lease's.
        process = subprocess.Popen([command(), "run", *words, "--", sys.executable or "python3", "-I", "-S", "-c", _TELL],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, start_new_session=True)
        told = _read_until_end(process.stdout)
        if not told:
            process.stdin.close()
            process.wait()
        messages.seek(0)
        said = messages.read().decode(errors="replace")
    if told:
        sys.stderr.write(said)
        return dict(entry.split(b"=", 1) for entry in told.split(b"\0")), process
    lines = [line.replace("remote-gpu: ", "", 1) for line in said.splitlines() if line.strip()]
    raise Error("\n".join(lines) or "remote-gpu run ended with status %d" % process.returncode)


def _read_until_end(stream):
    """What comes before the mark; empty where that never comes."""
    told = b""
    while not told.endswith(_END):
        more = os.read(stream.fileno(), 65536)
        if not more:
            return b""
        told += more
    return told[:-len(_END)]


def _apply(environment):
    """Takes over what the command has set."""
    for name in [name for name in os.environb if name.startswith(b"REMOTE_GPU_") and name not in environment]:
        del os.environb[name]
    for name, value in environment.items():
        if name.startswith(b"REMOTE_GPU_") or name in (b"LD_PRELOAD", b"LD_LIBRARY_PATH"):
            os.environb[name] = value
