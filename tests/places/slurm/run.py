"""Jobs of a real Slurm with GPUs of a pool, set up by the commands of docs/slurm.md: jobs that end in every way leave no lease.

usage: run.py BUILD_FOLDER [CASE…]
"""

import os
import subprocess
import sys
import tempfile
import time

import machine
from away import Away
from endings import Endings
from jobs import PROGRAM, USES, expect
from machine import SOURCE, Failure, Machine, call
from shapes import Shapes

import page
from trial import Build, stop_with_servers

PAGE = os.path.join(SOURCE, "docs", "slurm.md")


def run_page(place):
    """The commands of the page, as root and as alice."""
    for name, user, variables in (("slurm", None, {"SLURM_TOKEN": place.token("slurm")}),
                                  ("slurm-user", "alice", {"USER_TOKEN": place.token("alice")})):
        script = page.script(PAGE, name)
        if user:
            result = place.run_as(user, "bash", "-c", script, **variables)
        else:
            # what the page waits for, others need not
            script = script.replace("wait = 5min", "wait = 4")
            result = subprocess.run(["bash", "-c", script], env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
        print(result.stdout, flush=True)
        expect(result.returncode == 0, "the page's commands for %s failed" % (user or "root"))
    expect(result.stdout.count("vector_add: ok\n") == 9, "not every program has said that it is well")


def cases_of(place):
    """All cases by their names, in their order."""
    found = {}
    for kind in (Shapes, Endings, Away):
        jobs = kind(place)
        found.update({name[5:]: (jobs, getattr(jobs, name)) for name in kind.__dict__ if name.startswith("case_")})
    return found


def run_cases(place, wanted):
    for name, text in (("gpus", PROGRAM), ("uses", USES)):
        with open("/home/alice/" + name, "w") as file:
            file.write(text)
        os.chmod("/home/alice/" + name, 0o755)
    cases = cases_of(place)
    for name in wanted or cases:
        jobs, run = cases[name]
        started = time.monotonic()
        run()
        jobs.nothing_left(name)
        print("%s: ok, %.0f s" % (name, time.monotonic() - started), flush=True)


def main():
    stop_with_servers()
    build = Build(sys.argv[1])
    if "inside" not in sys.argv:
        if os.geteuid() != 0:
            sys.exit("error: this test needs root")
        call(os.path.join(SOURCE, "scripts", "setup-slurm"))
        expect(os.path.exists(os.path.join(build.lib_dir, "slurm", "remote_gpu.so")),
               "the build has no plugin: configure it again, now that libslurm-dev is installed")
        machine.enter_namespaces()
    machine.be_init()
    wanted = [word for word in sys.argv[2:] if word != "inside"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remote-gpu-slurm-") as folder:
        try:
            with Machine(build, folder) as place:
                try:
                    run_page(place)
                    run_cases(place, wanted)
                except Failure:
                    print(place.logs())
                    raise
        except Failure as failure:
            sys.exit("error: %s" % failure)
        finally:
            subprocess.run(["umount", "--lazy", folder])
    print("slurm: ok, %.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
