"""NVML by ctypes, as management tools in Python use it: for the programs that the tests run."""

import ctypes

SUCCESS, INSUFFICIENT_SIZE, VERSION_MISMATCH = 0, 7, 25

library = ctypes.CDLL("libnvidia-ml.so.1")
library.nvmlErrorString.restype = ctypes.c_char_p


class Pci(ctypes.Structure):
    _fields_ = [("bus_id_legacy", ctypes.c_char * 16), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint),
                ("device", ctypes.c_uint), ("device_id", ctypes.c_uint), ("subsystem_id", ctypes.c_uint),
                ("bus_id", ctypes.c_char * 32)]


class PciExtended(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("domain", ctypes.c_uint), ("bus", ctypes.c_uint), ("device", ctypes.c_uint),
                ("device_id", ctypes.c_uint), ("subsystem_id", ctypes.c_uint), ("base_class", ctypes.c_uint),
                ("sub_class", ctypes.c_uint), ("bus_id", ctypes.c_char * 32)]


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
                ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NvmlError(Exception):
    pass


def call(name, *arguments):
    """Calls a function that must succeed."""
    result = getattr(library, name)(*arguments)
    if result != SUCCESS:
        raise NvmlError("%s: %d, %s" % (name, result, library.nvmlErrorString(result).decode()))


def text(name, *arguments, size=96):
    buffer = ctypes.create_string_buffer(size)
    call(name, *arguments, buffer, ctypes.c_uint(size))
    return buffer.value.decode()


def number(name, *arguments, kind=ctypes.c_uint):
    value = kind(0)
    call(name, *arguments, ctypes.byref(value))
    return value.value


def handle(index):
    value = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(value))
    return value


def handle_by(name, key):
    value = ctypes.c_void_p()
    call(name, key.encode(), ctypes.byref(value))
    return value


def pci(device):
    out = Pci()
    call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(out))
    extended = PciExtended(version=ctypes.sizeof(PciExtended) | 1 << 24)
    call("nvmlDeviceGetPciInfoExt", device, ctypes.byref(extended))
    for name, _ in out._fields_[1:]:
        assert getattr(extended, name) == getattr(out, name), name
    wrong = PciExtended(version=77)
    result = library.nvmlDeviceGetPciInfoExt(device, ctypes.byref(wrong))
    assert result == VERSION_MISMATCH, result
    return out


def memory(device):
    out = Memory()
    call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(out))
    return out


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


class Process1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong)]


def processes(device, version="_v3", kind=Process):
    """Ids of the processes that compute on a device."""
    name = "nvmlDeviceGetComputeRunningProcesses" + version
    count = ctypes.c_uint(0)
    result = getattr(library, name)(device, ctypes.byref(count), None)
    if result == SUCCESS and count.value == 0:
        return []
    if result != INSUFFICIENT_SIZE:
        raise NvmlError("%s: %d" % (name, result))
    room = (kind * count.value)()
    call(name, device, ctypes.byref(count), room)
    return sorted(process.pid for process in room if process.memory == 2**64 - 1)


def names():
    """Of all devices."""
    return [text("nvmlDeviceGetName", handle(i))[:10] for i in range(number("nvmlDeviceGetCount_v2"))]
