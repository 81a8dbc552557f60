"""What the benchmark's commands share: the machine, the build, processes on some cores, files that appear complete."""

import contextlib
import datetime
import os
import platform
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "scripts")]

from trial import Failure, prepend, run_program  # noqa: E402

# A folder made by `scripts/gpu-check --collect` is its own build.
DEFAULT_BUILD = ROOT if os.path.isdir(os.path.join(ROOT, "stage")) else os.path.join(ROOT, "build", "release")


def say(text):
    """Progress, for whoever waits."""
    print("bench: " + text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def on_cpus(cpus):
    """What is started inside runs on these cores only; None: on all."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def halves():
    """The cores for the client's process and for the server, or None with only one core."""
    cpus = sorted(os.sched_getaffinity(0))
    middle = len(cpus) // 2
    return (cpus[:middle], cpus[middle:]) if middle else None


def read_samples(text):
    """The lines of a measuring program: name -> (unit, samples)."""
    found = {}
    for line in text.splitlines():
        name, unit, *values = line.split()
        if values:
            found[name] = (unit, [float(value) for value in values])
    return found


def resident(pid):
    """Resident memory of a process in bytes, pages of files included."""
    with open("/proc/%d/smaps_rollup" % pid) as file:
        for line in file:
            if line.startswith("Rss:"):
                return int(line.split()[1]) * 1024
    raise Failure("no Rss in smaps_rollup of process %d" % pid)


def cpu_name():
    """The processor's name."""
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def commit():
    """The source's commit, '+' behind it if files differ; 'unknown' outside a repository."""
    try:
        commit_id = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, check=True).stdout.decode().strip()
        changed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "-uno"], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, check=True).stdout
        return commit_id + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def build_type(folder):
    """CMAKE_BUILD_TYPE, with sanitizers if there are any; a warning where it is not what users get."""
    cache = {}
    try:
        with open(os.path.join(folder, "CMakeCache.txt")) as file:
            for line in file:
                name, equals, value = line.strip().partition("=")
                if equals:
                    cache[name.partition(":")[0]] = value
    except OSError:
        return "unknown"
    kind = cache.get("CMAKE_BUILD_TYPE", "unknown")
    if kind not in ("RelWithDebInfo", "Release") or cache.get("RG_SANITIZE"):
        say("warning: this is not a release build; its times mean nothing")
    return kind + ("+" + cache["RG_SANITIZE"] if cache.get("RG_SANITIZE") else "")


def write_whole(path, text):
    """Writes a file that appears complete."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)))
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)


def version(build):
    """The version of what is measured."""
    words = run_program([build.command, "version"]).output.split()
    return next((word.rstrip(",") for word in words if word[:1].isdigit()), "unknown")


def circumstances(build, load):
    """What every result holds of when, what and where; `load`: the machine's before the run."""
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds"), "version": version(build),
            "commit": commit(), "build": build_type(build.folder),
            "machine": {"host": platform.node(), "cpu": cpu_name(), "cores": len(os.sched_getaffinity(0)),
                        "kernel": platform.release(), "load": load}}


def load_before():
    """The machine's load before the run; says so if it is busy."""
    load = os.getloadavg()[0]
    if load > len(os.sched_getaffinity(0)) / 2:
        say("warning: this machine is busy (load %.1f): times will scatter" % load)
    return load


def driver_environment(build, driver, probe):
    """The environment in which a program finds the driver that the server loads; `probe`: a command that needs one."""
    if driver == "auto":
        driver = "soft" if run_program(probe, timeout=60).status != 0 else ""
    if driver == "":
        return {}
    if driver == "soft":
        if not os.path.exists(os.path.join(build.soft_dir, "libcuda.so.1")):
            raise Failure("the software device is not built in %s" % build.folder)
        return {"LD_LIBRARY_PATH": prepend(build.soft_dir)}
    if os.path.basename(driver) != "libcuda.so.1" or not os.path.exists(driver):
        raise Failure("--driver is 'auto', 'soft' or the path of a libcuda.so.1, not '%s'" % driver)
    return {"LD_LIBRARY_PATH": prepend(os.path.dirname(os.path.abspath(driver)))}


def write_between_marks(path, command, text):
    """Replaces what `command` has put into a Markdown file before."""
    begin_mark, end_mark = ("<!-- generated by %s --markdown: %s -->\n" % (command, word) for word in ("begin", "end"))
    with open(path) as file:
        whole = file.read()
    begin, end = whole.find(begin_mark), whole.find(end_mark)
    if begin < 0 or end < begin:
        raise Failure("%s has no marks of %s to put the tables between" % (path, command))
    write_whole(path, whole[:begin + len(begin_mark)] + "\n" + text + "\n" + whole[end:])
