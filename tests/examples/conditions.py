"""Tests of what programs are started by, and with: debuggers and tracers, other allocators, other times and limits, other rights."""

import shutil
import subprocess

from expected import expect
from trial import Server, run_program

PROGRAMS = ("vector_add", "host_threads", "managed_memory")

# Its own messages would come into the midst of the program's lines.
GDB = ["gdb", "-q", "-nx", "-batch", "-ex", "set confirm off", "-ex", "set print thread-events off", "-ex", "set print inferior-events off"]

# What stands before a program's name; the tools among them may be missing.
STARTED_BY = {
    "timeout": ["timeout", "100"],
    "nohup": ["nohup"],
    "setsid": ["setsid", "--wait"],
    "nice": ["nice", "-n", "5"],
    "stdbuf": ["stdbuf", "-o0"],
    "a pipe": ["sh", "-c", '"$@" | cat', "sh"],
    "a subshell in the background": ["sh", "-c", '"$@" & wait $!', "sh"],
    "one processor": ["taskset", "-c", "0"],
    "batch scheduling": ["chrt", "--batch", "0"],
    "strace": ["strace", "-f", "-qq", "-o", "/dev/null"],
    "strace of descendants by ptrace": ["strace", "-f", "-D", "-qq", "-e", "trace=process", "-o", "/dev/null"],
    "gdb": GDB + ["-ex", "run", "-ex", "quit", "--args"],
    "gdb that lets all processes run": GDB + ["-ex", "set schedule-multiple on", "-ex", "run", "-ex", "quit", "--args"],
    "no capabilities": ["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
    "no new privileges": ["setpriv", "--no-new-privs"],
    "no locked memory": ["prlimit", "--memlock=0"],
    "little stacks": ["prlimit", "--stack=65536:65536"],
    "few files": ["prlimit", "--nofile=64"],
    "some processor time": ["prlimit", "--cpu=100"],
    "a network of its own": ["unshare", "-n"],
    "no addresses at random": ["setarch", "-R"],
    "legacy addresses": ["setarch", "-L"],
}

# Further libraries, and variables of the C library.
WITH = {
    "poisoned memory": {"MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"},
    "one arena": {"MALLOC_ARENA_MAX": "1"},
    "no mapped memory": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TOP_PAD_": "0"},
    "no thread cache": {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0:glibc.malloc.hugetlb=1:glibc.pthread.rseq=0"},
    "little of the processor": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX512F,-ERMS,-FSRM:glibc.pthread.stack_cache_size=0"},
    "bound at the start": {"LD_BIND_NOW": "1"},
    "elsewhere": {"TZ": "Pacific/Kiritimati", "LC_ALL": "C.UTF-8", "LANG": "xx_YY.nonsense"},
    "without a home": {"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "", "TMPDIR": "/nonexistent"},
    "much in the environment": {"LONG_%d" % i: "x" * 100000 for i in range(8)},
}

PRELOADED = ("libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2", "libeatmydata.so.1", "libSegFault.so")


def lacks(result, usual):
    """Whether a line is missing that the program prints; what a debugger adds may be anything."""
    lines = result.output.splitlines()
    return any(line not in lines for line in usual.output.splitlines())


def differ(direct, remote, usual):
    """Whether a run is another than the direct one by the same words."""
    return remote.hung or direct.status != remote.status or lacks(remote, usual) or "remote-gpu:" in remote.errors


def compare(build, server, prefix, environment, usual):
    """Every program directly, and by `remote-gpu run` that starts the words or is started by them; what differs."""
    found = []
    for program, plain in usual.items():
        command = [build.example(program)]
        direct = build.run_direct([*prefix, *command], environment=environment)
        remote = [build.run_remote([*prefix, *command], server.address, environment=environment)]
        if prefix:
            remote.append(run_program([*prefix, build.command, "run", "-s", server.address, "--", *command], environment))
        found += [result for result in remote if differ(direct, result, plain)]
        if lacks(direct, plain):
            found.append(direct)
    return found


def compare_all(build, conditions):
    """The same under each of the conditions, which are words and variables by their name."""
    failed = []
    usual = {program: build.run_direct([build.example(program)]) for program in PROGRAMS}
    with Server(build) as server:
        for name, (prefix, environment) in conditions.items():
            found = compare(build, server, prefix, environment, usual)
            print("%s: %s" % (name, "the same" if not found else "FAILED"), flush=True)
            failed += ["--- %s" % name, *found] if found else []
    expect(not failed, *failed)


def can_be(prefix):
    """Whether the tool is there and may do that here."""
    return bool(shutil.which(prefix[0])) and subprocess.run([*prefix, "/bin/true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                                            stderr=subprocess.DEVNULL, check=False).returncode == 0


def test_started_by(build):
    """Programs run by another, as by a debugger, print remotely what they print directly."""
    there = {name: (prefix, {}) for name, prefix in STARTED_BY.items() if can_be(prefix)}
    print("left out: %s" % ", ".join(set(STARTED_BY) - set(there)))
    compare_all(build, there)


def is_there(library):
    """Whether the linker finds a library that is to be preloaded."""
    return not subprocess.run(["/bin/true"], env={"LD_PRELOAD": library}, stderr=subprocess.PIPE, check=False).stderr


def test_variables_of_libraries(build):
    """Programs with other allocators and settings of the C library print remotely what they print directly."""
    preloaded = {library: {"LD_PRELOAD": library} for library in PRELOADED if is_there(library)}
    compare_all(build, {name: ([], environment) for name, environment in {**WITH, **preloaded}.items()})
