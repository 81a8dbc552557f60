"""Jobs that begin and end in every way."""

import os
import time

from jobs import AGAIN, Jobs, expect, until
from machine import call


class Endings(Jobs):
    def case_ends(self):
        result = self.srun("--remote-gpu=2", "--remote-gpu-mem=1G", "--remote-gpu-filter=device.index>=0", "/home/alice/gpus")
        expect(result.returncode == 0 and "gpus 2 status 0" in result.stdout, "srun has two GPUs", result)

    def case_fails(self):
        result = self.srun("--remote-gpu=1", "sh", "-c", "/home/alice/gpus; exit 3")
        expect(result.returncode == 3 and "gpus 1 status 0" in result.stdout, "srun gives the program's status", result)

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

    def case_node_out_of_its_controllers_reach(self):
        """What runs there goes on until slurmctld gives the node up: then the GPUs are others', and the program is told."""
        job = self.running("--no-requeue", "-w", "n2", script="/home/alice/uses 1800")  # not by srun, which ends with the node
        self.place.kill_daemon("n2")
        self.goes_on(job, "without slurmd")
        until(lambda: not self.squeue(job, "%t"), "job %s has failed with its node" % job, 120)
        expect("JobState=NODE_FAIL" in self.show(job), "its state", self.show(job))
        self.nothing_left("after a node was out of reach")
        until(lambda: "remote-gpu: " in self.output(job), "its program is told; it says: %s" % self.output(job))
        print(self.output(job)[-600:], flush=True)
        self.place.kill_node("n2")
        call("slurmd", "-N", "n2")
        until(lambda: "IDLE" in call("scontrol", "show", "node", "n2"), "the node is back")

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
