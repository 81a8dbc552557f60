"""Tests of a server that does not keep to the protocol: what stands in front of an honest one changes what it says."""

import struct
import sys
import time

from expected import expect
from passage import Passage
from trial import Server
from wire import PREAMBLE

FRAME = struct.Struct("<4I")            # magic, bytes of the message, of bulk data, 0 (transport/frame.h)
HEADER = struct.Struct("<HHIQQ")        # kind, … (struct rg_message_header)
REPLY, NOTICE = 3, 4                    # enum rg_message_kind
LANDING = 3                             # enum rg_notice_type

# One thread waits for a stream that its host function holds up, and so receives for all. The other copies to the host, and
# fills the memory with something else as soon as the copy has returned.
COPY = PREAMBLE + """
size = 1 << 20
stream, memory = ctypes.c_void_p(), ctypes.c_uint64()
must("cuStreamCreate", ctypes.byref(stream), 1)
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
must("cuMemsetD8_v2", memory, 1, ctypes.c_size_t(size))
must("cuCtxSynchronize")
host_function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(2))

def receive():
    must("cuCtxSetCurrent", context)
    must("cuLaunchHostFunc", stream, host_function, None)
    must("cuStreamSynchronize", stream)

receiver = threading.Thread(target=receive)
receiver.start()
time.sleep(0.5)
copied = (ctypes.c_ubyte * size)()
print("copy: %d" % cuda.cuMemcpyDtoH_v2(copied, memory, ctypes.c_size_t(size)))
ctypes.memset(copied, 0x55, size)
time.sleep(1)
print("of the program's own: %d bytes" % bytes(copied).count(0x55))
receiver.join()
"""


class Frames(Passage):
    """Passes messages on one by one, those to the client through `say`."""

    def forward(self, source, target, upward, number):
        if upward:
            super().forward(source, target, upward, number)
            return
        stream = source.makefile("rb")
        try:
            while True:
                frame = stream.read(FRAME.size)
                if len(frame) < FRAME.size:
                    break
                _, message, bulk, _ = FRAME.unpack(frame)
                self.say(target, frame + stream.read(message), stream.read(bulk))
            target.shutdown(1)
        except OSError:
            pass

    def say(self, client, message, bulk):
        """Sends a message (its frame included) and its bulk data to the client."""
        client.sendall(message + bulk)


class LateBytes(Frames):
    """Replies to a copy before its last bytes have come, and sends these half a second later."""

    def __init__(self, address):
        super().__init__(address)
        self.held = None
        self.late = 0

    def say(self, client, message, bulk):
        kind = HEADER.unpack_from(message, FRAME.size)[0]
        notice = struct.unpack_from("<I", message, FRAME.size + HEADER.size)[0] if kind == NOTICE else 0
        if notice == LANDING and bulk:
            if self.held:
                client.sendall(b"".join(self.held))
            self.held = message, bulk
        elif kind == REPLY and self.held:
            head, late = self.held
            self.held = None
            self.late += len(late)
            client.sendall(message + bulk + head)
            time.sleep(0.5)
            client.sendall(b"\xaa" * len(late))
        else:
            client.sendall(message + bulk)


# Copies until the connection breaks: one that has returned without an error is whole. Ends at the error, without another call.
CUT = PREAMBLE + """
import os
size = 60000
memory, copied = ctypes.c_uint64(), (ctypes.c_ubyte * size)()
must("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
must("cuMemsetD8_v2", memory, 7, ctypes.c_size_t(size))
for _ in range(1000):
    ctypes.memset(copied, 0, size)
    result = cuda.cuMemcpyDtoH_v2(copied, memory, ctypes.c_size_t(size))
    if result or bytes(copied).count(7) != size:
        print("error %d, %s" % (result, "whole" if bytes(copied).count(7) == size else "not whole"), flush=True)
        os._exit(1)
"""


def test_cut_reply(build):
    """A copy of which not all has come does not succeed, and why is said before it returns."""
    with Server(build, tcp=True) as server:
        for seed in range(1, 4):
            environment = {"REMOTE_GPU_RECONNECT": "0", "REMOTE_GPU_CONNECTIONS": "0",
                           "REMOTE_GPU_FILTER": "fault:cut_every=1000000,seed=%d" % seed}
            result = build.run_remote([sys.executable, "-c", CUT], server.address, environment=environment)
            expect(result.output.startswith("error 46"), "a broken connection is not told", result, server.log())
            expect("lost the connection to" in result.errors, "it is not said why", result, server.log())


def test_late_bytes(build):
    """Once a copy has returned nothing is written into the program's memory any more, whatever the server sends."""
    # What is passed on in another order are messages of a session that ends with its connection.
    with Server(build, tcp=True, arguments=["--reconnect-grace", "0"]) as server, LateBytes(server.address) as passage:
        result = build.run_remote([sys.executable, "-c", COPY], passage.address,
                                  environment={"REMOTE_GPU_CONNECTIONS": "0"})
        expect(passage.late > 0, "no copy came in parts", result, server.log())
        expect(result.output == "copy: 0\nof the program's own: %d bytes\n" % (1 << 20),
               "memory was written after its copy had returned", result, server.log())
