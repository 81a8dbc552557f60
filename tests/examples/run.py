"""Runs examples directly on the software device and remotely, and fails where the two differ.

usage: run.py BUILD_FOLDER compare EXAMPLE [NAME=VALUE…] VARIANT… [-- ARGUMENT…]
       run.py BUILD_FOLDER TEST

`compare` runs the example once directly and once in each variant, against one server of its own; standard output
and exit status must be the same, the example must say ok, and remote-gpu must not complain. The other tests are the
functions named test_… that cases.py finds. NAME=VALUE goes into the environment of the device: of the direct run and of the
server, not of the remote runs; servers=1,2 stands for two servers with 1 and 2 devices,
limit=SECONDS for how long one run may take. The exit status is 1 if anything differs, with the outputs on stdout.
"""

import contextlib
import difflib
import glob
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.path.insert(0, HERE)

import cases  # noqa: E402
from trial import Build, Failure, Server, stop_with_servers  # noqa: E402

# How a variant runs: by the command (preload) or LD_LIBRARY_PATH alone, and with which environment.
VARIANTS = {
    "preload": ("command", {}),
    "path": ("path", {}),
    "plain": ("command", {"REMOTE_GPU_OPT": "-all"}),
    "plain-path": ("path", {"REMOTE_GPU_OPT": "-all"}),
    "delay-0": ("command", {"REMOTE_GPU_FILTER": "delay:oneway=0"}),
    "delay-2ms": ("command", {"REMOTE_GPU_FILTER": "delay:oneway=2ms"}),
    "delay-2ms-plain": ("command", {"REMOTE_GPU_FILTER": "delay:oneway=2ms", "REMOTE_GPU_OPT": "-all"}),
    "delay-500us": ("command", {"REMOTE_GPU_FILTER": "delay:oneway=500us"}),
    "signals": ("command", {"REMOTE_GPU_FAULTS": "signals"}),
    "signals-delay-2ms": ("command", {"REMOTE_GPU_FAULTS": "signals", "REMOTE_GPU_FILTER": "delay:oneway=2ms"}),
    "tcp": ("command", {}),
    "lanes": ("command", {"REMOTE_GPU_CONNECTIONS": "3"}),
    "lane": ("command", {"REMOTE_GPU_CONNECTIONS": "1"}),
    "lanes-plain": ("command", {"REMOTE_GPU_CONNECTIONS": "2", "REMOTE_GPU_OPT": "-all"}),
    "lanes-1ms": ("command", {"REMOTE_GPU_CONNECTIONS": "2", "REMOTE_GPU_FILTER": "delay:oneway=1ms,bandwidth=5Gb"}),
    "lz4": ("command", {"REMOTE_GPU_COMPRESS": "lz4"}),
    "zstd": ("command", {"REMOTE_GPU_COMPRESS": "zstd", "REMOTE_GPU_CONNECTIONS": "2"}),
    "compress": ("command", {"REMOTE_GPU_COMPRESS": "auto", "REMOTE_GPU_FILTER": "delay:bandwidth=2Gb"}),
}


def difference(direct, remote):
    """What the remote run did otherwise than the direct one; empty if nothing."""
    found = []
    if direct.status != remote.status or remote.hung:
        found.append("directly: %s; remotely: %s" % (direct.describe(), remote.describe()))
    if direct.output != remote.output:
        found.extend(difflib.unified_diff(direct.output.splitlines(), remote.output.splitlines(), "direct", "remote",
                                          lineterm=""))
    if "remote-gpu:" in remote.errors:
        found.append("remote-gpu complained")
    return found


def give_kernels():
    """
    Lets the servers' users find what direct runs have compiled: a copy for each of them, as they see only their own. Large libraries
    would be compiled twice otherwise.
    """
    cache = os.environ.get("SOFTGPU_CACHE", "")
    for owner in glob.glob(os.path.join(cache, "identities", "*")) if cache and os.geteuid() == 0 else ():
        about = os.stat(owner)
        for name in set(os.listdir(cache)) - set(os.listdir(owner)) - {"identities"}:
            temporary = os.path.join(owner, "new." + name)
            with contextlib.suppress(OSError):
                shutil.copyfile(os.path.join(cache, name), temporary)
                os.chmod(temporary, 0o600)
                os.chown(temporary, about.st_uid, about.st_gid)
                os.rename(temporary, os.path.join(owner, name))


def compare(build, name, variants, arguments, device, counts, limit=120):
    """Runs an example directly and in the variants, with `device` in the device's environment; whether all is the same.

    `counts`: the numbers of devices of several servers, which the remote runs use together, and the direct ones as one;
    without any, there is one server.
    """
    if counts:
        device = dict(device, SOFTGPU_DEVICES=str(sum(counts)))
    command = [build.example(name), *arguments]
    if limit > 120:
        device = dict(device, SOFTGPU_GUARD="1")  # the same code on both ways
    direct = build.run_direct(command, environment=device, timeout=limit)
    if limit > 120:
        give_kernels()
    good = direct.status == 0
    print("%s directly: %s, %.2f s" % (name, direct.describe(), direct.seconds))
    if not good:
        print(direct.report())
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(build, tcp=variants == ["tcp"],
                                              environment=dict(device, SOFTGPU_DEVICES=str(count)) if count else device))
                   for count in counts or [None]]
        address = ",".join(server.address for server in servers)
        for variant in variants:
            way, environment = VARIANTS[variant]
            if way == "command":
                remote = build.run_remote(command, address, environment=environment, timeout=limit)
            else:
                remote = build.run_by_path(command, address, environment=environment, timeout=limit)
            found = difference(direct, remote)
            print("%s %s: %s, %.2f s %s" % (name, variant, remote.describe(), remote.seconds, remote.stats or ""))
            if found:
                good = False
                print("\n".join(found))
                print(remote.report())
        if not good:
            for server in servers:
                print("--- the server's log\n%s---" % server.log())
    return good


def main():
    """Runs what the command line names."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    stop_with_servers()
    build = Build(sys.argv[1])
    arguments = sys.argv[2:]
    try:
        build.check()
        if arguments[0] == "compare":
            extra = []
            if "--" in arguments:
                extra = arguments[arguments.index("--") + 1:]
                arguments = arguments[:arguments.index("--")]
            device = dict(word.split("=", 1) for word in arguments[2:] if "=" in word)
            counts = [int(word) for word in device.pop("servers", "").split(",") if word]
            limit = int(device.pop("limit", "120"))
            variants = [word for word in arguments[2:] if "=" not in word]
            good = compare(build, arguments[1], variants, extra, device, counts, limit)
        else:
            good = cases.run(build, arguments[0])
    except Failure as failure:
        sys.exit("error: %s" % failure)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
