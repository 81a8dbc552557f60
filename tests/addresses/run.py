"""Many sessions of a program that maps memory at random places, on a device whose addresses are where NVIDIA's driver has them.

usage: run.py BUILD_FOLDER PROGRAM SESSIONS [FIRST_SEED]

Every session must end well; the seeds of those that do not are told.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))

from trial import Build, Server  # noqa: E402

# Device memory that nothing is written to takes none of the machine's.
DEVICES = {
    "as NVIDIA's driver": {"SOFTGPU_BEHAVE": "nvidia:init=0:context=0", "SOFTGPU_MEMORY": "100G"},
    "as the software device": {"SOFTGPU_MEMORY": "100G"},
}


def main():
    build = Build(sys.argv[1])
    program, sessions = os.path.join(build.folder, "tests", sys.argv[2]), int(sys.argv[3])
    first = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    good = True
    for name, device in DEVICES.items():
        failed = []
        with Server(build, environment=device) as server:
            for seed in range(first, first + sessions):
                result = build.run_by_path([program, str(seed)], server.address)
                if result.status != 0 or result.output != "ok\n" or "remote-gpu: " in result.errors:
                    failed.append(seed)
                    print("%s, seed %d:\n%s" % (name, seed, result.report()))
            log = server.log()
        print("%s: %d sessions, %d failed%s" % (name, sessions, len(failed), ": %s" % failed if failed else ""))
        if "could be closed" in log or "cannot be mapped at its address" in log:
            print("the server complained:\n" + log)
            good = False
        good = good and not failed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
