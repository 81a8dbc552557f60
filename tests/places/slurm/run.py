"""Jobs of a real Slurm with GPUs of a pool, set up by the commands of docs/slurm.md: jobs that end in every way leave no lease.

usage: run.py BUILD_FOLDER [CASE…]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

import machine
from machine import SOURCE, Failure, Machine, call, wait_until

import page
from trial import Build, stop_with_servers

PAGE = os.path.join(SOURCE, "docs", "slurm.md")
# Says how many GPUs there are, and what a session by them gives; stays for as many seconds as it is told.
PROGRAM = """#!/usr/bin/python3
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
count, context = ctypes.c_int(), ctypes.c_void_p()
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
print("gpus", count.value, "status", status, flush=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
LONG = "900"  # seconds that no job takes
AGAIN = 300  # until slurmctld starts a requeued job, for which it waits two minutes


def expect(condition, what, *more):
    if not condition:
        raise Failure("%s\n%s" % (what, "\n".join(str(one) for one in more)))


def until(condition, what, seconds=60):
    """Waits for what must become true."""
    expect(wait_until(condition, seconds, 0.2), "not within %d s: %s" % (seconds, what))


class Cases:
    """One method a way for jobs to begin or end; each begins and must end with a pool where nothing is leased."""

    def __init__(self, place):
        self.place = place
        self.outputs = {}  # files of jobs, by their numbers, which a slurmctld that has forgotten a job gives out again
        self.submitted = 0

    # --- tools

    def alice(self, *words, **more):
        return self.place.run_as("alice", *words, **more)

    def srun(self, *options, **more):
        return self.alice("srun", *options, **more)

    def submit(self, *options, script="srun --overlap /home/alice/gpus " + LONG):
        """The number of a batch job, which runs a script's line."""
        self.submitted += 1
        path = "/home/alice/%d.out" % self.submitted
        result = self.alice("sbatch", "--parsable", "--output=" + path, *options, "--wrap", script)
        expect(result.returncode == 0, "sbatch failed", result.stdout)
        job = result.stdout.split()[-1]
        self.outputs[job] = path
        return job

    def output(self, job):
        """What a job has written, or another file of the home."""
        try:
            with open(self.outputs.get(job, "/home/alice/%s.out" % job)) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    @staticmethod
    def show(job):
        return call("scontrol", "show", "job", job)

    @staticmethod
    def squeue(job, form):
        return subprocess.run(["squeue", "-h", "-o", form, "-j", job], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True).stdout.strip()

    def running(self, *options, **more):
        """A job that has begun its session."""
        job = self.submit("--remote-gpu=2", *options, **more)
        until(lambda: "status 0" in self.output(job), "job %s has a session; it says: %s" % (job, self.output(job)))
        expect(len(self.place.leases()) == 1, "a job that runs has a lease", self.place.leases())
        return job

    def nothing_left(self, what):
        until(lambda: not self.place.leases() and not self.place.sessions(), "no lease and no session is left: %s" % what)

    # --- cases

    def case_ends(self):
        result = self.srun("--remote-gpu=2", "--remote-gpu-mem=1G", "--remote-gpu-filter=device.index>=0", "/home/alice/gpus")
        expect(result.returncode == 0 and "gpus 2 status 0" in result.stdout, "srun has two GPUs", result)

    def case_fails(self):
        result = self.srun("--remote-gpu=1", "sh", "-c", "/home/alice/gpus; exit 3")
        expect(result.returncode == 3 and "gpus 1 status 0" in result.stdout, "srun gives the program's status", result)

    def case_many_tasks(self):
        result = self.srun("-N2", "-n4", "--remote-gpu=3", "/home/alice/gpus")
        expect(result.stdout.count("gpus 3 status 0") == 4, "each of four tasks on two nodes sees three GPUs", result)

    def case_environment(self):
        """A task has what `remote-gpu run` gives a command, and its own variables."""
        result = self.srun("--remote-gpu=1", "env", LD_LIBRARY_PATH="/of/mine", REMOTE_GPU_OPT="-all")
        for text in ("LD_LIBRARY_PATH=/usr/local/lib/remote-gpu:/usr/local/lib/remote-gpu", ":/of/mine\n", "REMOTE_GPU_OPT=-all",
                     "REMOTE_GPU_SERVER=gpu-machine:7600", "REMOTE_GPU_LEASE=", "libcuda.so.1"):
            expect(text in result.stdout, "the environment has %s" % text, result.stdout)
        result = self.srun("env")
        expect("REMOTE_GPU_LEASE" not in result.stdout and "libcuda" not in result.stdout, "a job without GPUs is left alone", result)

    def case_steps(self):
        """Steps have their job's GPUs, however many they name; a job without GPUs gets none by a step."""
        job = self.submit("--remote-gpu=2", "--wait", script="srun /home/alice/gpus; srun --remote-gpu=1 /home/alice/gpus; /home/alice/gpus")
        expect(self.output(job).splitlines() == ["gpus 2 status 0"] * 3, "what steps have", self.output(job))
        result = self.alice("sbatch", "--wait", "--output=/home/alice/late.out", "--wrap", "srun --remote-gpu=1 /home/alice/gpus")
        expect(result.returncode != 0 and "has no GPUs" in self.output("late"), "a job without GPUs gets none by a step",
               result, self.output("late"))

    def case_array(self):
        self.alice("sbatch", "--wait", "--array=0-5", "--remote-gpu=1", "--output=/home/alice/array-%a.out", "--wrap", "/home/alice/gpus")
        for i in range(6):
            expect("gpus 1 status 0" in self.output("array-%d" % i), "task %d of an array" % i, self.output("array-%d" % i))

    def case_cancelled(self):
        job = self.running()
        self.alice("scancel", job)

    def case_cancelled_while_it_waits(self):
        """slurmctld kills the prolog, which waits in the pool's queue."""
        self.occupy()
        job = self.submit("--remote-gpu=2")
        until(lambda: self.squeue(job, "%t") == "CF", "job %s waits for the pool" % job)
        self.alice("scancel", job)
        until(lambda: not self.squeue(job, "%t"), "job %s has gone" % job)
        self.vacate()

    def case_time_limit(self):
        job = self.running("--time=1")
        until(lambda: not self.squeue(job, "%t"), "job %s has been ended by its limit" % job, 180)
        expect("JobState=TIMEOUT" in self.show(job), "its state", self.show(job))

    def case_requeued(self):
        job = self.running("--requeue")
        first = next(iter(self.place.leases().values()))
        call("scontrol", "requeue", job)
        until(lambda: "Restarts=1" in self.show(job) and any(lease["since"] != first["since"] for lease in self.place.leases().values())
              and "status 0" in self.output(job), "job %s runs again, by another lease" % job, AGAIN)
        self.alice("scancel", job)

    def case_node_lost(self):
        """What ran on the node has gone, and nobody there can say so. slurmctld gives the node up after 10 s."""
        job = self.running("--no-requeue", "-w", "n2")
        self.place.kill_node("n2")
        until(lambda: not self.squeue(job, "%t"), "job %s has failed with its node" % job, 120)
        expect("JobState=NODE_FAIL" in self.show(job), "its state", self.show(job))
        self.nothing_left("after a node was lost")
        again = self.running("-w", "n1")
        call("slurmd", "-N", "n2")
        self.alice("scancel", again)

    def case_node_lost_and_requeued(self):
        """The job starts on another node, while the first is gone; the first one's return does not take its GPUs."""
        call("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
        job = self.running("--requeue")
        call("scontrol", "update", "NodeName=n1", "State=RESUME")
        os.truncate(self.outputs[job], 0)
        self.place.kill_node("n2")
        until(lambda: self.squeue(job, "%t %N") == "R n1" and "status 0" in self.output(job), "job %s runs again" % job, AGAIN)
        call("slurmd", "-N", "n2")
        until(lambda: "IDLE" in call("scontrol", "show", "node", "n2"), "the node is back")
        expect(len(self.place.leases()) == 1 and self.place.sessions() == 1, "the job has its GPUs", self.place.leases())
        self.alice("scancel", job)

    def case_swept(self):
        """What is left by jobs that slurmctld does not know is given back; what belongs to one that runs stays."""
        job = self.running()
        kept = next(iter(self.place.leases()))
        strange = kept[:8] + "00ffffff"
        other = "00000001" + kept[8:]
        for number in (strange, other):
            call("remote-gpu", "request", "-s", "gpu-machine", "--credentials", "/etc/remote-gpu/slurm", "--user", "alice", "--id", number)
        result = self.sweep()
        expect(result.returncode == 0 and strange in result.stdout and "was given back" in result.stdout, "sweep", result)
        expect(set(self.place.leases()) == {kept, other}, "what stays", self.place.leases())
        call("scontrol", "update", "job", job, "TimeLimit=100:00:00")
        before = self.place.leases()[kept]["expires"]
        result = self.sweep()
        expect("was renewed" in result.stdout or before > time.time() + 360000, "a job that was prolonged", result)
        expect(self.place.leases()[kept]["expires"] > time.time() + 360000, "its lease", self.place.leases())
        call("remote-gpu", "release", "-s", "gpu-machine", "--credentials", "/etc/remote-gpu/slurm", other)
        self.alice("scancel", job)

    def sweep(self):
        return self.place.run_as("slurm", "/usr/local/lib/remote-gpu/slurm-lease", "sweep")

    def case_licences(self):
        """Slurm starts no more than the pool has GPUs for."""
        jobs = [self.submit("--remote-gpu=2") for _ in range(3)]
        until(lambda: sum(self.squeue(job, "%t") == "R" for job in jobs) == 2, "two of three jobs run")
        until(lambda: "Licenses" in self.squeue(jobs[2], "%r"), "the third waits for licences")
        self.alice("scancel", "-u", "alice")

    def case_pool_is_full(self):
        """Others use the pool, too: the job waits, then says why it does not start; later it starts."""
        self.occupy()
        result = self.srun("--remote-gpu=2", "/home/alice/gpus")
        expect(result.returncode != 0 and "remote-gpu: " in result.stdout and "gpus 2" not in result.stdout, "srun says why", result)
        job = self.submit("--remote-gpu=2")
        until(lambda: "AdminComment=remote-gpu: " in self.show(job), "job %s says why it has not started" % job)
        self.vacate()
        until(lambda: "status 0" in self.output(job), "job %s has started" % job, AGAIN)
        self.alice("scancel", job)

    def occupy(self):
        self.held = self.alice("remote-gpu", "request", "-s", "gpu-machine", "-n", "3", "--json").stdout.split('"lease": "')[1][:16]

    def vacate(self):
        result = self.alice("remote-gpu", "release", "-s", "gpu-machine", self.held)
        expect(result.returncode == 0, "alice gives her own lease back", result)

    def case_impossible(self):
        """What could never be granted is held, with the reason."""
        job = self.submit("--remote-gpu=1", "--remote-gpu-filter=device.name=H9000")
        until(lambda: "AdminComment=remote-gpu: " in self.show(job) and self.squeue(job, "%t") == "PD", "job %s is held" % job)
        expect("held" in self.squeue(job, "%r").lower(), "its reason", self.show(job))
        self.alice("scancel", job)
        result = self.srun("--remote-gpu=1", "--remote-gpu-filter=device.name=H9000", "true")
        expect(result.returncode != 0 and "remote-gpu: " in result.stdout, "srun says why", result)

    def case_wrong_options(self):
        for options, text in ((["--remote-gpu=two"], "two"), (["--remote-gpu=0"], "0"), (["--remote-gpu=1", "--remote-gpu-mem=20Q"], "20Q"),
                              (["--remote-gpu-mem=1G"], "say how many"), (["--remote-gpu=1", "--remote-gpu-mem=0"], "no memory at all")):
            for command in (["srun", *options, "true"], ["sbatch", *options, "--wrap", "true"]):
                result = self.alice(*command)
                expect(result.returncode != 0 and text in result.stdout, "%s is refused" % command, result)

    def case_user_who_has_not_joined(self):
        result = self.place.run_as("bob", "srun", "--remote-gpu=1", "true")
        expect(result.returncode != 0 and "remote-gpu: job " in result.stdout, "bob is told what is missing", result)
        expect("drain" not in call("sinfo"), "the nodes stay in service")

    def case_controller_lost(self):
        """slurmctld is killed, and may have forgotten the job when it is back: no epilog is run for that, so sweep gives its GPUs back.

        The last case: slurmctld gives the forgotten number out again, which its nodes may not like.
        """
        self.running(script="/home/alice/gpus 5")
        with open("/run/slurmctld.pid") as file:
            os.kill(int(file.read()), signal.SIGKILL)
        until(lambda: not self.place.sessions(), "the job's program has ended")
        expect(self.place.leases(), "nobody has given the lease back")
        call("slurmctld")
        until(self.is_empty, "the lease was swept", 120)

    def is_empty(self):
        """Whether no job and no lease is left, once jobs that slurmctld remembers are cancelled."""
        self.alice("scancel", "-u", "alice")
        return not call("squeue", "-h") and self.sweep().returncode == 0 and not self.place.leases()


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
    expect(result.stdout.count("vector_add: ok\n") == 5, "not every program has said that it is well")


def run_cases(place, wanted):
    with open("/home/alice/gpus", "w") as file:
        file.write(PROGRAM)
    os.chmod("/home/alice/gpus", 0o755)
    cases = Cases(place)
    names = [name[5:] for name in Cases.__dict__ if name.startswith("case_")]
    for name in wanted or names:
        started = time.monotonic()
        getattr(cases, "case_" + name)()
        cases.nothing_left(name)
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
