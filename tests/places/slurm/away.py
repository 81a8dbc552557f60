"""Jobs whose pool, controller or program is away for a while: the pool's cable is pulled, slurmctld starts again, jobs are suspended."""

import os
import signal
import time

from jobs import AGAIN, Jobs, expect, until
from machine import call


class Away(Jobs):
    def case_suspended(self):
        """A suspended job keeps its GPUs, and goes on with them."""
        job = self.using()
        call("scontrol", "suspend", job)
        until(lambda: self.squeue(job, "%t") == "S", "job %s is suspended" % job)
        time.sleep(1)
        before = self.uses(job)
        time.sleep(3)
        expect(self.uses(job) == before, "a suspended job does nothing", self.output(job))
        result = self.sweep()
        expect(result.returncode == 0 and len(self.place.leases()) == 1, "its lease stays", result, self.place.leases())
        call("scontrol", "resume", job)
        self.goes_on(job, "when it is resumed")
        self.alice("scancel", job)

    def case_suspended_for_too_long(self):
        """A session of which nothing is heard ends, and its program is told why when it goes on; then the job's end frees the lease."""
        job = self.using("--export=ALL,REMOTE_GPU_KEEP_ALIVE=4")
        call("scontrol", "suspend", job)
        until(lambda: not self.place.sessions(), "the session has ended")
        call("scontrol", "resume", job)
        until(lambda: not self.squeue(job, "%t"), "job %s has ended" % job)
        expect("nothing came from the program for 4 s" in self.output(job), "its program is told why", self.output(job))

    def case_cancelled_while_suspended(self):
        job = self.using()
        call("scontrol", "suspend", job)
        until(lambda: self.squeue(job, "%t") == "S", "job %s is suspended" % job)
        self.alice("scancel", job)

    def case_pool_away_for_a_moment(self):
        """A job goes on when its pool is back, and says what it waited for."""
        job = self.using()
        self.place.cut(True)
        time.sleep(20)
        self.place.cut(False)
        self.goes_on(job, "when the pool is back")
        expect("lost the connection to gpu-machine" in self.output(job), "it says so", self.output(job))
        self.alice("scancel", job)

    def case_ends_while_the_pool_is_away(self):
        """The epilog cannot give the lease back; sweep does, and the session, which nobody comes back to, ends with it."""
        job = self.using()
        self.place.cut(True)
        self.alice("scancel", job)
        until(lambda: not self.squeue(job, "%t"), "job %s has ended" % job, 120)
        result = self.sweep()
        expect(result.returncode != 0, "sweep says that it cannot", result)
        self.place.cut(False)
        until(lambda: self.sweep().returncode == 0, "sweep reaches the pool")

    def case_starts_while_the_pool_is_away(self):
        """The job waits, says why, and starts when the pool is back."""
        self.place.cut(True)
        job = self.submit("--remote-gpu=2", script="srun --overlap /home/alice/uses 1800")
        until(lambda: "AdminComment=remote-gpu: " in self.show(job), "job %s says why it has not started" % job, 120)
        self.place.cut(False)
        until(lambda: self.uses(job), "job %s has started" % job, AGAIN)
        self.alice("scancel", job)

    def case_controller_restarted(self):
        """slurmctld is stopped and started while a job runs: it goes on, and its end is known."""
        job = self.using()
        self.stop_controller(signal.SIGTERM)
        self.goes_on(job, "without slurmctld")
        call("slurmctld")
        until(lambda: self.squeue(job, "%t") == "R", "job %s is known" % job)
        expect(len(self.place.leases()) == 1, "its lease is there", self.place.leases())
        self.alice("scancel", job)

    def case_controller_restarted_while_a_job_waits(self):
        """slurmctld is stopped while the prolog waits in the pool's queue: nothing is taken for nobody."""
        self.occupy()
        job = self.submit("--remote-gpu=2", script="srun --overlap /home/alice/uses 1800")
        until(lambda: self.squeue(job, "%t") == "CF", "job %s waits for the pool" % job)
        self.stop_controller(signal.SIGTERM)
        self.vacate()
        call("slurmctld")
        until(lambda: self.uses(job), "job %s has started" % job, AGAIN)
        expect(len(self.place.leases()) == 1, "it has one lease", self.place.leases())
        self.alice("scancel", job)

    def case_controller_lost(self):
        """slurmctld is killed, and may have forgotten the job when it is back: no epilog is run for that, so sweep gives its GPUs back.

        The last case: slurmctld gives the forgotten number out again, which its nodes may not like.
        """
        self.running(script="/home/alice/gpus 5")
        self.stop_controller(signal.SIGKILL)
        until(lambda: not self.place.sessions(), "the job's program has ended")
        expect(self.place.leases(), "nobody has given the lease back")
        call("slurmctld")
        until(self.is_empty, "the lease was swept", 120)

    @staticmethod
    def stop_controller(by):
        with open("/run/slurmctld.pid") as file:
            pid = int(file.read())
        os.kill(pid, by)
        until(lambda: not os.path.exists("/proc/%d" % pid), "slurmctld has ended")
