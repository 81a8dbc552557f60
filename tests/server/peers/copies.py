"""Copies between two devices, both ways at once, on streams: each of another value, of which nothing of the next may be seen.

usage: copies.py SIZE COUNT MORE

COUNT copies of SIZE bytes each way; once more when there is a file MORE; with "ever", until a call fails.
"""

import ctypes
import os
import sys
import time

from sides import call, open_sides, u64

size, count, more = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sides = open_sides(size * count)


def once(turn):
    for index in range(count):
        for number, side in enumerate(sides):
            side.fill(1 + (turn + 2 * index + number) % 100, size * index, size)
        for number, side in enumerate(sides):
            other = sides[1 - number]
            call("cuMemcpyPeerAsync", u64(other.target.value + size * index), other.context,
                 u64(side.source.value + size * index), side.context, ctypes.c_size_t(size), side.stream)
        for side in sides:
            side.fill(200, size * index, size)
    for side in sides:
        side.enter()
        call("cuStreamSynchronize", side.stream)
    found = (ctypes.c_ubyte * size)()
    for number, side in enumerate(sides):
        side.enter()
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
