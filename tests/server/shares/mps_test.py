"""Sessions that share GPUs by MPS: what they have of a device, what is shown and refused, and that nothing goes through MPS otherwise.

Something that answers stands in for NVIDIA's control daemon, which the software device goes by. usage: mps_test.py BUILD_FOLDER
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from session_case import SessionCase, main  # noqa: E402
from trial import wait_until  # noqa: E402

CORES = 4
# Each block says on which multiprocessor it is, and takes a while, so that all of them have something to do.
KERNEL = """.version 7.0
.target sm_52
.address_size 64
.visible .entry where(.param .u64 out)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<4>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %smid;
    mov.u32 %r1, 1;
    shl.b32 %r1, %r1, %r0;
    atom.global.or.b32 %r2, [%d0], %r1;
    mov.u64 %d1, %globaltimer;
    add.u64 %d1, %d1, 2000000;
again:
    mov.u64 %d2, %globaltimer;
    setp.lt.u64 %p, %d2, %d1;
    @%p bra again;
    ret;
}
"""
PROGRAM = """
import ctypes, json, sys
c = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(c, name)(*arguments)
    if result:
        sys.exit("%s: error %d" % (name, result))
n, context, address, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
def attribute(number):
    call("cuDeviceGetAttribute", ctypes.byref(n), number, 0)
    return n.value
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), sys.argv[1].encode())
call("cuModuleGetFunction", ctypes.byref(function), module, b"where")
call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4))
def used():
    call("cuMemsetD32_v2", address, 0, ctypes.c_size_t(1))
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
    call("cuLaunchKernel", function, 64, 1, 1, 1, 1, 1, 0, None, parameters, None)
    mask = ctypes.c_uint32()
    call("cuMemcpyDtoH_v2", ctypes.byref(mask), address, ctypes.c_size_t(4))
    return bin(mask.value).count("1")
print(json.dumps({"multiprocessors": attribute(16), "mps": attribute(133), "used": used()}), flush=True)
for line in sys.stdin:
    print(used(), flush=True)
"""


class Daemon:
    """Answers in a folder as nvidia-cuda-mps-control does, until it is closed."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "control")
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        os.chmod(self.path, 0o666)
        self.socket.listen(64)

    def close(self):
        self.socket.close()


class Mps(SessionCase):
    PROGRAM = (PROGRAM, KERNEL)

    def setUp(self):
        super().setUp()
        self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="remote-gpu-mps-"))
        os.chmod(self.folder, 0o755)
        self.pipes = os.path.join(self.folder, "pipes")
        os.mkdir(self.pipes)
        os.chmod(self.pipes, 0o755)

    def answer(self):
        daemon = Daemon(self.pipes)
        self.stack.callback(daemon.close)
        return daemon

    def serve(self, rules=None, arguments=(), mps=True, environment=None):
        path = os.path.join(self.folder, "rules.json")
        with open(path, "w") as file:
            json.dump(rules or {}, file)
        own = ["--rules", path, *arguments] + (["--mps", self.pipes] if mps else [])
        super().serve(own, {"SOFTGPU_CORES": str(CORES), **(environment or {})})

    def shares(self):
        return [session["share"] for session in self.sessions().values()]

    def counted(self, *options):
        """What --stats says of a program that ends at once."""
        path = os.path.join(self.folder, "counts")
        with contextlib.suppress(OSError):
            os.unlink(path)
        subprocess.run(self.run_words("--stats=" + path, *options), stdin=subprocess.DEVNULL, capture_output=True, check=True)
        with open(path) as file:
            return json.loads(file.read().splitlines()[0])

    def test_what_is_kept_of_it(self):
        """Accounts and counts tell how a session shared its GPUs."""
        self.answer()
        self.serve(arguments=["--state-dir", os.path.join(self.folder, "state")])
        self.assertEqual(self.counted()["sharing"], "mps")
        self.assertEqual((self.counted("--exclusive")["sharing"], self.counted()["mig_instances"]), ("exclusive", 0))

        def rows(by):
            return json.loads(self.listed("usage", "--by", by, "--json"))["servers"][0]["rows"]
        self.assertTrue(wait_until(lambda: sum(bool(row["ended"]) for row in rows("session")) == 3, 30))
        self.assertEqual([(row["sharing"], row["mig"]) for row in rows("session")],
                         [("mps", False), ("exclusive", False), ("mps", False)])
        self.assertEqual([(row["sharing"], row["mig"], row["sessions"]) for row in rows("sharing")],
                         [("mps", False, 2), ("exclusive", False, 1)])
        self.assertNotIn("sharing", rows("user")[0])
        self.assertRegex(self.listed("usage", "--by", "sharing"), r"(?m)^SHARING .*\n^MPS +2 .*\n^alone +1 ")
        self.assertRegex(self.listed("usage", "--by", "session", "--csv"), r"(?m),mps,0\n.*,exclusive,0\n")
        self.assertRegex(self.listed("usage", "--csv"), r"(?m)sharing,mig\n.*[0-9],,$")

    def test_parts(self):
        self.answer()
        self.serve()
        whole, seen = self.start()
        self.assertEqual((seen["multiprocessors"], seen["mps"]), (CORES, 1))
        self.assertGreater(seen["used"], 2)
        half, seen = self.start("--compute", "50%")
        self.assertEqual((seen["multiprocessors"], seen["mps"]), (2, 1))
        self.assertIn(seen["used"], (1, 2))
        _, seen = self.start("--compute", "0.01")
        self.assertEqual((seen["multiprocessors"], seen["mps"], seen["used"]), (1, 1, 1))
        self.assertEqual(sorted((share["sharing"], share["compute"]) for share in self.shares() if share["compute"]),
                         [("mps", 0.01), ("mps", 0.5)])
        text = self.listed()
        self.assertEqual(text.count("shares GPUs by MPS"), 3)
        self.assertIn("at most 50 % of each GPU's multiprocessors", text)
        self.assertIn("by MPS", self.listed("smi"))
        # two that are busy at the same time wait for nobody's turn, and are measured all the same
        for process in (whole, half):
            process.stdin.write("\n" * 8)
            process.stdin.flush()
        for process in (whole, half):
            for _ in range(8):
                self.assertTrue(process.stdout.readline())
        for share in self.shares():
            self.assertEqual(share["devices"][0]["throttled_seconds"], 0)
        self.assertTrue(wait_until(lambda: sum(share["devices"][0]["busy_seconds"] > 0 for share in self.shares()) == 3, 30))

    def test_what_the_user_sees(self):
        self.answer()
        self.serve()
        done = subprocess.run(self.run_words("--compute", "25%", "--log", "info"), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertIn("shares GPUs by MPS, at most 25 % of each", done.stderr)

    def test_refused(self):
        self.answer()
        self.serve({"default": {"mode": "mps", "max-compute": "50%"}})
        self.assertIn("share them by MPS", self.refused("--exclusive"))
        self.assertIn("MPS, which knows none", self.refused("--weight", "200"))
        self.assertIn("whole percents", self.refused("--compute", "12.5%"))
        self.assertIn("at most", self.refused("--compute", "75%"))
        for part in ("0", "0%", "101%", "1.5", "-1"):
            self.assertIn("--compute", self.refused("--compute=" + part))
        self.assertEqual(self.start()[1]["multiprocessors"], CORES // 2)

    def test_turns_and_mps_are_kept_apart(self):
        uid = "uid:%d" % os.geteuid()
        self.answer()
        self.serve({"projects": {"turns": {"members": [uid], "mode": "turns"}}}, environment={"SOFTGPU_DEVICES": "2"})
        first, seen = self.start("-n", "1")
        self.assertEqual(seen["mps"], 1)
        turns, seen = self.start("-n", "1", "--project", "turns", "--weight", "200")
        self.assertEqual(seen, {"multiprocessors": CORES, "mps": 0, "used": seen["used"]})
        self.assertEqual({share["sharing"] for share in self.shares()}, {"mps", "turns"})
        self.assertIn("or share theirs by turns", self.refused("-n", "2"))
        self.assertIn("or share theirs by MPS", self.refused("-n", "2", "--project", "turns"))
        self.end(turns)
        self.assertTrue(wait_until(lambda: len(self.shares()) == 1, 60))
        _, seen = self.start("-n", "2")
        self.assertEqual(seen["mps"], 1)
        self.end(first)

    def test_without_a_daemon(self):
        self.assertIn("there is no folder", self.not_started("--mps", os.path.join(self.folder, "nothing")))
        self.assertIn("not the whole path", self.not_started("--mps", "pipes"))
        self.assertIn("there is no nvidia-cuda-mps-control in", self.not_started("--mps", self.pipes))
        daemon = self.answer()
        self.serve()
        self.start()
        daemon.close()
        self.assertIn("does not reach nvidia-cuda-mps-control", self.refused("--compute", "50%"))
        os.remove(daemon.path)
        os.mkfifo(daemon.path)
        os.chmod(daemon.path, 0o666)
        self.assertIn("does not reach", self.refused())
        reader = os.open(daemon.path, os.O_RDONLY | os.O_NONBLOCK)  # as older control daemons do
        self.stack.callback(os.close, reader)
        self.assertEqual(self.start()[1]["mps"], 1)

    def test_only_where_it_is_wanted(self):
        """A server without --mps does not go through a daemon that runs, whatever its environment says."""
        self.answer()
        self.serve(mps=False, environment={"CUDA_MPS_PIPE_DIRECTORY": self.pipes, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"})
        _, seen = self.start()
        self.assertEqual((seen["multiprocessors"], seen["mps"]), (CORES, 0))
        self.assertEqual(self.shares()[0]["sharing"], "turns")
        self.assertIn("shares GPUs by turns", self.listed())

    def test_warm_workers(self):
        """They are made before it is known who gets them, and do not go through MPS: these sessions have none."""
        self.answer()
        self.serve(arguments=["--warm-workers", "1"])
        for _ in range(2):
            process, seen = self.start("--compute", "50%")
            self.assertEqual((seen["multiprocessors"], seen["mps"]), (2, 1))
            self.end(process)
        self.assertNotIn("(warm)", self.server.log())

    def test_metrics(self):
        self.answer()
        self.serve(arguments=["--http", "127.0.0.1:0"])
        self.start()
        text = self.metrics()
        self.assertRegex(text, r'rgpu_sharing_sessions\{sharing="mps"\} 1')
        self.assertRegex(text, r'rgpu_sharing_sessions\{sharing="turns"\} 0')


if __name__ == "__main__":
    main()
