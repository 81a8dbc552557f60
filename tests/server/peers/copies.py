"""Copies between two devices, both ways at once, on streams: each of another value, of which nothing of the next may be seen.

usage: copies.py SIZE COUNT MORE

COUNT copies of SIZE bytes each way; once more when there is a file MORE; with "ever", until a call fails.
"""

import ctypes
import os
import sys
import time

c, size, count, more = ctypes.CDLL("libcuda.so.1"), int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
u64 = ctypes.c_uint64


def call(name, *arguments):
    result = getattr(c, name)(*arguments)
    if result:
        print("%s: error %d" % (name, result), flush=True)
        sys.exit(3)


class Side:
    def __init__(self, device):
        self.context, self.source, self.target, self.stream = ctypes.c_void_p(), u64(), u64(), ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        call("cuCtxSetCurrent", self.context)
        call("cuMemAlloc_v2", ctypes.byref(self.source), ctypes.c_size_t(size * count))
        call("cuMemAlloc_v2", ctypes.byref(self.target), ctypes.c_size_t(size * count))
        call("cuMemsetD8_v2", self.target, ctypes.c_ubyte(255), ctypes.c_size_t(size * count))
        call("cuStreamCreate", ctypes.byref(self.stream), 1)
        call("cuCtxSynchronize")


call("cuInit", 0)
sides = [Side(0), Side(1)]


def fill(side, value, index):
    call("cuCtxSetCurrent", side.context)
    call("cuMemsetD8Async", u64(side.source.value + size * index), ctypes.c_ubyte(value), ctypes.c_size_t(size), side.stream)


def once(turn):
    for index in range(count):
        for number, side in enumerate(sides):
            fill(side, 1 + (turn + 2 * index + number) % 100, index)
        for number, side in enumerate(sides):
            other = sides[1 - number]
            call("cuMemcpyPeerAsync", u64(other.target.value + size * index), other.context,
                 u64(side.source.value + size * index), side.context, ctypes.c_size_t(size), side.stream)
        for side in sides:
            fill(side, 200, index)
    for side in sides:
        call("cuCtxSetCurrent", side.context)
        call("cuStreamSynchronize", side.stream)
    found = (ctypes.c_ubyte * size)()
    for number, side in enumerate(sides):
        call("cuCtxSetCurrent", side.context)
        for index in range(count):
            call("cuMemcpyDtoH_v2", found, u64(side.target.value + size * index), ctypes.c_size_t(size))
            wanted = bytes([1 + (turn + 2 * index + 1 - number) % 100]) * size
            print("same" if bytes(found) == wanted else "side %d, copy %d: another" % (number, index), flush=True)


once(0)
turn = 1
while more == "ever":
    once(turn)
    turn += 1
if more:
    while not os.path.exists(more):
        time.sleep(0.01)
    once(turn)
