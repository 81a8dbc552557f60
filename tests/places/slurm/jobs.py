"""What the cases of run.py are made of: jobs of alice's, and what is looked at. One class derives from Jobs for each kind of case."""

import os
import subprocess

from machine import call, wait_until
from trial import expect  # where machine finds it

# Says how many GPUs there are, and what a session by them gives; stays for as many seconds as it is told.
PROGRAM = """#!/usr/bin/python3
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
count, context = ctypes.c_int(), ctypes.c_void_p()
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
print("gpus", count.value, "status", status, flush=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
# The same every half second, with what its memory says and which GPU it has, until it is lost.
USES = """#!/usr/bin/python3
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
count, context, memory, uuid = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(16)
status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
status = status or cuda.cuDeviceGetUuid(uuid, 0)
for i in range(int(sys.argv[1])):
    status = status or cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1000)) or cuda.cuMemFree_v2(memory)
    print("uses", i, "of", count.value, "status", status, "on", uuid.raw.hex(), flush=True)
    time.sleep(0.5)
    if status:
        sys.exit(1)
"""
LONG = "900"  # seconds that no job takes
AGAIN = 300  # until slurmctld starts a requeued job, for which it waits two minutes


def until(condition, what, seconds=60):
    """Waits for what must become true."""
    expect(wait_until(condition, seconds, 0.2), "not within %d s: %s" % (seconds, what))


class Jobs:
    """Methods case_NAME of a class that derives from it are cases: each begins and must end with a pool where nothing is leased."""

    def __init__(self, place):
        self.place = place
        self.outputs = {}  # files of jobs, by their numbers, which a slurmctld that has forgotten a job gives out again
        self.submitted = 0

    def alice(self, *words, **more):
        return self.place.run_as("alice", *words, **more)

    def srun(self, *options, **more):
        return self.alice("srun", *options, **more)

    def submit(self, *options, script="srun --overlap /home/alice/gpus " + LONG):
        """The number of a batch job, which runs a script's line."""
        self.submitted += 1
        path = "/home/alice/%s-%d.out" % (type(self).__name__, self.submitted)
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

    def uses(self, job):
        """How often a program of USES has used its session."""
        return self.output(job).count("status 0 on")

    def goes_on(self, job, what, seconds=60):
        before = self.uses(job)
        until(lambda: self.uses(job) > before + 2, "job %s goes on %s; it says: %s" % (job, what, self.output(job)), seconds)

    def using(self, *options, **more):
        """A job whose program uses its session, until it is told to end."""
        return self.running(*options, script="srun --overlap /home/alice/uses 1800", **more)

    def nothing_left(self, what):
        until(lambda: not self.place.leases() and not self.place.sessions(), "no lease and no session is left: %s" % what)

    def sweep(self):
        return self.place.run_as("slurm", "/usr/local/lib/remote-gpu/slurm-lease", "sweep")

    def occupy(self):
        self.held = self.alice("remote-gpu", "request", "-s", "gpu-machine", "-n", "3", "--json").stdout.split('"lease": "')[1][:16]

    def vacate(self):
        result = self.alice("remote-gpu", "release", "-s", "gpu-machine", self.held)
        expect(result.returncode == 0, "alice gives her own lease back", result)

    def is_empty(self):
        """Whether no job and no lease is left, once jobs that slurmctld remembers are cancelled."""
        self.alice("scancel", "-u", "alice")
        return not call("squeue", "-h") and self.sweep().returncode == 0 and not self.place.leases()
