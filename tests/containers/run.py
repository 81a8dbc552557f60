"""Containers by podman, as docs/containers.md has them: each command of the page that is for this test is run as it stands there.

usage: run.py BUILD_FOLDER

In namespaces of its own (mounts, network), where it is the machine of the page: /etc, /run and /opt are copies, `gpu-machine` is
a name for this machine, `remote-gpu` is the one that was built, /opt/remote-gpu the portable client. podman is the real one,
with an image of Debian's that has nothing of remote-gpu. Images of ours are built twice, and must be the same.

Environment: REMOTE_GPU_TEST_PACKAGES names a folder with the Debian packages, which are built otherwise.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

import page  # noqa: E402
import pool  # noqa: E402
import rootless  # noqa: E402
import surroundings  # noqa: E402
from trial import Build, Failure, Server, call, stop_with_servers  # noqa: E402

PAGE = os.path.join(SOURCE, "docs", "containers.md")
IMAGE = "docker.io/library/debian:12"
# What podman wants where cgroups are of both versions and limits cannot be raised. Without a network of the container's own,
# which needs bridges and filters, it has the machine's, unless it says otherwise.
PODMAN = """#!/bin/sh
real="{podman} {where} --storage-driver vfs"
[ "$1" = run ] || exec $real "$@"
shift
network="--network host"
for word; do [ "$word" != --network ] || network=; done
exec $real run --runtime runc --log-driver k8s-file --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 $network "$@"
"""


def enter_namespaces():
    """Starts this program again, in namespaces of its own."""
    os.execvp("unshare", ["unshare", "--mount", "--net", "--fork", "--kill-child", "--", sys.executable, __file__, *sys.argv[1:], "inside"])


def make_machine(folder, build):
    """Copies of what the page writes to, which end with this process's namespaces."""
    call("mount", "--make-rprivate", "/")
    call("ip", "link", "set", "lo", "up")
    call("mount", "-t", "tmpfs", "tmpfs", folder)
    shutil.copytree("/etc", os.path.join(folder, "etc"), symlinks=True)
    for name in ("etc", "run", "opt"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        call("mount", "--bind", os.path.join(folder, name), "/" + name)
    with open("/etc/hosts", "w") as file:
        file.write("127.0.0.1 localhost gpu-machine\n")
    shutil.rmtree("/etc/cdi", ignore_errors=True)
    os.mkdir("/opt/remote-gpu")
    call("mount", "--bind", os.path.join(build.folder, "portable-client"), "/opt/remote-gpu")
    for name in ("bin", "home"):
        os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, "bin", "podman"), "w") as file:
        file.write(PODMAN.format(podman=shutil.which("podman"), where="--root {0}/storage --runroot {0}/running".format(folder)))
    os.chmod(os.path.join(folder, "bin", "podman"), 0o755)
    os.environ["PATH"] = os.pathsep.join([os.path.join(folder, "bin"), os.path.dirname(build.command), os.environ["PATH"]])
    os.environ["HOME"] = os.path.join(folder, "home")
    os.environ.pop("XDG_CONFIG_HOME", None)


def run_page(build, folder):
    """The page's commands, beside the servers that it speaks of."""
    os.makedirs("/run/remote-gpu/containers")
    os.chmod("/run/remote-gpu", 0o700)
    os.mkdir(os.path.join(folder, "work"))
    examples = os.path.join(folder, "work", "examples")
    os.mkdir(examples)
    call("mount", "--bind", build.example_dir, examples)  # what is copied into an image must lie in the folder that it is built from
    call("podman", "import", os.path.join(SOURCE, ".deps", "containers", "debian.tar"), IMAGE)
    state = os.path.join(folder, "state")
    with Server(build, listen="unix:/run/remote-gpu/containers/socket", arguments=["--allow-unauthenticated"]) as local, \
            Server(build, listen="127.0.0.1:7600", arguments=["--state-dir", state, "--tls-name", "gpu-machine"]) as remote:
        token = subprocess.run([build.daemon, "token", "--state-dir", state, "--user", "containers", "--server", "gpu-machine"],
                               stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        result = subprocess.run(["bash", "-c", page.script(PAGE, "podman")], env={**os.environ, "TOKEN": token},
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                                cwd=os.path.join(folder, "work"))
        print(result.stdout)
        if result.returncode != 0:
            raise Failure("the page's commands failed\n" + local.log() + remote.log())
        if result.stdout.count("\nvector_add: ok\n") != 3:
            raise Failure("not every program has said that it is well")
        if "starts: containers, by TLS; 1000@" not in remote.log():
            raise Failure("no session by TLS has come from a container:\n" + remote.log())
        surroundings.run_all(folder)


def run_pool_page(build, folder):
    """The page's commands with a pool, and what else happens to containers there."""
    os.chdir(os.path.join(folder, "work"))
    with pool.Pool(build, folder) as servers:
        result = subprocess.run(["bash", "-c", page.script(PAGE, "pool")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=600)
        print(result.stdout, flush=True)
        if result.returncode != 0 or result.stdout.count("\nvector_add: ok\n") != 1:
            raise Failure("the page's commands with a pool failed\n" + servers.log())
        servers.expect_free("the container has ended")
        pool.run_all(servers)


# --- images --------------------------------------------------------------------------------------------------

IMAGES = ("server", "client", "client-files")
# A library of the name as an old OFED's, without the versions of symbols that came later.
OLD_VERBS = "struct ibv_pd; int ibv_dealloc_pd(struct ibv_pd *pd); int ibv_dealloc_pd(struct ibv_pd *pd) { (void)pd; return 0; }\n"


def build_images(build):
    """Twice, of the same packages and tree: the digests of both. Outside of the namespaces, where there is a network."""
    packages = os.environ.get("REMOTE_GPU_TEST_PACKAGES") or os.path.join(SOURCE, "build", "packages")
    if "REMOTE_GPU_TEST_PACKAGES" not in os.environ:
        call(os.path.join(SOURCE, "scripts", "build-deb"), "--output", packages, timeout=3000)
    digests = []
    for name in ("images", "images-again"):
        folder = os.path.join(build.folder, "tests", "containers", name)
        print(call(os.path.join(SOURCE, "scripts", "build-images"), "--output", folder, "--packages", packages, "--client",
                   os.path.join(build.folder, "portable-client"), timeout=3000), flush=True)
        digests.append({})
        for image in IMAGES:
            with open(os.path.join(folder, image + ".digest")) as file:
                digests[-1][image] = file.read().strip()
    if digests[0] != digests[1]:
        raise Failure("two builds differ: %s" % digests)
    shutil.rmtree(folder)


def run_image_page(build, folder):
    """The page's commands with images of ours, from building on."""
    work = os.path.join(folder, "work")
    os.mkdir(os.path.join(work, "build"))
    os.symlink(os.path.join(build.folder, "tests", "containers", "images"), os.path.join(work, "build", "images"))
    result = subprocess.run(["bash", "-c", page.script(PAGE, "images")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=900, cwd=work)
    logs = "".join(subprocess.run(["podman", "logs", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
                   for name in ("gpu-server", "local-server"))
    print(result.stdout, logs, sep="\n", flush=True)
    if result.returncode != 0 or result.stdout.count("\nvector_add: ok\n") != 3:
        raise Failure("the page's commands with images failed, or not every program has said that it is well")
    if logs.count("starts: alice, by TLS; 65532@") != 2:
        raise Failure("two sessions of alice's by TLS are missing in the server's log")
    ended = json.loads(call("podman", "inspect", "gpu-server", "local-server"))
    if [one["State"]["ExitCode"] for one in ended] != [0, 0]:
        raise Failure("the servers did not end as they were told to: %s" % [one["State"] for one in ended])


def check_images(build):
    """Labels, users, and that the bill of materials within an image is the one beside it, with what must be in it."""
    for image in IMAGES:
        name = "localhost/remote-gpu/%s:0.1.0" % image
        labels = json.loads(call("podman", "inspect", name))[0]["Labels"]
        if labels["org.opencontainers.image.title"] != "remote-gpu/" + image or "org.opencontainers.image.revision" not in labels:
            raise Failure("%s has not its labels: %s" % (name, labels))
        with open(os.path.join(build.folder, "tests", "containers", "images", image + ".spdx.json")) as file:
            text = file.read()
        inside = {"client-files": "share/doc/remote-gpu"}.get(image, "usr/share/doc/remote-gpu-" + image)
        mounted = call("podman", "image", "mount", name).split()[-1]
        with open(os.path.join(mounted, inside, "sbom.spdx.json")) as file:
            if file.read() != text:
                raise Failure("the bill of materials in %s is another one than the one beside it" % name)
        call("podman", "image", "unmount", name)
        bill = json.loads(text)
        linked = {one["relatedSpdxElement"] for one in bill["relationships"] if one["relationshipType"] == "STATIC_LINK"}
        names = {package["name"] for package in bill["packages"]}
        if not any(one.startswith("SPDXRef-source-openssl-") for one in linked) or \
                not ({"libc6", "remote-gpu-client"} if image != "client-files" else {"protobuf-c", "jansson"}) <= names:
            raise Failure("the bill of materials of %s does not have everything: %s" % (name, sorted(names)))


def run_with_old_verbs(folder):
    """An image whose libibverbs is an old one: the doctor says so, and a program runs by TCP all the same."""
    work = os.path.join(folder, "old")
    os.mkdir(work)
    with open(os.path.join(work, "map"), "w") as file:
        file.write("IBVERBS_1.0 { global: *; };\n")
    with open(os.path.join(work, "old.c"), "w") as file:
        file.write(OLD_VERBS)
    call("cc", "-shared", "-fPIC", os.path.join(work, "old.c"), "-Wl,-soname,libibverbs.so.1",
         "-Wl,--version-script=" + os.path.join(work, "map"), "-o", os.path.join(work, "libibverbs.so.1"))
    with open(os.path.join(work, "Containerfile"), "w") as file:
        file.write("FROM localhost/vector-add\nCOPY libibverbs.so.1 /usr/lib/x86_64-linux-gnu/\n")
    call("podman", "build", "--quiet", "--tag", "old-verbs", work)
    call("podman", "start", "gpu-server")
    options = ("--rm", "--cap-drop", "all", "--read-only", "--user", "65532", "--volume",
               os.path.join(folder, "work", "credentials") + ":/credentials:ro", "--env", "REMOTE_GPU_CREDENTIALS=/credentials",
               "--env", "REMOTE_GPU_SERVER=gpu-machine")
    found = subprocess.run(["podman", "run", *options, "--entrypoint", "/opt/remote-gpu/bin/remote-gpu", "old-verbs", "doctor"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300).stdout
    if "the libibverbs.so.1 of this machine has no" not in found or "too old" not in found:
        raise Failure("the doctor says nothing of the old libibverbs:\n" + found)
    if "vector_add: ok" not in call("podman", "run", *options, "old-verbs"):
        raise Failure("no program runs in the image with an old libibverbs")
    call("podman", "stop", "--time", "30", "gpu-server")


def main():
    stop_with_servers()
    build = Build(sys.argv[1])
    if "inside" not in sys.argv:
        if os.geteuid() != 0:
            sys.exit("error: this test needs root")
        try:
            call(os.path.join(SOURCE, "scripts", "setup-containers"), timeout=1200)
            call(os.path.join(SOURCE, "scripts", "build-client"), "--output", os.path.join(build.folder, "portable-client"), timeout=1200)
            build_images(build)
        except Failure as failure:
            sys.exit("error: %s" % failure)
        enter_namespaces()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remote-gpu-containers-") as folder:
        os.chmod(folder, 0o755)
        try:
            make_machine(folder, build)
            run_page(build, folder)
            run_pool_page(build, folder)
            run_image_page(build, folder)
            rootless.run_all(build, folder, PAGE, PODMAN)
            check_images(build)
            run_with_old_verbs(folder)
        except Failure as failure:
            sys.exit("error: %s" % failure)
        finally:
            subprocess.run(["umount", "--lazy", folder])
    print("containers: ok, %.0f s" % (time.monotonic() - started))


if __name__ == "__main__":
    main()
