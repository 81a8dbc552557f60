"""Everything that a network interface carries, into a file: usage: capture.py INTERFACE FILE, until SIGTERM.

Says "ready" when it listens, and at the end how many packets it has seen and how many it has missed.
"""

import select
import signal
import socket
import struct
import sys

SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS = 263, 6
BUFFER = 512 << 20


def main():
    """Reads packets until a signal, then what is left of them."""
    interface, path = sys.argv[1:]
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
    packets.bind((interface, 0))
    packets.setblocking(False)
    print("ready", flush=True)
    with open(path, "wb") as out:
        while True:
            readable = select.select([packets], [], [], 0 if stop else 0.1)[0]
            if not readable:
                if stop:
                    break
                continue
            out.write(packets.recv(1 << 17))
    seen, missed = struct.unpack("II", packets.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    print("%d %d" % (seen, missed), flush=True)


if __name__ == "__main__":
    main()
