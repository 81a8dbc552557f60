"""The example halo: an MPI job whose ranks have GPUs of two servers, on the software device itself and remotely; what its ranks take out of each
other's memory goes from one server to the other.

usage: halo_test.py BUILD_FOLDER MPIRUN
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

from trial import Build, Server, stop_with_servers  # noqa: E402

ROWS, STEPS, ROW = 40, 6, 256 * 4
FIRST = "%d ranks, 40 rows, 6 steps: the plate is the same as of one rank\nhalo: ok\n"


class Halo(unittest.TestCase):
    def job(self, ranks, *more):
        """The words that run it."""
        return [mpirun, "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,tcp", "-n", str(ranks), build.example("mpi/halo"),
                str(ROWS), str(STEPS), *more]

    def check(self, result, ranks):
        self.assertFalse(result.hung, result.report())
        self.assertEqual(result.status, 0, result.report())
        self.assertEqual(result.output, FIRST % ranks, result.report())

    def test_directly(self):
        self.check(build.run_direct(self.job(3, "--ipc"), environment={"SOFTGPU_DEVICES": "2"}), 3)

    def test_two_servers(self):
        with Server(build, tcp=True) as one, Server(build, tcp=True) as other:
            addresses = ",".join((one.address, other.address))
            result = build.run_remote(self.job(3), addresses)
            self.check(result, 3)
            self.assertEqual(result.stats["peer_direct"], 0, result.report())
            result = build.run_remote(self.job(2, "--ipc"), addresses)
            self.check(result, 2)
            self.assertEqual(result.stats["peer_direct"], 2 * STEPS * ROW, result.report())
            self.assertEqual(result.stats["peer_by_client"], 0, result.report())


if __name__ == "__main__":
    stop_with_servers()
    mpirun = sys.argv.pop(2)
    build = Build(sys.argv.pop(1))
    build.check()
    unittest.main(verbosity=2)
