"""A program for sessions whose connections are cut: checker.py FILE [MEGABYTES]. Until FILE is there, memory is set and copied
both ways, and must hold what was written last. Prints "good".
"""

import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
size = int((sys.argv[2:] or ["4"])[0]) << 20
context, memory, host = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()


def call(name, *arguments):
    """A call of the driver API that must succeed."""
    result = getattr(cuda, name)(*arguments)
    assert result == 0, (name, result)


call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(size))
word, last = ctypes.c_uint32(), 0
while not os.path.exists(sys.argv[1]):
    for last in range(last + 1, last + 200):
        call("cuMemsetD32Async", memory, last, ctypes.c_size_t(1024), None)
    call("cuMemcpyDtoH_v2", ctypes.byref(word), memory, ctypes.c_size_t(4))
    assert word.value == last, (word.value, last)
    pattern = bytes([last % 251]) * size
    ctypes.memmove(host, pattern, size)
    call("cuMemcpyHtoD_v2", memory, host, ctypes.c_size_t(size))
    ctypes.memset(host, 255, size)
    call("cuMemcpyDtoH_v2", host, memory, ctypes.c_size_t(size))
    assert ctypes.string_at(host, size) == pattern, "wrong data"
print("good")
