"""Memory and an event of a process on one server, opened by a process whose stream is another server's.

usage: ipc.py FOLDER export | ipc.py FOLDER import [HOW]

The exporter has the first device, the importer the second, or with HOW its only one; they leave each other files in FOLDER. The event is
recorded behind a fill that the exporter's stream is held before. HOW:

  alone     the importer uses no server of the exporter's
  refused   nothing can be opened
  nowhere   the same, as the handles name a server that is not there, and then are no handles
  PORT      the same, as they name that port
  outlives  the importer goes on when the exporter has ended, and a file "gone" says so
  lost      it goes on until the exporter's server has ended
  own       it goes on until its own server has ended
  reset     its context ends before it has closed anything
  idle      it does nothing for some seconds once it has opened it
  busy      its other threads use its own GPU meanwhile, and several threads open the memory
  two       the exporter has two devices, and the importer opens memory of both
  many      the exporter has more devices than the importer can have sessions; how many it opens, and how many it does not
"""

import ctypes
import os
import sys
import threading
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


def export_others(side):
    """Handles of memory of the devices behind the first one, which holds 8."""
    count, memory, handles = ctypes.c_int(), Handle(), b""
    call("cuDeviceGetCount", ctypes.byref(count))
    for device in range(1, count.value):
        other = Side(device, SIZE)
        other.fill(8, 0, SIZE)
        call("cuStreamSynchronize", other.stream)
        call("cuIpcGetMemHandle", ctypes.byref(memory), other.source)
        handles += bytes(memory)
    side.enter()
    return handles


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
    leave("handles", bytes(memory) + bytes(signal) + export_others(side))
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
    if how != "refused":
        port = 1 if how == "nowhere" else int(how)
        print("refused", *try_to_open(*(handle[:34] + port.to_bytes(2, "little") + handle[36:] for handle in handles)))
    if how == "nowhere":
        print("refused", *try_to_open(b"\1" * 64, b"\2" * 64))
    elif how == "refused":
        print("refused", *try_to_open(*handles))
    for name in ("waits", "written", "over"):
        leave(name)


def open_many(handles):
    results = [c.cuIpcOpenMemHandle_v2(ctypes.byref(u64()), Handle.from_buffer_copy(handle), 1) for handle in handles]
    print("many", results.count(0), results.count(1))
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


def lose_own(address, side):
    leave("written")
    result = 0
    while not result:
        result = c.cuMemcpyDtoD_v2(side.target, side.source, ctypes.c_size_t(SIZE)) or c.cuCtxSynchronize()
    found = (ctypes.c_ubyte * 4)()
    print("own lost", result, c.cuMemcpyDtoH_v2(found, address, ctypes.c_size_t(4)), c.cuIpcCloseMemHandle(address))
    leave("over")


def work(own, until, right):
    """What another thread does with the own GPU."""
    call("cuCtxSetCurrent", own.context)
    memory, found, n = u64(), (ctypes.c_ubyte * 4096)(), 0
    while not until.is_set() or n < 20:
        n += 1
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
        call("cuMemsetD8Async", memory, ctypes.c_ubyte(n % 251), ctypes.c_size_t(4096), own.stream)
        call("cuStreamSynchronize", own.stream)
        call("cuMemcpyDtoH_v2", found, memory, ctypes.c_size_t(4096))
        if bytes(found) != bytes([n % 251]) * 4096 or launch(memory):
            return
        call("cuMemFree_v2", memory)
    right.append(n)


def open_at_once(side, memory, opened):
    call("cuCtxSetCurrent", side.context)
    address = u64()
    call("cuIpcOpenMemHandle_v2", ctypes.byref(address), memory, 1)
    opened.append(address.value)


def open_while_busy(side, memory):
    until, right, opened = threading.Event(), [], []
    workers = [threading.Thread(target=work, args=(side, until, right)) for _ in range(3)]
    openers = [threading.Thread(target=open_at_once, args=(side, memory, opened)) for _ in range(4)]
    for thread in workers + openers:
        thread.start()
    for thread in openers:
        thread.join()
    until.set()
    for thread in workers:
        thread.join()
    good = len(right) == len(workers) and len(opened) == 4 and len(set(opened)) == 1
    print("busy" if good else "not busy: %s %s" % (right, opened), [c.cuIpcCloseMemHandle(u64(opened[0])) for _ in range(5)])


def open_two(side, address, handle):
    """Copies between the memory of two other devices, and from the second one."""
    second = u64()
    call("cuIpcOpenMemHandle_v2", ctypes.byref(second), Handle.from_buffer_copy(handle), 1)
    call("cuMemcpyDtoD_v2", side.target, second, ctypes.c_size_t(SIZE))
    good = contents(side.target) == bytes([8]) * SIZE
    side.fill(4, 0, SIZE)
    call("cuMemcpyDtoDAsync_v2", address, side.source, ctypes.c_size_t(SIZE), side.stream)
    call("cuMemcpyDtoDAsync_v2", second, address, ctypes.c_size_t(SIZE), side.stream)
    call("cuMemcpyDtoDAsync_v2", side.target, second, ctypes.c_size_t(SIZE), side.stream)
    call("cuMemcpyDtoHAsync_v2", found := (ctypes.c_ubyte * SIZE)(), side.target, ctypes.c_size_t(SIZE), side.stream)
    call("cuStreamSynchronize", side.stream)
    print("two" if good and bytes(found) == bytes([4]) * SIZE else "not two", c.cuIpcCloseMemHandle(second))


def reset(address, memory):
    """The context ends, and what was opened in it with it; it can be opened again."""
    call("cuDevicePrimaryCtxReset_v2", 0)
    context, again, word = ctypes.c_void_p(), u64(), ctypes.c_uint32()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    print("reset", c.cuMemcpyDtoH_v2(ctypes.byref(word), address, ctypes.c_size_t(4)), c.cuIpcCloseMemHandle(address))
    call("cuIpcOpenMemHandle_v2", ctypes.byref(again), memory, 1)
    call("cuMemcpyDtoH_v2", ctypes.byref(word), again, ctypes.c_size_t(4))
    print("opened again %x" % word.value, c.cuIpcCloseMemHandle(again), c.cuIpcCloseMemHandle(again))
    leave("over")


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
    handles, second = (handles[:64], handles[64:128]), handles[128:]
    address, event = u64(), ctypes.c_void_p()
    memory, signal = (Handle.from_buffer_copy(handle) for handle in handles)
    if how in ("refused", "nowhere") or how.isdigit():
        be_refused(handles)
        return
    if how == "many":
        open_many([handles[0], *(second[at:at + 64] for at in range(0, len(second), 64))])
        return
    if how == "busy":
        open_while_busy(side, memory)
    call("cuIpcOpenMemHandle_v2", ctypes.byref(address), memory, 1)
    call("cuIpcOpenEventHandle", ctypes.byref(event), signal)
    if how == "idle":
        time.sleep(4)
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
    if how == "two":
        open_two(side, address, second[:64])
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
    if how in ("lost", "own"):
        (lose if how == "lost" else lose_own)(address, side)
        return
    leave("written")
    print("no kernel" if launch(address) == NOT_SUPPORTED and launch(side.source) == 0 else "a kernel, or none at all")
    call("cuCtxSynchronize")
    call("cuEventDestroy_v2", event)
    if how == "reset":
        reset(address, memory)
        return
    call("cuIpcCloseMemHandle", address)
    print("closed", c.cuIpcCloseMemHandle(address), c.cuMemcpyDtoDAsync_v2(address, side.source, ctypes.c_size_t(4), side.stream))
    leave("over")


call("cuInit", 0)
if role == "export":
    export()
else:
    open_all()
