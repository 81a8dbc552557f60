"""Control messages (proto/control/control.proto) as bytes, for tests that say what no client of ours would."""

import struct

SESSION, RESUME, BULK, INTRODUCE = 1, 8, 70, 141  # purposes of a ClientHello
MAGIC = 0x31504752


def frame(message):
    """A message of the transport, without bulk data."""
    return struct.pack("<IIII", MAGIC, len(message), 0, 0) + message


def field(number, value):
    """A field of a control message: text or bytes, or a number."""
    def varint(n):
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def hello_for(purpose, fields):
    """A ClientHello of that purpose, with what belongs to it."""
    hello = (field(1, 1) + field(3, b"a test") + field(5, purpose) + field(10, field(1, b"host") + field(2, b"user")) +
             fields)
    return frame(struct.pack("<HHIQQ", 1, 1, 1, 0, 0) + field(1, hello))


def take(connection, size):
    """So many bytes of a connection."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection ended after %d of %d bytes" % (len(data), size))
        data += part
    return data


def message_of(connection):
    """The control message that comes next."""
    magic, size, bulk, _ = struct.unpack("<IIII", take(connection, 16))
    if magic != MAGIC or bulk:
        raise ValueError("no control message")
    return take(connection, size)[24:]


def fields_of(data):
    """(number, value) of each field; numbers and bytes, nothing else."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, data[at:at + size]
            at += size
        elif key & 7 in (1, 5):
            at += 8 if key & 7 == 1 else 4
        else:
            raise ValueError("a field of kind %d" % (key & 7))
