"""Kernels that go wrong: the error, that the context stays lost and other processes do not, and the report.

usage: run.py BUILD_FOLDER PROGRAM [KIND…]

Each kind runs directly and remotely, with optimisations on and off; what the program prints must be the same and name
the expected error. With SOFTGPU_REPORT=1 the report must name kernel, thread, access and line.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "faults.cu")
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "scripts"))

from trial import Build, Server  # noqa: E402

# The error, and what a report says of the access and of the thread.
KINDS = {
    "healthy": ("cudaSuccess (0)", None, None),
    "misaligned": ("cudaErrorMisalignedAddress (716)", "Invalid write of size 4 bytes in __global__ memory",
                   "by thread (5,0,0) in block (1,0,0)"),
    "misaligned_loop": ("cudaErrorMisalignedAddress (716)", "Invalid read of size 2 bytes in __global__ memory",
                        "by thread (0,0,0) in block ("),
    "misaligned_vector": ("cudaErrorMisalignedAddress (716)", "Invalid write of size 16 bytes in __global__ memory",
                          "by thread (5,0,0) in block (0,0,0)"),
    "misaligned_atomic": ("cudaErrorMisalignedAddress (716)", "Invalid atomic operation of size 4 bytes in",
                          "by thread (9,0,0) in block (0,0,0)"),
    "misaligned_barrier": ("cudaErrorMisalignedAddress (716)", "Invalid read of size 4 bytes in __shared__ memory",
                           "by thread (5,0,0) in block (1,0,0)"),
    "out_of_range": ("cudaErrorIllegalAddress (700)", "Invalid write of size 4 bytes in __global__ memory",
                     "by thread (6,0,0) in block (2,0,0)"),
    "null_pointer": ("cudaErrorIllegalAddress (700)", "Invalid read of size 4 bytes in __global__ memory",
                     "by thread (3,0,0) in block (0,0,0)"),
    "shared_out_of_range": ("cudaErrorIllegalAddress (700)", "Invalid write of size 4 bytes in __shared__ memory",
                            "by thread (0,0,0) in block (0,0,0)"),
    "trap": ("cudaErrorLaunchFailure (719)", "Trap", "by thread (3,0,0) in block (0,0,0)"),
    "assertion": ("cudaErrorAssert (710)", "Assertion failed", "by thread (4,0,0) in block (0,0,0)"),
    "stack_overflow": ("cudaErrorHardwareStackError (714)", "Stack overflow", "by thread (0,0,0) in block (0,0,0)"),
    "atomic_on_local": ("cudaErrorInvalidAddressSpace (717)", "Invalid address space",
                        "by thread (0,0,0) in block (0,0,0)"),
    "bad_pointer": ("cudaErrorInvalidPc (718)", "Call through an invalid pointer", "by thread (0,0,0) in block (0,0,0)"),
    "spinning": ("cudaErrorLaunchTimeout (702)", "runs for longer than SOFTGPU_TIMEOUT", "block ("),
    "counting": ("cudaErrorLaunchTimeout (702)", "runs for longer than SOFTGPU_TIMEOUT", "block ("),
}
ENDLESS = ("spinning", "counting")
failures = []


def expect(good, kind, what, text):
    """Notes a failure, with what was seen."""
    if not good:
        failures.append("%s: %s\n%s" % (kind, what, text))


def marked_line(kind):
    """The line of the source that bears the kind's name in a comment, or None."""
    with open(SOURCE, encoding="ascii") as source:
        for number, line in enumerate(source, 1):
            if "/* %s */" % kind in line:
                return number
    return None


def expected_output(kind, error):
    """What the program prints: the error, and the same for every call after it."""
    name = error.split()[0]
    return "%s: %s\nthen: %s\nthen: %s\n" % (kind, error, name, name)


def check_report(kind, text, where):
    """The report must name what happened, who did it and where."""
    _, access, thread = KINDS[kind]
    if access is None:
        expect("=========" not in text, kind, "a report without a fault, " + where, text)
        return
    expect(access in text and thread in text, kind, "the report lacks '%s' or '%s', %s" % (access, thread, where), text)
    line = marked_line(kind)
    expect(line is None or re.search(r"faults\.cu:%d\b" % line, text), kind, "line %s is not named, %s" % (line, where),
           text)


def main():
    """Tries the kinds that are named, or all."""
    build = Build(sys.argv[1])
    program = sys.argv[2]
    kinds = sys.argv[3:] or list(KINDS)
    limit = {"SOFTGPU_TIMEOUT": "1"}
    for watched in (False, True):
        device = dict(limit, SOFTGPU_REPORT="1" if watched else "0")
        with Server(build, environment=device) as server:
            for kind in kinds:
                expected = expected_output(kind, KINDS[kind][0])
                # only the endless ones are measured by time: others may be slow on a busy machine
                alone = device if kind in ENDLESS else {"SOFTGPU_REPORT": device["SOFTGPU_REPORT"]}
                direct = build.run_direct([program, kind], environment=alone)
                output = direct.output
                if kind == "assertion":
                    message = [line for line in direct.errors.splitlines(True) if "Assertion `" in line]
                    expect(len(message) == 1 and "thread: [4,0,0]" in message[0], kind, "no message", direct.errors)
                expect(output == expected and direct.status == 0, kind, "directly", direct.output + direct.errors)
                ways = [{}] if watched else [{}, {"REMOTE_GPU_OPT": "-all"}]
                for environment in ways:
                    before = len(server.log())
                    remote = build.run_remote([program, kind], server.address, environment=environment)
                    expect(remote.output == direct.output and remote.status == direct.status, kind,
                           "remotely with %s" % environment, remote.output + remote.errors)
                if watched:
                    check_report(kind, direct.errors, "directly")
                    check_report(kind, server.log()[before:], "on the server")
                # nobody else has to do with it
                healthy = build.run_remote([program, "healthy"], server.address)
                expect(healthy.output == expected_output("healthy", KINDS["healthy"][0]), kind, "another process after it",
                       healthy.output + healthy.errors)
            if failures:
                print(server.log())
    print("\n".join(failures) or "ok: %d kinds" % len(kinds))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
