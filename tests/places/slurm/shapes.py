"""Jobs of every shape: tasks, steps, arrays, components."""

from jobs import Jobs, expect, until
from machine import call


class Shapes(Jobs):
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

    def case_steps_beside_each_other(self):
        """Two steps of one job at once have all of its GPUs each; CUDA_VISIBLE_DEVICES gives each one of its own."""
        step = "CUDA_VISIBLE_DEVICES=%d srun --exact -n1 -c1 --remote-gpu=1 /home/alice/uses 4 & "
        job = self.submit("--remote-gpu=2", "-n2", "--wait", script=step % 0 + step % 1 + "wait; srun --exclusive -n1 /home/alice/gpus")
        lines = [line for line in self.output(job).splitlines() if line.startswith("uses")]
        expect(len(lines) == 8 and all("of 1 status 0" in line for line in lines), "both steps have a GPU", self.output(job))
        expect(len({line.split()[-1] for line in lines}) == 2, "they are two GPUs", self.output(job))
        expect("gpus 2 status 0" in self.output(job), "an exclusive step has the job's GPUs", self.output(job))

    def case_step_that_wants_more(self):
        """A step cannot have more than its job: it does not begin, and says so."""
        result = self.alice("sbatch", "--wait", "--remote-gpu=1", "--output=/home/alice/more.out", "--wrap",
                            "srun --remote-gpu=3 /home/alice/gpus")
        expect(result.returncode != 0 and "has 1" in self.output("more") and "gpus" not in self.output("more"),
               "a step that asks for more than the job has", result, self.output("more"))

    def case_array_of_some_at_a_time(self):
        """Each task of an array is a job of its own, with a lease of its own; one that is cancelled gives it back alone."""
        job = self.submit("--remote-gpu=1", "--array=0-3%2", "--output=/home/alice/some-%a.out", script="/home/alice/uses 1800")
        until(lambda: all("status 0" in self.output("some-%d" % i) for i in (0, 1)), "the first two run")
        expect(len(self.place.leases()) == 2, "each has a lease", self.place.leases())
        self.alice("scancel", job + "_0")
        until(lambda: "status 0" in self.output("some-2"), "the next one runs")
        expect(len(self.place.leases()) == 2, "each has a lease", self.place.leases())
        self.alice("scancel", job)

    def case_components(self):
        """Each component of a heterogeneous job has a lease of its own, and its tasks that one's GPUs; a component may have none."""
        result = self.srun("--remote-gpu=1", "/home/alice/gpus", ":", "--remote-gpu=3", "/home/alice/gpus")
        expect(result.returncode == 0 and sorted(line for line in result.stdout.splitlines() if "gpus" in line) ==
               ["gpus 1 status 0", "gpus 3 status 0"], "two components", result)
        result = self.srun("--remote-gpu=2", "/home/alice/gpus", ":", "env")
        expect(result.returncode == 0 and "gpus 2 status 0" in result.stdout and "REMOTE_GPU_LEASE" not in result.stdout,
               "a component without GPUs", result)
        result = self.srun("env", ":", "--remote-gpu=2", "--remote-gpu-filter=device.index>=0", "/home/alice/gpus")
        expect(result.returncode == 0 and "gpus 2 status 0" in result.stdout and "REMOTE_GPU_LEASE" not in result.stdout,
               "a first component without GPUs", result)

    def case_components_of_a_script(self):
        with open("/home/alice/components.sh", "w") as file:
            file.write("#!/bin/sh\n#SBATCH --remote-gpu=1\n#SBATCH hetjob\n#SBATCH --remote-gpu=2 --remote-gpu-mem=1G\n#SBATCH hetjob\n"
                       "#SBATCH -n2\n/home/alice/gpus\nsrun --het-group=1 /home/alice/gpus\nsrun --het-group=0,1 /home/alice/gpus\n"
                       "srun --het-group=2 env\nsrun --het-group=0,1,2 --label /home/alice/held\n")
        with open("/home/alice/held", "w") as file:
            file.write("#!/bin/sh\n[ -z \"$REMOTE_GPU_LEASE\" ] || exec /home/alice/uses 1800\n")
        call("chmod", "755", "/home/alice/held")
        result = self.alice("sbatch", "--parsable", "--output=/home/alice/components.out", "components.sh")
        expect(result.returncode == 0, "sbatch failed", result)
        job = result.stdout.split()[-1]
        until(lambda: self.output("components").count("uses 1 of") == 2, "both components use their GPUs: " + self.output("components"), 120)
        text = self.output("components")
        expect([line for line in text.splitlines() if line.startswith("gpus")][:2] == ["gpus 1 status 0", "gpus 2 status 0"] and
               text.count("gpus 1 status 0") == 2 and text.count("gpus 2 status 0") == 2, "what the components have", text)
        leases = self.place.leases()
        expect(sorted(lease["gpus"] for lease in leases.values()) == [1, 2], "a lease for each component", leases)
        self.alice("scancel", job)

    def case_component_that_cannot_be(self):
        """One component can never be granted: the job does not start, and what the other was granted is free again."""
        result = self.srun("--remote-gpu=1", "true", ":", "--remote-gpu=1", "--remote-gpu-filter=device.name=H9000", "true")
        expect(result.returncode != 0 and "remote-gpu: " in result.stdout, "srun says why", result)
