"""Tests of programs as clients of a server: several at once, how they end, what they start, what they load."""

import os
import signal
import sys
import tempfile
import threading

from expected import expect
from trial import Server, run_program, wait_until


def test_two_clients(build):
    """Two programs at once share a server, each with a worker of its own, and get what they would get alone."""
    command = [build.example("host_threads")]
    alone = build.run_direct(command)
    results = [None, None]
    with Server(build) as server:
        def client(index):
            # far enough away that it is there for a while
            results[index] = build.run_remote(command, server.address, environment={"REMOTE_GPU_FILTER": "delay:oneway=50ms"})

        threads = [threading.Thread(target=client, args=(index,)) for index in range(2)]
        threads[0].start()
        expect(wait_until(server.workers, 60), "the first client has no worker", server.log())
        first = server.workers()
        for worker in first:  # it waits until the other is there
            os.kill(worker, signal.SIGSTOP)
        threads[1].start()
        both = wait_until(lambda: len(server.workers()) == 2, 60)
        for worker in first:
            os.kill(worker, signal.SIGCONT)
        for thread in threads:
            thread.join()
        expect(both, "the clients did not have a worker each", server.log())
        expect(wait_until(lambda: not server.workers(), 10), "workers outlive their clients", server.log())
    for result in results:
        expect(result.status == 0 and result.output == alone.output, "a client got something else", alone, result)


def test_exit_status(build):
    """`remote-gpu run` ends as its command does, and as a shell would where there is no command to run."""
    with Server(build) as server:
        for command, status in ((["true"], 0), (["false"], 1), (["sh", "-c", "exit 7"], 7),
                                (["sh", "-c", "exit 125"], 125), (["/no/such/program"], 127),
                                (["/etc/passwd"], 126), ([build.example("errors"), "nonsense"], 2)):
            result = build.run_remote(command, server.address)
            expect(result.status == status, "expected exit status %d" % status, result)
        result = build.run_remote(["sh", "-c", "kill -TERM $$"], server.address)
        expect(result.status in (-signal.SIGTERM, 128 + signal.SIGTERM), "the signal did not come through", result)


def test_streams_apart(build):
    """Standard output is the program's alone, to the byte."""
    with Server(build) as server:
        result = build.run_remote(["sh", "-c", "printf 'no newline'; printf warning >&2"], server.address)
        expect(result.output == "no newline", "something was added to standard output", result)
        expect(result.errors == "warning", "something was added to standard error", result)


def test_local(build):
    """`remote-gpu run --local` brings its own server, and leaves nothing of it behind."""
    mark = "trial-%d" % os.getpid()
    result = run_program([build.command, "run", "--local", "--", build.example("vector_add")],
                         {"REMOTE_GPU_TRIAL": mark})
    direct = build.run_direct([build.example("vector_add")])
    expect(result.status == 0 and result.output == direct.output, "the output differs", direct, result)
    expect(wait_until(lambda: not marked_processes(mark), 10), "processes are left: %s" % marked_processes(mark))


def marked_processes(mark):
    """The process ids of all processes that inherited the mark in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/environ" % entry, "rb") as file:
                    if ("REMOTE_GPU_TRIAL=%s" % mark).encode() in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                pass
    return found


OPEN_BY_NAMES = """
import ctypes, sys
handles = set()
for name in sys.argv[1:]:
    library = ctypes.CDLL(name)
    handles.add(library._handle)
    count = ctypes.c_int()
    print(library.cuInit(0), library.cuDeviceGetCount(ctypes.byref(count)), count.value)
print(len(handles), "object")
"""


def test_library_names(build):
    """The library is one object under all the names that programs open: libcuda.so.1, libcuda.so, a path."""
    with tempfile.TemporaryDirectory() as folder, Server(build) as server:
        for library in (build.lib_dir, build.soft_dir):
            link = os.path.join(folder, os.path.basename(library))
            os.symlink(os.path.join(library, "libcuda.so.1"), link)
            command = [sys.executable, "-c", OPEN_BY_NAMES, "libcuda.so.1", "libcuda.so", link]
            if library == build.soft_dir:
                results = [build.run_direct(command)]
            else:
                results = [build.run_remote(command, server.address), build.run_by_path(command, server.address)]
            for result in results:
                expect(result.output == "0 0 1\n" * 3 + "1 object\n", "a name does not lead to the library", result)


def faults_of_system_calls():
    """Whether this process may have userfaultfd with faults of the kernel's own."""
    if os.geteuid() == 0 or os.access("/dev/userfaultfd", os.R_OK | os.W_OK):
        return True
    try:
        with open("/proc/sys/vm/unprivileged_userfaultfd", encoding="ascii") as setting:
            return setting.read().strip() == "1"
    except OSError:
        return False


def test_system_calls(build):
    """read, write and stdio on memory that the device holds, and threads that block all signals."""
    if not faults_of_system_calls():
        print("left out: userfaultfd is not to be had here")
        return
    command = [build.example("unified_memory"), "calls"]
    direct = build.run_direct(command)
    with Server(build) as server:
        for environment in ({}, {"REMOTE_GPU_OPT": "-all"}, {"REMOTE_GPU_FILTER": "delay:oneway=1ms"}):
            result = build.run_remote(command, server.address, environment=environment)
            expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


def test_fork(build):
    """A program that starts others after CUDA is up keeps its session; the others have theirs."""
    with Server(build) as server, tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "script")
        with open(script, "w") as file:
            file.write("#!/bin/sh\n%s && %s 5000 && echo both\n" % (build.example("vector_add"),
                                                                  build.example("histogram")))
        os.chmod(script, 0o755)
        result = build.run_remote([script], server.address)
        expect(result.status == 0 and result.output.endswith("both\n"), "a program of the script failed", result)
