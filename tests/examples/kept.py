"""Tests of what is kept on disk: compiled kernels, images on the server, what a client has learned of them."""

import hashlib
import os
import struct
import tempfile

from expected import expect
from trial import Server


def test_kept_kernels(build):
    """The second start of a program compiles nothing, directly and on a server, and does the same."""
    command = [build.example("reduction")]
    with tempfile.TemporaryDirectory() as folder:
        # A server's kernels are guarded, which is other code.
        environment = {"SOFTGPU_CACHE": os.path.join(folder, "kept"), "REMOTE_GPU_LOG": "debug", "SOFTGPU_GUARD": "1"}
        first = build.run_direct(command, environment=environment)
        expect(first.status == 0 and ": compiled in " in first.errors, "nothing is compiled at first", first)
        expect(": loaded from the cache in " not in first.errors, "the cache is not new", first)
        second = build.run_direct(command, environment=environment)
        expect(second.status == 0 and second.output == first.output, "kept kernels do something else", second)
        expect(": compiled in " not in second.errors, "the second start compiles", second)
        expect(second.errors.count(": loaded from the cache in ") == first.errors.count(": compiled in "),
               "not all kernels are loaded", second)
        # A server keeps the kernels of each user apart, and from those of programs that load the device themselves.
        with Server(build, environment=environment) as server:
            filled = build.run_remote(command, server.address)
            before = len(server.log())
            remote = build.run_remote(command, server.address)
            log = server.log()[before:]
            expect(filled.status == 0 and remote.status == 0 and filled.output == remote.output == first.output,
                   "kept kernels do something else remotely", remote, log)
            expect(": loaded from the cache in " in log and ": compiled in " not in log, "the server compiles",
                   remote, log)
        # Damaged entries are compiled again.
        for path, _, names in os.walk(environment["SOFTGPU_CACHE"]):
            for name in names:
                os.truncate(os.path.join(path, name), 100)
        third = build.run_direct(command, environment=environment)
        expect(third.status == 0 and third.output == first.output, "damaged entries do harm", third)
        expect(": compiled in " in third.errors and ": loaded from the cache in " not in third.errors,
               "damaged entries are used", third)
        # Without any place to keep something all goes on.
        nowhere = build.run_direct(command, environment={"SOFTGPU_CACHE": "/proc/nowhere"})
        expect(nowhere.status == 0 and nowhere.output == first.output and not nowhere.errors, "a cache is needed",
               nowhere)


def test_known_images(build):
    """A second start waits for next to nothing; what is kept of the first may be damaged, missing or not wanted."""
    command = [os.path.join(build.folder, "bench", "startup"), "12"]
    with Server(build) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        def start(**environment):
            result = build.run_remote(command, server.address, environment={"REMOTE_GPU_CACHE": cache, **environment})
            expect(result.status == 0, "the program failed", result, server.log())
            return result.stats["round_trips"]

        def files():
            return [os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names]

        off = start(REMOTE_GPU_CACHE="off", REMOTE_GPU_OPT="-image-prefetch")
        expect(not files(), "something is kept although nothing should be")
        first = start(REMOTE_GPU_OPT="-image-prefetch")
        expect(len(files()) >= 12, "%d files are kept of 12 images" % len(files()))
        second = start(REMOTE_GPU_OPT="-image-prefetch")
        expect(second < first / 4, "%d round trips at first, %d then" % (first, second))
        # A machine that stands still for a moment makes the client give memory back, which it then asks for: not always as many.
        unwanted = start(REMOTE_GPU_OPT="-image-cache,-startup-prefetch,-image-prefetch")
        expect(min(off, unwanted) > first / 2, "knowledge is used although it is not wanted: %d and %d round trips, %d at first"
               % (off, unwanted, first))
        for path in files():
            os.unlink(path)
        # The context, the first allocation, and the result.
        first = start()
        expect(first <= 3, "%d round trips of a program that starts for the first time" % first)
        kept = files()
        expect(len(kept) >= 12, "%d files are kept of 12 images that were loaded ahead" % len(kept))
        # The first allocation, and the result; what was prefetched may have to be waited for once, all of it together.
        least = min(start() for _ in range(3))
        expect(least <= 3, "%d round trips of a program whose start is known" % least)
        for damage in (lambda data: data[:len(data) // 2 + 3], lambda data: data[:-1] + bytes([data[-1] ^ 1]),
                       lambda data: bytes(len(data)), lambda data: b""):
            before = {path: read_bytes(path) for path in kept}
            for path, data in before.items():
                with open(path, "wb") as file:
                    file.write(damage(data))
            start()
            expect({path: read_bytes(path) for path in files()} == before, "damaged files are not made again")


def test_wrong_knowledge(build):
    """What is kept is of another server: the program must not go on with parameters that are not the kernel's."""
    command = [os.path.join(build.folder, "bench", "startup"), "12"]
    with Server(build) as server, tempfile.TemporaryDirectory(prefix="remote-gpu-cache-") as cache:
        environment = {"REMOTE_GPU_CACHE": cache}
        expect(build.run_remote(command, server.address, environment=environment).status == 0, "it fails at first")
        folder = os.path.join(cache, "answers")
        # One image's: each is dropped when it is found wrong.
        name = next(name for name in os.listdir(folder) if b"lib03_kernel10" in read_bytes(os.path.join(folder, name)))
        forged = forge_parameters(read_bytes(os.path.join(folder, name)))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(forged)
        result = build.run_remote(command, server.address, environment=environment)
        expect(result.status == 1 and "error 46" in result.errors, "the program does not get the error", result)
        expect("other parameters" in result.errors, "the reason is not told", result)
        result = build.run_remote(command, server.address, environment=environment)
        expect(result.status == 0, "what was wrong is not dropped", result)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def forge_parameters(data):
    """Records of client/cache/image_cache.c whose first kernel has a larger last parameter, with checks that fit."""
    records, at = bytearray(data), 0
    while at < len(records):
        kind, _, name_size, size = struct.unpack_from("<4I", records, at + 8)
        end = at + 24 + name_size + size
        if kind == 2:
            size_of_last = end - 4
            struct.pack_into("<I", records, size_of_last, struct.unpack_from("<I", records, size_of_last)[0] + 4)
        check = hashlib.blake2b(digest_size=32)
        for part in (records[at + 8:at + 24], records[at + 24:end]):
            check.update(struct.pack("<Q", len(part)) + part)
        records[at:at + 8] = check.digest()[:8]
        at = end
    return bytes(records)


def test_kept_images(build):
    """Device code is sent once, whatever becomes of the server's files of it."""
    command = [os.path.join(build.folder, "tests", "images")]
    direct = build.run_direct(command)
    with tempfile.TemporaryDirectory(prefix="remote-gpu-images-") as folder:
        cache = os.path.join(folder, "images")

        def start(*arguments, **environment):
            with Server(build, arguments=arguments or ("--image-cache", cache)) as server:
                result = build.run_remote(command, server.address, environment={"REMOTE_GPU_CACHE": "off", **environment})
            expect(result.status == 0 and result.output == direct.output, "it goes wrong", result, server.log_text)
            return result.stats["bytes_sent"], server.log_text

        first, _ = start()
        owners = os.listdir(os.path.join(cache, "identities"))
        expect(len(owners) == 1, "one user has one folder of images: %s" % owners)
        own = os.path.join(cache, "identities", owners[0])
        kept = os.listdir(own)
        expect(len(kept) > 6, "%d images are kept" % len(kept))
        for name in kept:
            digest = hashlib.blake2b(read_bytes(os.path.join(own, name)), digest_size=32).hexdigest()
            expect(name == digest, "%s has the digest %s" % (name, digest))
        second, _ = start()
        expect(second < first / 4, "%d bytes sent at first, %d then" % (first, second))
        expect(start(REMOTE_GPU_OPT="-image-dedup")[0] > first / 2, "device code is sent where it is not named")
        # Somebody else's bytes under the name, and a file that is cut off.
        for number, name in enumerate(sorted(kept)):
            path = os.path.join(own, name)
            data = read_bytes(path)
            with open(path, "wb") as file:
                file.write(data[:-1] if number % 2 else data[:-2] + b"//")
        third, log = start()
        expect(third > first / 2, "damaged files were used")
        expect("damaged" in log, "nothing is said of damaged files", log)
        expect(start()[0] < first / 4, "damaged files are not made again")
        # There is not enough room, or none at all.
        start("--image-cache", cache, "--image-cache-size", "1M")
        expect(sum(os.path.getsize(os.path.join(own, name)) for name in os.listdir(own)) <= 1 << 20, "the limit is exceeded")
        start("--image-cache", "/proc/no/such/folder")
        start("--image-cache", "off")
