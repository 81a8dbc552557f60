"""Memory and an event of a process on one server, opened by a process whose stream is another server's.

usage: ipc.py FOLDER export | ipc.py FOLDER import [refused]

The exporter has the first device, the importer the second; they leave each other files in FOLDER. The event is recorded behind a fill that
the exporter's stream is held before.
"""

import ctypes
import os
import sys
import time

from sides import Side, c, call, u64

NOT_READY, NOT_SUPPORTED, SIZE = 600, 801, 5 << 20
KERNEL = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry touch(.param .u64 at) { ret; }
"""
folder, role = sys.argv[1], sys.argv[2]


class Handle(ctypes.Structure):
    """A CUipcMemHandle or a CUipcEventHandle."""
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


c.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
c.cuIpcOpenEventHandle.argtypes = [ctypes.c_void_p, Handle]


def leave(name, data=b""):
    path = os.path.join(folder, name)
    with open(path + ".new", "wb") as file:
        file.write(data)
    os.rename(path + ".new", path)


def await_file(name):
    path = os.path.join(folder, name)
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path, "rb") as file:
        return file.read()


def contents(address):
    found = (ctypes.c_ubyte * SIZE)()
    call("cuMemcpyDtoH_v2", found, address, ctypes.c_size_t(SIZE))
    return bytes(found)


def export():
    side, word, event = Side(0, SIZE), u64(), ctypes.c_void_p()
    memory, signal = Handle(), Handle()
    call("cuMemAlloc_v2", ctypes.byref(word), ctypes.c_size_t(4))
    call("cuMemsetD32_v2", word, 0, ctypes.c_size_t(1))
    call("cuEventCreate", ctypes.byref(event), 6)  # disable timing, interprocess
    call("cuIpcGetMemHandle", ctypes.byref(memory), side.source)
    call("cuIpcGetEventHandle", ctypes.byref(signal), event)
    call("cuStreamWaitValue32_v2", side.stream, word, 1, 0)
    side.fill(7, 0, SIZE)
    call("cuEventRecord", event, side.stream)
    leave("handles", bytes(memory) + bytes(signal))
    await_file("waits")
    value, aside = ctypes.c_uint32(1), ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(aside), 1)
    call("cuMemcpyHtoDAsync_v2", word, ctypes.byref(value), ctypes.c_size_t(4), aside)
    call("cuStreamSynchronize", side.stream)
    await_file("written")
    print("written" if contents(side.source) == bytes([9]) * SIZE else "not written")
    await_file("over")


def launch(address):
    """What the launch of a kernel comes to that is given the address."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"touch")
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(address))
    return c.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)


def open_all():
    side = Side(1 if len(sys.argv) == 3 else 0, SIZE)
    handles = await_file("handles")
    address, event = u64(), ctypes.c_void_p()
    memory, signal = Handle.from_buffer_copy(handles[:64]), Handle.from_buffer_copy(handles[64:])
    if len(sys.argv) > 3:
        print("refused", c.cuIpcOpenMemHandle_v2(ctypes.byref(address), memory, 1),
              c.cuIpcOpenEventHandle(ctypes.byref(event), signal))
        leave("waits")
        leave("written")
        leave("over")
        return
    call("cuIpcOpenMemHandle_v2", ctypes.byref(address), memory, 1)
    call("cuIpcOpenEventHandle", ctypes.byref(event), signal)
    current = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(current))
    print("the same context" if current.value == side.context.value else "another context")
    call("cuStreamWaitEvent", side.stream, event, 0)
    call("cuMemcpyAsync", side.target, address, ctypes.c_size_t(SIZE), side.stream)
    time.sleep(0.05)
    print("waits" if c.cuStreamQuery(side.stream) == NOT_READY and c.cuEventQuery(event) == NOT_READY else "does not wait")
    leave("waits")
    call("cuStreamSynchronize", side.stream)
    print("read" if contents(side.target) == bytes([7]) * SIZE else "not read")
    side.fill(9, 0, SIZE)
    call("cuMemcpyDtoDAsync_v2", address, side.source, ctypes.c_size_t(SIZE), side.stream)
    call("cuStreamSynchronize", side.stream)
    leave("written")
    print("no kernel" if launch(address) == NOT_SUPPORTED else "a kernel")
    call("cuCtxSynchronize")
    call("cuEventDestroy_v2", event)
    call("cuIpcCloseMemHandle", address)
    print("closed", c.cuIpcCloseMemHandle(address), c.cuMemcpyDtoDAsync_v2(address, side.source, ctypes.c_size_t(4), side.stream))
    leave("over")


call("cuInit", 0)
if role == "export":
    export()
else:
    open_all()
