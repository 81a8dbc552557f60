"""Tests of several devices: which of them a program sees, on one server and on several."""

import os
import signal
import subprocess
import sys

from expected import expect, expect_lost
from interrupted import NOTICE, when_working
from trial import Server, free_port, wait_until

# Prints the PCI addresses of the devices it sees, by the driver's API.
DEVICES = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, text = ctypes.c_int(), ctypes.create_string_buffer(32)
result = cuda.cuInit(0)
if result:
    print("cuInit:", result)
else:
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    for device in range(count.value):
        assert cuda.cuDeviceGetPCIBusId(text, 32, device) == 0
        print(text.value.decode())
"""


def test_chosen_devices(build):
    """CUDA_VISIBLE_DEVICES and `run -n` choose among the software devices, and what they choose is what is seen."""
    see = [sys.executable, "-c", DEVICES]
    names = ["5347:%02X:00.0" % (1 + i) for i in range(3)]
    three = {"SOFTGPU_DEVICES": "3"}
    for value, seen in [(None, names), ("2,0", [names[2], names[0]]), ("1,7,0", [names[1]]), ("", ["cuInit: 100"])]:
        environment = dict(three) if value is None else dict(three, CUDA_VISIBLE_DEVICES=value)
        result = build.run_direct(see, environment=environment)
        expect(result.output.split("\n")[:-1] == seen, "CUDA_VISIBLE_DEVICES=%s" % value, result)
    with Server(build, environment=three) as server:
        result = build.run_remote(see, server.address)
        expect(result.output.split() == names, "not all devices", result)
        # A session holds one device: the next one gets another.
        first = subprocess.Popen([build.command, "run", "-s", server.address, "-n", "1", "--", sys.executable, "-c",
                                  DEVICES + "print('.', flush=True)\ninput()"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        try:
            held = first.stdout.readline().strip()
            expect(held in names, "the first session sees %s" % held)
            expect(first.stdout.readline() == ".\n", "the first session sees more than one device")
            result = build.run_remote(see, server.address, ["-n", "1"])
            expect(len(result.output.split()) == 1 and result.output.split() != [held],
                   "the second session sees the first one's device %s" % held, result)
            result = build.run_remote([build.example("multi_gpu"), "2"], server.address, ["-n", "2"])
            expect(result.status == 0, "two devices of three do not work", result, server.log())
        finally:
            first.communicate("\n", timeout=20)
    with Server(build, environment=dict(three, CUDA_VISIBLE_DEVICES="2,1")) as server:
        result = build.run_remote(see, server.address)
        expect(result.output.split() == [names[2], names[1]], "the server's own choice is not kept", result)
        result = build.run_remote(see, server.address, ["-n", "1"])
        expect(result.output.split() == [names[2]], "the wrong one of the server's devices", result)


UUIDS = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
error = cuda.cuInit(0)
if error:
    print("cuInit: %d" % error)
elif cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for device in range(count.value):
        found = ctypes.create_string_buffer(16)
        assert cuda.cuDeviceGetUuid_v2(found, device) == 0
        print("GPU-%s" % uuid.UUID(bytes=found.raw))
"""


def test_devices_by_uuid(build):
    """CUDA_VISIBLE_DEVICES with UUIDs, or their beginnings, means the same directly and remotely."""
    see = [sys.executable, "-c", UUIDS]
    three = {"SOFTGPU_DEVICES": "3"}
    uuids = build.run_direct(see, environment=three).output.split()
    expect(len(set(uuids)) == 3, "the devices' UUIDs are %s" % uuids)
    cases = [(",".join((uuids[2], uuids[0])), [uuids[2], uuids[0]]), (uuids[1][:-1], [uuids[1]]), (uuids[1] + ",1", [uuids[1]]),
             ("GPU-", ["cuInit: 100"]), ("GPU-00000000", ["cuInit: 100"])]
    with Server(build, environment=three) as server, Server(build, environment=three) as other:
        for value, seen in cases:
            visible = {"CUDA_VISIBLE_DEVICES": value}
            direct = build.run_direct(see, environment={**three, **visible})
            expect(direct.output.split("\n")[:-1] == seen, "directly: CUDA_VISIBLE_DEVICES=%s" % value, direct)
            remote = build.run_by_path(see, server.address, environment=visible)
            expect(remote.output.split("\n")[:-1] == seen, "remotely: CUDA_VISIBLE_DEVICES=%s" % value, remote)
            expect(("CUDA_VISIBLE_DEVICES names none of the GPUs" in remote.errors) == (seen[0] == "cuInit: 100"),
                   "who sees no device is to be told why", remote)
        visible = {"CUDA_VISIBLE_DEVICES": "%s,%s" % (uuids[1], uuids[2])}
        remote = build.run_remote(see, server.address, ["-n", "1"], environment=visible)
        expect(remote.output.split() == [uuids[1]], "-n 1 is not the first of them", remote)
        both = build.run_remote(see, "%s,%s" % (server.address, other.address), environment=visible)
        expect(both.output.split("\n")[:-1] == ["cuInit: 100"], "both servers have a device of that UUID", both)


def test_servers_chosen(build):
    """The devices of two servers are one list, of which -n and CUDA_VISIBLE_DEVICES choose."""
    see = [sys.executable, "-c", DEVICES]
    two = {"SOFTGPU_DEVICES": "2"}
    with Server(build, environment=two) as first, Server(build, environment=two) as second:
        both = "%s,%s" % (first.address, second.address)
        names = ["5347:01:00.0", "5347:02:00.0", "6347:01:00.0", "6347:02:00.0"]
        for arguments, visible, seen in [([], None, names), (["-n", "3"], None, names[:3]),
                                         ([], "3,0", [names[3], names[0]]), ([], "2", [names[2]]),
                                         ([], "1,9,0", [names[1]]), (["-n", "3"], "3,0", ["cuInit: 100"])]:
            environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            # -n is for those that fewest use: the program before is to have ended
            wait_until(lambda: not first.workers() and not second.workers())
            result = build.run_remote(see, both, arguments, environment=environment)
            expect(result.status == 0 and result.output.split("\n")[:-1] == seen,
                   "%s, CUDA_VISIBLE_DEVICES=%s" % (arguments, visible), result)
        result = build.run_remote([build.example("device_exchange"), "2"], both,
                                  environment={"CUDA_VISIBLE_DEVICES": "2,1"})
        expect(result.status == 0, "two chosen devices do not work together", result, first.log(), second.log())
        result = build.run_remote([build.example("vector_add")], both, environment={"CUDA_VISIBLE_DEVICES": "3"})
        expect(result.status == 0, "one device of the second server does not work", result, second.log())


def test_servers_one_missing(build):
    """All servers of the list are needed: which one is missing is said, with the reason and what to do."""
    program = [build.example("vector_add")]
    with Server(build) as server:
        missing = "127.0.0.1:%d" % free_port()
        both = "%s,%s" % (server.address, missing)
        result = build.run_remote(program, both)
        expect(result.status == 125 and missing in result.errors and "refused" in result.errors and
               "all servers of the list are needed" in result.errors, "the command does not say it", result)
        for result in [build.run_remote(program, both, ["--no-check"]), build.run_by_path(program, both)]:
            expect_lost(result)
            expect(missing in result.errors and "refused" in result.errors and
                   "are needed" in result.errors, "the program's session does not say it", result)
        result = build.run_remote(program, "%s|%s" % (missing, server.address))
        expect(result.status == 0 and missing in result.errors, "no alternative was taken", result)


# Uses the devices of two servers in turn until one of them fails, then the other again, and prints what happens. The
# stream of the first holds for work of the second while that goes away.
TWO_SERVERS = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    return getattr(cuda, name)(*arguments)
def must(name, *arguments):
    result = call(name, *arguments)
    assert result == 0, (name, result)
must("cuInit", 0)
contexts, memory, streams = [], [], []
for device in range(2):
    context, address, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
    must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    must("cuCtxSetCurrent", context)
    must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1 << 20))
    must("cuStreamCreate", ctypes.byref(stream), 1)
    contexts.append(context), memory.append(address), streams.append(stream)
def use(device):
    result = call("cuCtxSetCurrent", contexts[device])
    result = result or call("cuMemsetD8_v2", memory[device], 7, ctypes.c_size_t(1 << 20))
    return result or call("cuCtxSynchronize")
print("works", use(0), use(1), flush=True)
deadline = time.time() + 60
result = 0
while not result and time.time() < deadline:
    must("cuCtxSetCurrent", contexts[0])
    other = 1 - int(sys.argv[1])
    stream = streams[other] # of the one that stays, for a copy from the one that goes
    result = call("cuCtxSetCurrent", contexts[other])
    result = result or call("cuMemcpyAsync", memory[other], memory[1 - other], ctypes.c_size_t(1 << 20), stream)
    result = result or call("cuStreamSynchronize", stream)
print("ends", result)
gone = int(sys.argv[1])
print("gone", use(gone) != 0, use(gone) != 0)
for i in range(3): # what the lost server's part was is told once
    left = use(1 - gone)
print("left", left)
count = ctypes.c_int()
must("cuDeviceGetCount", ctypes.byref(count))
print("count", count.value)
"""


def test_servers_one_dies(build):
    """One of two servers dies in the middle: calls to it fail, what waits for it goes on, the other one works."""
    for gone in 0, 1:
        with Server(build) as first, Server(build) as second:
            dying = (first, second)[gone]
            result = build.run_remote([sys.executable, "-c", TWO_SERVERS, str(gone)],
                                      "%s,%s" % (first.address, second.address), timeout=NOTICE + 60,
                                      while_running=when_working(dying, lambda pid: os.kill(pid, signal.SIGKILL)))
            expect(result.status == 0 and not result.hung, "server %d died" % gone, result, first.log(), second.log())
            lines = result.output.splitlines()
            expect(lines[0] == "works 0 0" and lines[1] == "ends 46" and lines[2:] ==
                   ["gone True True", "left 0", "count 2"], "server %d died" % gone, result)
            expect(dying.address in result.errors, "it is not said which server died", result)
