"""The build that gpu-check checks: made here, or carried to a machine where nothing can be built or installed.

A folder made by `collect` has the staged tree, examples, benchmark and scripts, and in `libraries` all that they load beside the C
library. On the machine that it is carried to, `use_libraries` has its programs find those of them that the machine lacks, and no
others: what runs beside them there, as Python, PyTorch and nvidia-smi, keeps its own.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

from trial import Build, Failure

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SYSTEM_LIBRARIES = ("ld-linux", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "linux-vdso")
CARRIED = ("scripts/gpu-check", "scripts/gpu_folder.py", "scripts/gpu_report.py", "scripts/trial.py", "tests/gpu/train.py",
           "bench/run", "bench/report.py", "bench/compare", "bench/machine.py", "bench/steps", "bench/steps_report.py", "bench/scale", "bench/scale_report.py")
LEFT = ("soft", "slurm*", "remote-gpu-kube-*", "limits-load")  # of the staged tree, what no check needs
BUILD_LIMIT = 240  # seconds that a build may take
LOG_LINES = 40  # of what a build says that fails
BENCHMARKS = ("forward", "socket_limit", "training", "inference", "queries", "copies", "threads", "startup", "load")


def say(text):
    """Progress, for whoever waits."""
    print("gpu-check: " + text, file=sys.stderr, flush=True)


def ensure_built(folder):
    """Builds all but the software device (which wants LLVM) where the tools are; else what is built must do."""
    wanted = os.path.join(ROOT, "build", "gpu")
    build = Build(folder or wanted)
    can_build = (folder is None and os.path.exists(os.path.join(ROOT, "CMakePresets.json"))
                 and all(shutil.which(tool) for tool in ("cmake", "ninja", "cc")))
    said = make(wanted) if can_build else ""
    try:
        build.check()
    except Failure as failure:
        raise Failure("%s; bring a folder made by `scripts/gpu-check --collect FOLDER` on a machine that can build, "
                      "and name it with --build%s" % (failure, said and "\n" + said))
    return build


def make(wanted):
    """Builds into the folder; the end of what was said, where that fails."""
    path = os.path.join(ROOT, "build", "gpu-check.log")
    say("building (the output goes to %s)" % path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as log:
        for command in (["cmake", "-G", "Ninja", "-S", ROOT, "-B", wanted, "-DRG_TESTS=OFF",
                         "-DRG_COMPONENTS=common;proto;transport;server;client;interpose;examples;bench"],
                        ["cmake", "--build", wanted]):
            try:
                status = subprocess.call(command, cwd=ROOT, stdout=log, stderr=log, timeout=BUILD_LIMIT)
            except subprocess.TimeoutExpired:
                status = 124
            if status != 0:
                say("'%s' failed, see %s" % (" ".join(command), path))
                with open(path, errors="replace") as said:
                    return "".join(said.readlines()[-LOG_LINES:])
    return ""


def needed_libraries(paths):
    """The shared libraries, but for the system's own, that these programs load: name -> path."""
    found = {}
    for line in listed(paths):
        name, arrow, rest = line.partition(" => ")
        if arrow and rest.startswith("/") and not name.startswith(SYSTEM_LIBRARIES):
            found[name] = rest.split(" ")[0]
    return found


def listed(paths):
    """What ldd says of them."""
    listing = subprocess.run(["ldd", *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return [line.strip() for line in listing.stdout.decode(errors="replace").splitlines()]


def collect(build, target):
    """Puts what a check needs into the folder `target`, or an archive of one by the archive's name."""
    build.check()
    name, archive, how = os.path.basename(target).partition(".tar.")
    if archive:
        with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
            copy_into(build, os.path.join(folder, name))
            with tarfile.open(target, "w:" + how) as file:
                file.add(os.path.join(folder, name), name)
    else:
        copy_into(build, target)
    size = sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(target) for name in names)
    say("collected into %s, %.1f MB" % (target, (size if not archive else os.path.getsize(target)) / 1e6))


def strip(paths):
    """Without what only debuggers read, where there is a tool for that."""
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-debug", *paths], stderr=subprocess.DEVNULL, check=False)


def copy_into(build, folder):
    """Copies the build's staged tree (without the software device), examples and benchmark into `folder`."""
    os.makedirs(folder, exist_ok=True)
    for part in ("stage", "examples", "bench", "libraries"):
        shutil.rmtree(os.path.join(folder, part), ignore_errors=True)
    shutil.copytree(build.stage, os.path.join(folder, "stage"), symlinks=True,
                    ignore=shutil.ignore_patterns(*LEFT))
    os.makedirs(os.path.join(folder, "examples"))
    for name in build.examples():
        shutil.copy2(build.example(name), os.path.join(folder, "examples", name))
    if os.path.isdir(build.example("nccl")):
        shutil.copytree(build.example("nccl"), os.path.join(folder, "examples", "nccl"))
    os.makedirs(os.path.join(folder, "bench"))
    for path in bench_programs(build):
        shutil.copy2(path, os.path.join(folder, "bench"))
    os.makedirs(os.path.join(folder, "libraries"))
    for name, path in needed_libraries(all_programs(folder)).items():
        if name not in ("libcuda.so.1", "libnccl.so.2", "libstdc++.so.6", "libgcc_s.so.1"):
            shutil.copy2(path, os.path.join(folder, "libraries", name))
    for path in CARRIED:
        if not os.path.exists(os.path.join(ROOT, path)):
            continue
        os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
        shutil.copy2(os.path.join(ROOT, path), os.path.join(folder, path))
    strip(programs_in(folder))


def bench_programs(build):
    """The benchmark's programs, as far as they are built."""
    folder = os.path.join(build.folder, "bench")
    return [os.path.join(folder, name) for name in BENCHMARKS if os.access(os.path.join(folder, name), os.X_OK)]


# ---- on the machine that the folder was carried to ----

def programs_in(folder):
    """All programs and libraries below a folder."""
    found = []
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    found.append(path)
    return found


def all_programs(folder):
    """Of a folder with a staged tree, examples and benchmark. Examples load nothing of their own, but for NCCL's."""
    return [path for part in ("stage", "examples/nccl", "bench") for path in programs_in(os.path.join(folder, part))]


def lacking(paths):
    """The names of the libraries that these programs do not find, or of which what is found is too old for them."""
    found = set()
    for line in listed(paths):
        name, arrow, rest = line.partition(" => ")
        if arrow and rest.startswith("not found"):
            found.add(name)
        elif ": version `" in line:  # "PROGRAM: LIBRARY: version `…' not found (required by …)"
            found.add(os.path.basename(line.partition(": version `")[0].rpartition(" ")[2]))
    return found


def use_libraries(build):
    """Adds those of the folder's libraries that this machine lacks to LD_LIBRARY_PATH; their names."""
    kept, used = (os.path.join(build.folder, name) for name in ("libraries", "libraries-used"))
    if not os.path.isdir(kept):
        return []
    shutil.rmtree(used, ignore_errors=True)
    os.makedirs(used)
    rest = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = used + (":" + rest if rest else "")
    programs = all_programs(build.folder)
    while True:
        names = [name for name in sorted(lacking(programs))
                 if os.path.exists(os.path.join(kept, name)) and not os.path.exists(os.path.join(used, name))]
        if not names:
            return sorted(os.listdir(used))
        programs = []
        for name in names:
            shutil.copy2(os.path.join(kept, name), os.path.join(used, name))
            programs.append(os.path.join(used, name))
