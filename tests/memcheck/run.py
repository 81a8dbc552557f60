"""Runs programs remotely while somebody watches the client inside of them: no access may be invalid.

usage: run.py BUILD_FOLDER --valgrind|--valgrind-faults|--sanitized PROGRAM…

PROGRAM: a path below the build folder. Each runs twice: at its first start, and with what the client learned of it then, which
is another way through the client. What a program must print is tested elsewhere; here it must end as it does directly.

--valgrind: under valgrind. Whether values were initialised is not asked: programs pass their own padding to kernels, and
copies that must survive bad addresses (common/base/safe_copy.h) go by system calls that valgrind does not see through.
--valgrind-faults: the same for programs that go on after a fault, as they do that touch managed memory: it needs all registers kept.
--sanitized: all is built with the address sanitizer, the program as well; it ends a program where it finds something. What
is still allocated at the end is not asked either: these programs leave objects behind on purpose.
"""

import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server  # noqa: E402

FOUND = 99
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=0"}
WATCHERS = {
    "--valgrind": ["valgrind", "-q", "--undef-value-errors=no", "--num-callers=24", "--error-exitcode=%d" % FOUND],
    "--sanitized": [],
}
WATCHERS["--valgrind-faults"] = WATCHERS["--valgrind"] + ["--vex-iropt-register-updates=allregs-at-each-insn"]


def watch(build, address, watcher, program, cache):
    """Runs a program to its end twice; whether nothing was found."""
    direct = build.run_direct([program], environment=SANITIZER)
    good = True
    for start in ("first", "second"):
        # By the library path: under `remote-gpu run` the command itself would be watched, and the preload comes before the
        # sanitizer's own library.
        result = build.run_by_path(watcher + [program], address,
                                   environment=dict(SANITIZER, REMOTE_GPU_CACHE=cache))
        right = result.status == direct.status and not result.hung and not direct.crashed
        print("%s, %s start: %s" % (os.path.basename(program), start, "nothing found" if right else result.describe()))
        if not right:
            print("directly: %s\n%s" % (direct.describe(), result.report()))
        good = good and right
    return good


def main():
    build = Build(sys.argv[1])
    watcher = WATCHERS[sys.argv[2]]
    if watcher and not shutil.which(watcher[0]):
        print("%s is not installed (scripts/setup installs it)" % watcher[0])
        return 1
    good = True
    with Server(build, tcp=True) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        for name in sys.argv[3:]:
            good = watch(build, server.address, watcher, os.path.join(build.folder, name), cache) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
