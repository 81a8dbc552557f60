"""Streams of two devices that wait for each other by events: first one that is held, then many by turns, with a copy in between, of which
each must find what was there when its turn came.

usage: waits.py TURNS [HELD]

With HELD, a file: it is made when the one stream is being waited for, and the program ends with what that comes to.
"""

import ctypes
import sys
import time

from sides import c, call, open_sides, u64

NOT_READY, SIZE = 600, 4096
turns = int(sys.argv[1])
one, other = open_sides(SIZE * turns)


def event(side):
    """A new event of the side."""
    made = ctypes.c_void_p()
    side.enter()
    call("cuEventCreate", ctypes.byref(made), 2)
    return made


def record(made, side):
    side.enter()
    call("cuEventRecord", made, side.stream)


def wait(side, made):
    side.enter()
    call("cuStreamWaitEvent", side.stream, made, 0)


def hold():
    """The first stream, until the word that is returned is 1."""
    word = u64()
    one.enter()
    call("cuMemAlloc_v2", ctypes.byref(word), ctypes.c_size_t(4))
    call("cuMemsetD8_v2", word, ctypes.c_ubyte(0), ctypes.c_size_t(4))
    call("cuStreamWaitValue32_v2", one.stream, word, ctypes.c_uint32(1), 0)
    return word


def release(word):
    aside, value = ctypes.c_void_p(), ctypes.c_uint32(1)
    one.enter()
    call("cuStreamCreate", ctypes.byref(aside), 1)
    call("cuMemcpyHtoDAsync_v2", word, ctypes.byref(value), ctypes.c_size_t(4), aside)
    call("cuStreamSynchronize", aside)


word, before, behind = hold(), event(one), event(other)
record(before, one)
wait(other, before)
other.fill(7, 0, 1)
record(behind, other)
if len(sys.argv) > 2:
    with open(sys.argv[2], "w"):
        pass
    call("cuStreamSynchronize", other.stream)
time.sleep(0.1)
print("waits" if c.cuEventQuery(behind) == NOT_READY else "does not wait")
release(word)
call("cuStreamSynchronize", other.stream)
found = (ctypes.c_ubyte * (SIZE * turns))()
other.enter()
call("cuMemcpyDtoH_v2", found, other.source, ctypes.c_size_t(1))
print("goes on" if found[0] == 7 else "went on before")

# The one fills the same memory again and again; the other copies it, each time before it is filled again.
for turn in range(turns):
    filled, copied = event(one), event(other)
    one.fill(turn % 251, 0, SIZE)
    record(filled, one)
    wait(other, filled)
    other.enter()
    call("cuMemcpyPeerAsync", u64(other.target.value + SIZE * turn), other.context, one.source, one.context,
         ctypes.c_size_t(SIZE), other.stream)
    record(copied, other)
    wait(one, copied)
other.enter()
call("cuStreamSynchronize", other.stream)
call("cuMemcpyDtoH_v2", found, other.target, ctypes.c_size_t(SIZE * turns))
wanted = b"".join(bytes([turn % 251]) * SIZE for turn in range(turns))
print("in turns" if bytes(found) == wanted else "not in turns")
