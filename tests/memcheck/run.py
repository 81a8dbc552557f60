"""Runs programs remotely under valgrind, which watches the client inside of them: no access may be invalid.

usage: run.py BUILD_FOLDER PROGRAM…

PROGRAM: a path below the build folder. Each runs twice: at its first start, and with what the client learned of it then, which
is another way through the client. What a program must print is tested elsewhere; here it must end as it does directly.

Whether values were initialised is not asked: programs pass their own padding to kernels, and copies that must survive bad
addresses (common/copy.h) go by system calls that valgrind does not see through.
"""

import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server  # noqa: E402

FOUND = 99
VALGRIND = ["valgrind", "-q", "--undef-value-errors=no", "--num-callers=24", "--error-exitcode=%d" % FOUND]


def watch(build, address, program, cache):
    """Runs a program to its end twice; whether nothing was found."""
    direct = build.run_direct([program])
    good = True
    for start in ("first", "second"):
        # By the library path: under `remote-gpu run` the command itself would be watched.
        result = build.run_by_path(VALGRIND + [program], address, environment={"REMOTE_GPU_CACHE": cache}, timeout=280)
        right = result.status == direct.status and not result.hung
        print("%s, %s start: %s" % (os.path.basename(program), start, "nothing found" if right else result.describe()))
        if not right:
            print("directly: %s\n%s" % (direct.describe(), result.report()))
        good = good and right
    return good


def main():
    build = Build(sys.argv[1])
    if not shutil.which("valgrind"):
        print("valgrind is not installed (scripts/setup installs it)")
        return 1
    good = True
    # A socket of its own would let the server's memory be shared; the usual way is over the network.
    with Server(build, tcp=True) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        for name in sys.argv[2:]:
            good = watch(build, server.address, os.path.join(build.folder, name), cache) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
