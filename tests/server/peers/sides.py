"""The driver, and the first two devices, each with a context, a stream, and memory that is copied from and to: for programs of peers_test.py."""

import ctypes
import sys

c = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_uint64


def call(name, *arguments):
    """Calls the driver; an error ends the program, with status 3."""
    result = getattr(c, name)(*arguments)
    if result:
        print("%s: error %d" % (name, result), flush=True)
        sys.exit(3)


class Side:
    """A device: `size` bytes to copy from and to, the second filled with 255."""

    def __init__(self, device, size):
        self.context, self.source, self.target, self.stream = ctypes.c_void_p(), u64(), u64(), ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        call("cuCtxSetCurrent", self.context)
        call("cuMemAlloc_v2", ctypes.byref(self.source), ctypes.c_size_t(size))
        call("cuMemAlloc_v2", ctypes.byref(self.target), ctypes.c_size_t(size))
        call("cuMemsetD8_v2", self.target, ctypes.c_ubyte(255), ctypes.c_size_t(size))
        call("cuStreamCreate", ctypes.byref(self.stream), 1)
        call("cuCtxSynchronize")

    def enter(self):
        """Makes its context the current one."""
        call("cuCtxSetCurrent", self.context)

    def fill(self, value, offset, size):
        """Fills a part of the source, in its stream."""
        self.enter()
        call("cuMemsetD8Async", u64(self.source.value + offset), ctypes.c_ubyte(value), ctypes.c_size_t(size), self.stream)


def open_sides(size):
    """Both devices."""
    call("cuInit", 0)
    return [Side(0, size), Side(1, size)]
