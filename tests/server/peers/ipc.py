"""Memory and an event of a process on one server, opened by a process whose stream is another server's.

usage: ipc.py FOLDER export | ipc.py FOLDER import [HOW]

The exporter has the first device, the importer the second, or with HOW its only one; they leave each other files in FOLDER. The event is
recorded behind a fill that the exporter's stream is held before. HOW:

  alone     the importer uses no server of the exporter's
  refused   nothing can be opened
  nowhere   the same, as the handles name a server that is not there, and then are no handles
  outlives  the importer goes on when the exporter has ended, and a file "gone" says so
  lost      it goes on until the exporter's server has ended
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
folder, role, how = sys.argv[1], sys.argv[2], "".join(sys.argv[3:])


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


def try_to_open(*handles):
    """What the driver says to a handle of memory, and to one of an event."""
    return (c.cuIpcOpenMemHandle_v2(ctypes.byref(u64()), Handle.from_buffer_copy(handles[0]), 1),
            c.cuIpcOpenEventHandle(ctypes.byref(ctypes.c_void_p()), Handle.from_buffer_copy(handles[1])))


def be_refused(handles):
    if how == "nowhere":
        print("refused", *try_to_open(*(handle[:34] + b"\1\0" + handle[36:] for handle in handles)))  # port 1
        print("refused", *try_to_open(b"\1" * 64, b"\2" * 64))
    else:
        print("refused", *try_to_open(*handles))
    for name in ("waits", "written", "over"):
        leave(name)


def describe(address, side):
    """Whether what the driver says of the memory is true, as far as the program can tell; how many devices it has."""
    context, device, kind, count = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    start, size = u64(), ctypes.c_size_t()
    call("cuPointerGetAttribute", ctypes.byref(context), 1, address)
    call("cuPointerGetAttribute", ctypes.byref(kind), 2, address)
    call("cuPointerGetAttribute", ctypes.byref(device), 9, address)
    call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), u64(address.value + 100))
    call("cuDeviceGetCount", ctypes.byref(count))
    known = (context.value, kind.value, device.value, start.value) == (side.context.value, 2, 0, address.value)
    print("known" if known and size.value >= SIZE else "unknown", count.value)
    print("no export", c.cuIpcGetMemHandle(ctypes.byref(Handle()), address), c.cuMemFree_v2(address), c.cuDeviceGet(ctypes.byref(device), 1))


def use_managed(address):
    """Memory that the host writes and the device has goes to the other server as it is, and comes back."""
    managed = u64()
    call("cuMemAllocManaged", ctypes.byref(managed), ctypes.c_size_t(SIZE), 1)
    ctypes.memset(managed.value, 5, SIZE)
    call("cuMemcpyDtoD_v2", address, managed, ctypes.c_size_t(SIZE))
    ctypes.memset(managed.value, 6, SIZE)
    there = contents(address) == bytes([5]) * SIZE
    call("cuMemcpyDtoD_v2", managed, address, ctypes.c_size_t(SIZE))
    print("managed" if there and ctypes.string_at(managed.value, SIZE) == bytes([5]) * SIZE else "not managed")
    call("cuMemFree_v2", managed)


def use_all_copies(address, side):
    """Each way of copying and filling; the exporter finds 9 in the end."""
    half, host = SIZE // 2, (ctypes.c_ubyte * SIZE)()
    ctypes.memset(host, 11, SIZE)
    call("cuMemcpyHtoD_v2", address, host, ctypes.c_size_t(half))
    call("cuMemcpyHtoDAsync_v2", u64(address.value + half), host, ctypes.c_size_t(SIZE - half), side.stream)
    call("cuStreamSynchronize", side.stream)
    good = contents(address) == bytes([11]) * SIZE
    call("cuMemsetD8_v2", address, ctypes.c_ubyte(12), ctypes.c_size_t(half))
    call("cuMemsetD8Async", u64(address.value + half), ctypes.c_ubyte(13), ctypes.c_size_t(SIZE - half), side.stream)
    call("cuMemcpyPeerAsync", side.target, side.context, address, side.context, ctypes.c_size_t(SIZE), side.stream)
    call("cuMemcpyDtoHAsync_v2", host, side.target, ctypes.c_size_t(SIZE), side.stream)
    call("cuStreamSynchronize", side.stream)
    good = good and bytes(host) == bytes([12]) * half + bytes([13]) * (SIZE - half)
    # within the memory
    call("cuMemcpyDtoD_v2", address, u64(address.value + half), ctypes.c_size_t(half))
    good = good and contents(address)[:half] == bytes([13]) * half
    print("all copies" if good and c.cuMemcpyDtoD_v2(address, side.source, ctypes.c_size_t(SIZE + (64 << 20))) else "not all copies")


def outlive(address, side, handles):
    leave("written")
    leave("over")
    await_file("gone")
    call("cuMemcpyDtoD_v2", side.target, address, ctypes.c_size_t(SIZE))
    print("outlives" if contents(side.target) == bytes([9]) * SIZE else "does not outlive")
    print("opened before", *try_to_open(*handles))


def lose(address, side):
    leave("written")
    result = 0
    while not result:
        result = c.cuMemcpyDtoD_v2(side.target, address, ctypes.c_size_t(SIZE))
    print("lost", result, c.cuMemcpyDtoD_v2(side.target, address, ctypes.c_size_t(SIZE)))
    call("cuMemsetD8_v2", side.target, ctypes.c_ubyte(3), ctypes.c_size_t(SIZE))
    print("goes on" if contents(side.target) == bytes([3]) * SIZE else "does not go on", c.cuIpcCloseMemHandle(address))
    leave("over")


def open_all():
    side = Side(0 if how else 1, SIZE)
    handles = await_file("handles")
    handles = handles[:64], handles[64:]
    address, event = u64(), ctypes.c_void_p()
    memory, signal = (Handle.from_buffer_copy(handle) for handle in handles)
    if how in ("refused", "nowhere"):
        be_refused(handles)
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
    if how == "alone":
        describe(address, side)
        use_managed(address)
        use_all_copies(address, side)
    call("cuMemcpyDtoDAsync_v2", address, side.source, ctypes.c_size_t(SIZE), side.stream)
    call("cuStreamSynchronize", side.stream)
    if how == "outlives":
        outlive(address, side, handles)
        return
    if how == "lost":
        lose(address, side)
        return
    leave("written")
    print("no kernel" if launch(address) == NOT_SUPPORTED and launch(side.source) == 0 else "a kernel, or none at all")
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
