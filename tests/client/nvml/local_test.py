#!/usr/bin/env python3
"""The management library of the software device itself: what programs see of it where there is no server.

usage: local_test.py BUILD
"""
import ctypes
import os
import subprocess
import sys

BUILD = sys.argv[1]
SOFT = os.path.join(BUILD, "stage", "lib", "remote-gpu", "soft")
MEBIBYTE = 1 << 20
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
VERSION_MISMATCH = 25
UUID_V1, UUID_TEXT, UUID_BYTES = 0x1000034, 1, 2


def must(result, expected=SUCCESS):
    if result != expected:
        raise SystemExit(f"gave {result}, expected {expected}")


class Nvml:
    """As programs use it."""

    def __init__(self):
        self.functions = ctypes.CDLL("libnvidia-ml.so.1")
        self.text = ctypes.create_string_buffer(96)

    def count(self):
        count = ctypes.c_uint()
        must(self.functions.nvmlDeviceGetCount_v2(ctypes.byref(count)))
        return count.value

    def device(self, index):
        device = ctypes.c_void_p()
        must(self.functions.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)))
        return device

    def words(self, function, device):
        must(getattr(self.functions, function)(device, self.text, len(self.text)))
        return self.text.value.decode()

    def memory(self, device):
        """Total, free and used."""
        memory = (ctypes.c_ulonglong * 3)()
        must(self.functions.nvmlDeviceGetMemoryInfo(device, memory))
        return list(memory)

    def p2p(self, first, second, which):
        status = ctypes.c_int(99)
        must(self.functions.nvmlDeviceGetP2PStatus(first, second, which, ctypes.byref(status)))
        return status.value

    def processes(self, device):
        """Process ids and their memory."""
        count = ctypes.c_uint(4)
        list_of = (ctypes.c_ulonglong * 12)()
        must(self.functions.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), list_of))
        return [(list_of[3 * i] & 0xffffffff, list_of[3 * i + 1]) for i in range(count.value)]


def check_fabric(nvml, device):
    """A device is part of no fabric, and says so in structures of all versions, of whose size no byte more is written."""
    plain = (ctypes.c_ubyte * 32)(*[0xaa] * 32)
    must(nvml.functions.nvmlDeviceGetGpuFabricInfo(device, plain))
    assert bytes(plain) == bytes(28) + b"\xaa" * 4, bytes(plain)
    for version, size in ((2, 36), (3, 40)):
        words = (ctypes.c_uint * 11)(version << 24 | size, *[0xaaaaaaaa] * 10)
        must(nvml.functions.nvmlDeviceGetGpuFabricInfoV(device, words))
        assert list(words) == [version << 24 | size] + [0] * (size // 4 - 1) + [0xaaaaaaaa] * (11 - size // 4), list(words)
    words[0] = 9 << 24 | 40
    must(nvml.functions.nvmlDeviceGetGpuFabricInfoV(device, words), VERSION_MISMATCH)
    must(nvml.functions.nvmlDeviceGetGpuFabricInfoV(device, None), INVALID_ARGUMENT)


def check_clocks(nvml, device):
    """Clocks, and the width of memory's bus, are those that CUDA's attributes tell: programs compute a bandwidth of them."""
    out = ctypes.c_uint()
    for function in (nvml.functions.nvmlDeviceGetClockInfo, nvml.functions.nvmlDeviceGetMaxClockInfo):
        for kind in range(4):
            must(function(device, kind, ctypes.byref(out)))
            assert out.value == 1000, out.value
        must(function(device, 4, ctypes.byref(out)), INVALID_ARGUMENT)
        must(function(device, 0, None), INVALID_ARGUMENT)
    must(nvml.functions.nvmlDeviceGetMemoryBusWidth(device, ctypes.byref(out)))
    assert out.value == 64, out.value


def check_link(nvml, device):
    """Programs multiply generation and width of a device's link, and end where there are none."""
    out = ctypes.c_uint()
    for which, expected in (("CurrPcieLinkGeneration", 3), ("MaxPcieLinkGeneration", 3), ("GpuMaxPcieLinkGeneration", 3),
                            ("CurrPcieLinkWidth", 16), ("MaxPcieLinkWidth", 16)):
        function = getattr(nvml.functions, "nvmlDeviceGet" + which)
        must(function(device, ctypes.byref(out)))
        assert out.value == expected, (which, out.value)
        must(function(device, None), INVALID_ARGUMENT)


class Uuid(ctypes.Structure):
    """nvmlUUID_t: `value` is the text, or the sixteen bytes."""
    _fields_ = [("version", ctypes.c_uint), ("kind", ctypes.c_uint), ("value", ctypes.c_char * 41)]


def check_uuid_of_either_kind(nvml, device, text):
    """A device is found by its UUID as text and as bytes; what is neither is refused."""
    def found(kind, value, expected=SUCCESS, version=UUID_V1):
        out = ctypes.c_void_p()
        must(nvml.functions.nvmlDeviceGetHandleByUUIDV(ctypes.byref(Uuid(version, kind, value)), ctypes.byref(out)), expected)
        return out.value

    plain = bytes.fromhex(text[len("GPU-"):].replace("-", ""))
    assert ctypes.sizeof(Uuid) == 0x34 and found(UUID_TEXT, text.encode()) == device.value == found(UUID_BYTES, plain)
    found(UUID_TEXT, b"GPU-0", NOT_FOUND)
    found(UUID_BYTES, bytes(16), NOT_FOUND)
    found(UUID_TEXT, b"x" * 41, INVALID_ARGUMENT)  # does not end
    found(0, plain, INVALID_ARGUMENT)
    found(UUID_BYTES, plain, VERSION_MISMATCH, UUID_V1 + 1)


class Branch(ctypes.Structure):
    """nvmlSystemDriverBranchInfo_t."""
    _fields_ = [("version", ctypes.c_uint), ("text", ctypes.c_char * 80)]


def check_branch(nvml):
    """By this cuda.core finds out whether there is a management library that works."""
    version = ctypes.create_string_buffer(80)
    must(nvml.functions.nvmlSystemGetDriverVersion(version, 80))
    branch = Branch(0x1000054)
    must(nvml.functions.nvmlSystemGetDriverBranch(ctypes.byref(branch), 80))
    assert branch.text == b"r" + version.value.split(b".")[0], branch.text
    must(nvml.functions.nvmlSystemGetDriverBranch(ctypes.byref(branch), 2), INSUFFICIENT_SIZE)
    must(nvml.functions.nvmlSystemGetDriverBranch(None, 80), INVALID_ARGUMENT)
    branch.version += 1
    must(nvml.functions.nvmlSystemGetDriverBranch(ctypes.byref(branch), 80), VERSION_MISMATCH)


def use_device():
    """Allocates 64 MiB of device 0, which is NVML's device 1 here; returns what frees it."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_ulonglong()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 * MEBIBYTE)))
    return lambda: must(cuda.cuMemFree_v2(memory))


def inside():
    nvml = Nvml()
    count = ctypes.c_uint()
    must(nvml.functions.nvmlDeviceGetCount_v2(ctypes.byref(count)), UNINITIALIZED)
    must(nvml.functions.nvmlInit_v2())
    assert nvml.count() == 2, "all devices are shown, whatever CUDA_VISIBLE_DEVICES says"
    first, second = nvml.device(0), nvml.device(1)
    must(nvml.functions.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(ctypes.c_void_p())), INVALID_ARGUMENT)
    assert nvml.words("nvmlDeviceGetName", first) == "Software GPU"
    uuid = nvml.words("nvmlDeviceGetUUID", second)
    again = ctypes.c_void_p()
    must(nvml.functions.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(again)))
    must(nvml.functions.nvmlDeviceGetHandleByUUID(uuid[len("GPU-"):].encode(), ctypes.byref(again)))
    check_uuid_of_either_kind(nvml, second, uuid)
    assert again.value == second.value and uuid != nvml.words("nvmlDeviceGetUUID", first)
    assert nvml.memory(second) == [256 * MEBIBYTE, 256 * MEBIBYTE, 0], nvml.memory(second)
    assert nvml.processes(second) == []
    assert nvml.p2p(first, second, 0) == 0 and nvml.p2p(first, first, 0) == 0 and nvml.p2p(first, second, 2) == 5
    must(nvml.functions.nvmlDeviceGetTemperature(first, 0, ctypes.byref(count)), NOT_SUPPORTED)
    check_clocks(nvml, first)
    check_link(nvml, first)
    check_fabric(nvml, first)
    check_branch(nvml)
    child = os.fork()  # nothing has been initialised, so a child may use the device
    if child == 0:
        use_device()()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    free = use_device()
    assert nvml.memory(first)[2] == 0 and nvml.memory(second)[2] == 64 * MEBIBYTE, nvml.memory(second)
    assert nvml.processes(first) == [] and nvml.processes(second) == [(os.getpid(), 64 * MEBIBYTE)]
    free()
    assert nvml.memory(second)[2] == 0
    must(nvml.functions.nvmlShutdown())
    must(nvml.functions.nvmlDeviceGetCount_v2(ctypes.byref(count)), UNINITIALIZED)
    print("done")


if BUILD == "inside":
    inside()
    sys.exit()
environment = dict(os.environ, LD_LIBRARY_PATH=SOFT, SOFTGPU_DEVICES="2", SOFTGPU_MEMORY="256M", CUDA_VISIBLE_DEVICES="1")
ran = subprocess.run([sys.executable, __file__, "inside"], env=environment, stdout=subprocess.PIPE, text=True, timeout=120,
                     check=False)
if ran.returncode != 0 or ran.stdout != "done\n":
    sys.exit(f"status {ran.returncode}, printed {ran.stdout!r}")
