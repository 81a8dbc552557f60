"""Runs programs against the software device and against servers: what the demo, the tests and gpu-check share.

A Build names a build folder's staged tree and examples. A Server is a running remote-gpud with its own socket; it
is stopped when its `with` block ends, however that ends. Programs run by one of the Build's ways (directly on the
software device, under `remote-gpu run`, or with LD_LIBRARY_PATH alone) and give back a Result, never an exception;
a program that outlasts its time is killed with all its children and counts as hung.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time


KILLED_S = 30  # by then a process that was killed has ended, unless it cannot be
READY_S = 120  # by then a server is ready, on a machine that is busy with other things as well


class Failure(Exception):
    """Something that makes a trial impossible or failed, in words for the user."""


def expect(condition, *what):
    """Fails with these words, and the whole story of each run among them, unless the condition holds."""
    if not condition:
        raise Failure("\n".join(map(str, what)))


def stop_with_servers():
    """Makes SIGTERM and SIGHUP end this program as an exit does, so that servers it started end with it."""

    def leave(number, _):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def stop_at_once(process, patience):
    """Ends a server that a test started, and its sessions with it: told twice, it does not wait for them."""
    if process.poll() is None:
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Result:
    """What one run of a program gave."""

    def __init__(self, command, status, output, errors, seconds, hung, stats=None):
        self.command = command
        self.status = status
        self.output = output
        self.errors = errors
        self.seconds = seconds
        self.hung = hung
        self.stats = stats or {}

    @property
    def crashed(self):
        """Ended by a signal, its own or as a shell reports it."""
        return not self.hung and (self.status < 0 or self.status > 128)

    def describe(self):
        """The end of the run in a few words."""
        if self.hung:
            return "no end after %.0f s" % self.seconds
        if self.status < 0:
            return "killed by %s" % signal.Signals(-self.status).name
        return "exit status %d" % self.status

    def report(self):
        """All there is to know, for a failed test's log."""
        return "$ %s\n%s (%.1f s)\n--- stdout\n%s--- stderr\n%s---" % (
            " ".join(self.command), self.describe(), self.seconds, self.output, self.errors)

    __str__ = report


def without_progress(errors):
    """Standard error without the lines that a slow machine alone brings about: that a kernel is still being compiled."""
    return "".join(line for line in errors.splitlines(True) if "still compiling kernel '" not in line)


def run_program(command, environment=None, timeout=120, while_running=None, patience=0):
    """
    Runs `command` to its end; `while_running(process)` is called once it has started. One that outlasts its time is told so by
    SIGTERM, where `patience` is not 0, and killed after so many seconds more.
    """
    full = dict(os.environ)
    full.update(environment or {})
    started = time.monotonic()
    hung = False
    try:
        process = subprocess.Popen(command, env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        raise Failure("%s cannot be started: %s" % (command[0], error.strerror))
    try:
        if while_running:
            while_running(process)
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        hung = True
        output, errors = end_hung(process, patience)
    finally:
        end_group(process.pid)
    return Result(command, process.returncode, output.decode(errors="replace"),
                  without_progress(errors.decode(errors="replace")), time.monotonic() - started, hung)


def end_hung(process, patience):
    """Ends a program that took too long, and reads what it has written. One that a driver holds in the kernel cannot be killed."""
    if patience:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=patience)
    end_group(process.pid)
    try:
        return process.communicate(timeout=KILLED_S)
    except subprocess.TimeoutExpired:
        for stream in (process.stdout, process.stderr):
            stream.close()
        return b"", b"it could not be killed\n"


def call(*words, timeout=1800, **options):
    """A tool that must succeed: what it wrote, on either output."""
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                            timeout=timeout, check=False, **options)
    if result.returncode != 0:
        raise Failure("%s failed (%d):\n%s" % (" ".join(words), result.returncode, result.stdout))
    return result.stdout


def end_group(leader):
    """Kills what is left of the process group that a program of ours led."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def wait_until(condition, seconds=10, step=0.02):
    """Waits until `condition()` is true; whether it became so in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True


def hold(pid):
    """Stops a process, and returns when it stands still: all its threads do (a signal takes its time on a busy machine)."""
    os.kill(pid, signal.SIGSTOP)
    if not wait_until(lambda: set(thread_states(pid)) <= {"T"}):
        raise RuntimeError("process %d does not stop" % pid)


def thread_states(pid):
    """One letter each (proc(5)) of a process's threads; of those that have just ended none."""
    states = []
    for thread in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/stat" % (pid, thread), errors="replace") as file:
                states.append(file.read().rpartition(")")[2].split()[0])
        except OSError:
            pass
    return states


def workers_of(pid):
    """The process ids of a server's workers. A child with its parent's name is none yet: it has not become a program of its own."""
    return [child for child in children_of(pid) if name_of(child) not in ("frontend", "accountant", name_of(pid))]


def name_of(pid):
    """The name of a process's program; "" once it has gone."""
    try:
        with open("/proc/%d/comm" % pid, errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def children_of(pid, name=None):
    """The process ids of a process's children, or of those called so; zombies are none of them."""
    return [child for child, state, called in all_children_of(pid) if state != "Z" and name in (None, called)]


def all_children_of(pid):
    """Process id, state and name of each child of a process, zombies included."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError), open("/proc/%s/stat" % entry, errors="replace") as file:
            # The name, in parentheses, may hold anything; the parent is the second field behind it. A process whose
            # first thread has ended is a zombie, but has its files until the others (the 18th field) have, too.
            head, _, rest = file.read().rpartition(")")
            fields = rest.split()
            if int(fields[1]) == pid:
                state = "S" if fields[0] == "Z" and int(fields[17]) > 1 else fields[0]
                found.append((int(entry), state, head.partition("(")[2]))
    return found


class Build:
    """A build folder: the staged tree, the examples, and the ways to run a program."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.stage = os.path.join(self.folder, "stage")
        self.lib_dir = os.path.join(self.stage, "lib", "remote-gpu")
        self.soft_dir = os.path.join(self.lib_dir, "soft")
        self.example_dir = os.path.join(self.folder, "examples")
        self.command = os.path.join(self.stage, "bin", "remote-gpu")
        self.daemon = os.path.join(self.stage, "bin", "remote-gpud")
        # The software device keeps what it compiles for our programs here, not in the user's cache.
        os.environ.setdefault("SOFTGPU_CACHE", os.path.join(self.folder, "soft-cache"))
        # Servers keep images there; what clients learn would make one run unlike the next.
        os.environ.setdefault("REMOTE_GPU_CACHE", "off")
        # Neither the settings nor the credentials of whoever runs this are any part of a trial.
        os.environ.setdefault("XDG_CONFIG_HOME", os.path.join(self.folder, "no-settings"))
        os.environ.setdefault("REMOTE_GPU_IMAGE_CACHE", os.path.join(self.folder, "image-cache"))

    def check(self):
        """Fails unless the programs are built."""
        for path in (self.command, self.daemon):
            if not os.access(path, os.X_OK):
                raise Failure("%s is not built" % path)

    def examples(self):
        """The names of the examples that were built."""
        if not os.path.isdir(self.example_dir):
            return []
        return sorted(name for name in os.listdir(self.example_dir)
                      if os.path.isfile(os.path.join(self.example_dir, name))
                      and os.access(os.path.join(self.example_dir, name), os.X_OK) and "." not in name)

    def example(self, name):
        """The path of an example."""
        return os.path.join(self.example_dir, name)

    def run_direct(self, command, driver_dir=None, environment=None, **options):
        """Runs a program on the software device itself, or on the driver in `driver_dir` ('' for the system's)."""
        directory = self.soft_dir if driver_dir is None else driver_dir
        environment = dict(environment or {})
        if directory:
            environment["LD_LIBRARY_PATH"] = prepend(directory)
        return run_program(command, environment, **options)

    def run_remote(self, command, address, arguments=(), environment=None, **options):
        """Runs a program under `remote-gpu run`, and reads the statistics that it leaves."""
        handle, stats_path = tempfile.mkstemp(prefix="remote-gpu-stats-")
        os.close(handle)
        try:
            result = run_program([self.command, "run", "-s", address, "--stats=" + stats_path, *arguments, "--",
                                  *command], environment, **options)
            result.stats = read_stats(stats_path)
        finally:
            os.unlink(stats_path)
        return result

    def run_by_path(self, command, address, environment=None, **options):
        """Runs a program remotely with LD_LIBRARY_PATH alone: without the command and without a preload."""
        environment = dict(environment or {})
        environment["LD_LIBRARY_PATH"] = prepend(self.lib_dir)
        environment["REMOTE_GPU_SERVER"] = address
        return run_program(command, environment, **options)


def prepend(directory):
    """LD_LIBRARY_PATH with `directory` in front."""
    rest = os.environ.get("LD_LIBRARY_PATH")
    return directory + (":" + rest if rest else "")


def read_stats(path):
    """The sums of the statistics that the processes of a run left, one JSON object a line; lists one behind the other."""
    total = {}
    with open(path) as file:
        for line in file:
            try:
                for key, value in json.loads(line).items():
                    if key != "pid" and isinstance(value, (int, float)) and not isinstance(value, bool):
                        total[key] = total.get(key, 0) + value
                    elif isinstance(value, list):
                        total.setdefault(key, []).extend(value)
            except (ValueError, AttributeError):
                raise Failure("the statistics hold a line that is no JSON object: %r" % line)
    return total


class Server:
    """
    A remote-gpud of our own on a private unix socket, a free port of the loopback interface, or at `listen`. `prefix`: words that
    run it elsewhere, and become it.
    """

    def __init__(self, build, driver="soft", tcp=False, arguments=(), environment=None, listen=None, prefix=()):
        self.build = build
        self.folder = tempfile.mkdtemp(prefix="remote-gpu-")
        self.address = listen or ("127.0.0.1:0" if tcp else "unix:" + os.path.join(self.folder, "socket"))
        self.log_path = os.path.join(self.folder, "log")
        self.ready_path = os.path.join(self.folder, "ready")
        self.command = [*prefix, build.daemon, "--listen", self.address, "--driver", driver, "--ready-file", self.ready_path,
                        *arguments]
        self.environment = environment
        self.process = None
        self.stopped = False
        self.log_text = ""

    def __enter__(self):
        full = dict(os.environ)
        full["STATE_DIRECTORY"] = os.path.join(self.folder, "state")  # that of this machine's own server is no part of a trial
        full.update(self.environment or {})
        try:
            with open(self.log_path, "wb") as log:
                self.process = subprocess.Popen(self.command, env=full, stdin=subprocess.DEVNULL,
                                                stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
        except OSError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Failure("%s cannot be started: %s" % (self.command[0], error.strerror))
        if not wait_until(lambda: self.process.poll() is not None or os.path.exists(self.ready_path), READY_S):
            self.__exit__()
            raise Failure("the server is not ready after %d s:\n%s" % (READY_S, self.log_text))
        if self.process.poll() is not None:
            self.__exit__()
            raise Failure("the server ended at once, with status %d:\n%s" % (self.process.returncode, self.log_text))
        with open(self.ready_path) as file:
            # The address as it came out: the port that was free.
            self.address = file.readline().strip()
        return self

    def __exit__(self, *_):
        self.stop()
        self.log_text = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        """What the server and its workers have written so far."""
        try:
            with open(self.log_path, errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def workers(self):
        """The process ids of the server's workers."""
        return workers_of(self.process.pid)

    def worker_of(self, session):
        """The process id of a session's worker, by its number in the log; None before it is said there."""
        said = re.search(r"session %d starts: .* worker (\d+):" % session, self.log())
        return int(said.group(1)) if said else None

    def stop(self, patience=15):
        """Ends the server as a service manager would; kills what is left. Returns its exit status."""
        if self.stopped:
            return self.process.returncode
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                pass
        self.kill()
        return self.process.returncode

    def kill(self):
        """Ends the server and its workers at once, without any chance to say good-bye."""
        self.stopped = True
        end_group(self.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(KILLED_S)


def optimisations(build, address):
    """The names of `remote-gpu run --opt`, as it tells them itself where it is given another one."""
    result = build.run_remote(["true"], address, environment={"REMOTE_GPU_OPT": "-nonsense"})
    _, told, names = result.errors.partition("(there are: all, ")
    if result.status != 125 or not told:
        raise Failure("the client does not say which optimisations there are\n" + result.report())
    return names.partition(";")[0].split(", ")


def run_case(cases, prepare):
    """For programs `run.py BUILD_FOLDER NAME`: calls cases["case_NAME"] with what `prepare(build, stack)` makes of both.

    What is entered on the stack (contextlib.ExitStack) ends with the case; a Failure ends the program with its words.
    """
    stop_with_servers()
    build = Build(sys.argv[1])
    case = cases["case_" + sys.argv[2].replace("-", "_")]
    try:
        build.check()
        with contextlib.ExitStack() as stack:
            case(prepare(build, stack))
    except Failure as failure:
        sys.exit("error: %s" % failure)
    print("%s: ok" % sys.argv[2])


def interpreter_with(package):
    """
    The first interpreter of REMOTE_GPU_TEST_PYTHON (separated by colons; by default the one that runs this) that finds the package, or
    None. Nothing of the package runs.
    """
    for python in os.environ.get("REMOTE_GPU_TEST_PYTHON", sys.executable).split(":"):
        look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
        try:
            if subprocess.run([python, "-c", look, package], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return python
        except OSError as error:
            print("%s: %s" % (python, error))
    return None


def free_port():
    """A TCP port of the loopback interface that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bytes_text(count):
    """A number of bytes as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return "%d B" % count if unit == "B" else "%.1f %s" % (count, unit)
        count /= 1000
    return ""
