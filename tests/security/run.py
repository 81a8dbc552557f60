"""Who may use a server, what others see of it on the network, and what is said to those who may not.

usage: run.py BUILD_FOLDER CASE

Two machines, joined by a cable (machines.py): a server with the software device on one, users on the other. Everything
is the real thing: the installed programs, TLS over TCP between network namespaces, and a capture of all packets. Skipped
(exit status 77) without the right to make namespaces.
"""

import concurrent.futures
import json
import os
import re
import shutil
import stat
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "scripts"))
sys.path.insert(0, HERE)

from authority import Authority  # noqa: E402
from machines import NAME, PORT, Background, World, checked, expect, skip, works  # noqa: E402
from trial import Failure, run_case, wait_until  # noqa: E402

# What a program is known by, if it can be read (marker.c).
CONTENTS = b"a-text-that-only-this-program-sends/"
KERNEL = b"a_kernel_that_only_this_program_has"
ARGUMENT = "an-argument-that-only-this-program-has"
OURS = re.compile("^remote-gpud?: ")


def refused(result, *words):
    """One line of ours says why, with all of these words in it; and nothing was run."""
    lines = [line for line in result.errors.splitlines() if OURS.match(line)]
    expect(result.status not in (0, None) and not result.hung and not result.crashed, "it was not refused", result)
    expect(len(lines) == len(result.errors.splitlines()), "not every line is ours", result)
    for word in words:
        expect(any(re.search(word, line) for line in lines), "it is not said: %r" % word, result)


def modes(folder):
    """The modes of all files and folders below."""
    found = {}
    for path, _, names in os.walk(folder):
        found[os.path.relpath(path, folder)] = stat.S_IMODE(os.lstat(path).st_mode)
        for name in names:
            path_of = os.path.join(path, name)
            found[os.path.relpath(path_of, folder)] = stat.S_IMODE(os.lstat(path_of).st_mode)
    return found


def credentials_of(world):
    """Where join has put them."""
    return os.path.join(world.client.home, ".config", "remote-gpu", "servers", NAME)


# --- how it should be ----------------------------------------------------------------------------------------


def case_two_commands(world):
    """Two commands on the server, one on the client: then a program runs, by TLS, without any option."""
    daemon = world.start_server()
    expect("remote-gpud token" in daemon.output(), "the first start does not say what to do next:\n" + daemon.output())
    token = world.token("alice")
    refused(world.remote_gpu("run", "-s", NAME, "--", "true"), "remote-gpu join")
    joined = works(world.remote_gpu("join", token))
    expect("alice" in joined.output, "it does not say who joined", joined)
    result = works(world.remote_gpu("run", "--", world.build.example("vector_add")))
    expect("ok" in result.output.lower() or "pass" in result.output.lower(), "the program did not work", result)
    for path, mode in modes(os.path.join(world.client.home, ".config", "remote-gpu")).items():
        expect(mode & 0o077 == 0, "%s is open to others: %04o" % (path, mode))
    for path, mode in modes(world.state).items():
        expect(mode & 0o077 == 0, "%s of the server is open to others: %04o" % (path, mode))
    refused(world.remote_gpu("join", token), "already", "--force")
    users = world.manage("users")
    expect("alice" in users.output, "users does not show alice", users)


def case_shown(world):
    """list, smi, --stats and the profile say who a session is and that it is encrypted; doctor and netperf work."""
    world.start_server()
    world.join("alice")
    program = world.hold()
    text = works(world.remote_gpu("list"))
    expect(re.search(r"session \d+: .*, alice, encrypted: ", text.output), "list does not show it", text)
    expect("unauthenticated" not in text.output, "list says unauthenticated", text)
    (server,) = json.loads(works(world.remote_gpu("list", "--json")).output)["servers"]
    expect(server["sessions"][0]["identity"] == "alice" and server["sessions"][0]["encrypted"] is True and
           server["unauthenticated"] is False, "JSON does not say it: %s" % server)
    works(world.remote_gpu("smi"))
    works(world.remote_gpu("version", "-s", NAME))
    program.stop()
    profile = world.path("profile.json")
    result = works(world.marker("1", "1"))
    stats = json.loads(result.stats_text)
    expect(stats["encrypted"] is True and stats["identity"] == "alice" and stats["cipher"].startswith("TLS_"),
           "the statistics do not say it: %s" % result.stats_text)
    profiled = world.remote_gpu("run", "--profile=" + profile, "--", world.marker_path(), "1", "1")
    expect(profiled.status == 0 and "encrypted" in profiled.errors and "as alice" in profiled.errors,
           "the profile's summary does not say it", profiled)
    measured = works(world.remote_gpu("netperf", "--quick", "--json"))
    links = json.loads(measured.output)["links"]
    expect(links[1]["name"] == "tls" and len(links[1]["points"]) > 2, "netperf did not measure TLS", measured)
    expect(links[0]["kind"] == "socket" and links[0]["points"] == [] and "without TLS" in links[0]["error"],
           "netperf measured a bare socket beside TLS, or does not say that it has not", measured)
    asked = works(world.remote_gpu("run", "--", sys.executable, "-c", NVML))
    expect(asked.output == "0 0 1\n", "the management library does not see the GPU", asked)
    doctor = world.remote_gpu("doctor", "-s", NAME)
    expect(re.search(r"^ok +server ", doctor.output, re.MULTILINE) and "TLS" in doctor.output, "doctor", doctor)


NVML = """
import ctypes
library = ctypes.CDLL("libnvidia-ml.so.1")
count = ctypes.c_uint()
print(library.nvmlInit_v2(), library.nvmlDeviceGetCount_v2(ctypes.byref(count)), count.value)
"""


def case_ordinary_users(world):
    """Server and client run by users without rights: everything works with what these may do."""
    if not shutil.which("setpriv"):
        skip("there is no program setpriv")
    work = world.path("work")
    os.mkdir(work)
    os.chown(work, 65534, 65534)
    world.work, world.state = work, os.path.join(work, "state")
    world.server.prefix = world.client.prefix = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    world.server.home = world.client.home = work
    for variable, name in (("SOFTGPU_CACHE", "soft"), ("REMOTE_GPU_IMAGE_CACHE", "images")):
        os.environ[variable] = os.path.join(work, name)
    world.start_server()
    world.join("nobody")
    program = world.hold()
    expect(re.search(", nobody, encrypted: ", works(world.remote_gpu("list")).output), "list does not show it")
    expect(world.manage("revoke", "nobody").status == 0, "revoke")
    expect(wait_until(lambda: "revoked" in program.output(), 2), "the session did not end:\n" + program.output())


def seen_of(data):
    """What of the program can be read in captured packets."""
    names = {"the contents of its memory": CONTENTS, "the name of its kernel": KERNEL, "an argument of it": ARGUMENT.encode(),
             "the user's name": b"alice", "its PTX": b".visible .entry"}
    return sorted(what for what, text in names.items() if text in data)


def case_nothing_in_the_clear(world):
    """No byte of a program can be read on the network; without TLS, all of it can."""
    world.start_server()
    world.join("alice")
    for lanes, size in (("0", "4"), ("3", "32"), ("auto", "8")):
        with world.capture() as packets:
            result = works(world.marker(size, "2", ARGUMENT, REMOTE_GPU_CONNECTIONS=lanes))
        expect("ok" in result.output, "the program did not work", result)
        expect(len(packets.data) > (int(size) << 20) * 4, "too little was captured: %d bytes" % len(packets.data), result)
        expect(seen_of(packets.data) == [], "it can be read: %s" % seen_of(packets.data), result)
        if lanes == "3":
            expect(result.stats["bulk_connections"] == 3, "no connections for bulk data: %s" % result.stats, result)
    with world.capture() as packets:
        works(world.remote_gpu("list"))
        works(world.remote_gpu("netperf", "--quick"))
    expect(seen_of(packets.data) == [], "it can be read: %s" % seen_of(packets.data))


def case_the_capture_can_read(world):
    """The same without TLS: so the test above would notice. Everybody says that it is unauthenticated."""
    daemon = world.start_server("--allow-unauthenticated")
    expect("unauthenticated" in daemon.output(), "the server does not say it:\n" + daemon.output())
    refused(world.remote_gpu("run", "-s", NAME, "--", "true"), "remote-gpu join", "--allow-unauthenticated")
    with world.capture() as packets:
        result = works(world.marker("4", "2", ARGUMENT, REMOTE_GPU_SERVER=NAME, REMOTE_GPU_ALLOW_UNAUTHENTICATED="yes"))
    seen = seen_of(packets.data)
    expect({"the contents of its memory", "the name of its kernel", "an argument of it", "its PTX"} <= set(seen),
           "the capture does not show what is not encrypted: %s" % seen, result)
    expect(json.loads(result.stats_text)["encrypted"] is False, "the statistics say encrypted", result)
    text = works(world.remote_gpu("list", "-s", NAME, "--allow-unauthenticated"))
    expect("takes unauthenticated clients" in text.output, "list does not say it", text)


def case_own_authority(world):
    """The operator's own authority: a mounted secret, names of SPIFFE, and new files on SIGHUP."""
    authority = Authority(world.path("authority"))
    certificate, key = authority.issue("server", "gpu", "DNS:gpu-machine,IP:10.77.0.1")
    daemon = world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
    refused(world.remote_gpu("run", "-s", NAME, "--", "true"), "remote-gpu join")
    folder = authority.credentials(world.path("alice"), "alice")
    works(world.marker("1", "1", options=("-s", NAME), REMOTE_GPU_CREDENTIALS=folder))
    works(world.marker("1", "1", options=("-s", "10.77.0.1"), REMOTE_GPU_CREDENTIALS=folder))
    spiffe = authority.credentials(world.path("spiffe"), "workload", alternative="URI:spiffe://example.org/train")
    result = works(world.marker("1", "1", options=("-s", NAME), REMOTE_GPU_CREDENTIALS=spiffe))
    expect(json.loads(result.stats_text)["identity"] == "spiffe://example.org/train", "the name is not SPIFFE's", result)
    # as a secret is mounted, and replaced while programs run
    mounted = world.path("secret")
    os.makedirs(os.path.join(mounted, "..1"))
    for name in ("ca.crt", "tls.crt", "tls.key"):
        shutil.copy(os.path.join(folder, name), os.path.join(mounted, "..1", name))
        os.chmod(os.path.join(mounted, "..1", name), 0o400)
        os.symlink(os.path.join("..data", name), os.path.join(mounted, name))
    os.symlink("..1", os.path.join(mounted, "..data"))
    works(world.marker("1", "1", options=("-s", NAME), REMOTE_GPU_CREDENTIALS=mounted))
    # another authority: the server takes it on SIGHUP, and clients of the old one are strangers then
    other = Authority(world.path("other"), "another authority")
    new_certificate, new_key = other.issue("server", "gpu", "DNS:gpu-machine")
    for source, target in ((other.root, authority.root), (new_certificate, certificate), (new_key, key)):
        shutil.copy(source, target)
    theirs = other.credentials(world.path("bob"), "bob")
    daemon.process.send_signal(1)
    expect(wait_until(lambda: world.marker("1", "1", options=("-s", NAME), REMOTE_GPU_CREDENTIALS=theirs).status == 0, 20),
           "the new authority's clients are refused:\n" + daemon.output())
    refused(world.marker("1", "1", options=("-s", NAME), REMOTE_GPU_CREDENTIALS=folder), "authority")


def case_two_servers(world):
    """Servers of different authorities in one program: each gets what is its own, and nothing of the other's."""
    names = [NAME, "gpu-machine:7601"]
    states = [world.state, world.path("other-state")]
    for name, state, user in zip(names, states, ("alice", "alicia")):
        world.start_server(listen="0.0.0.0:" + name.split(":")[1], state=state)
        works(world.remote_gpu("join", world.token(user, server=name, state=state)))
    listed = works(world.remote_gpu("list"))
    expect(names[1] in listed.output and names[0] not in listed.output, "it is not the last that is the default", listed)
    result = works(world.marker("4", "2", options=("-s", ",".join(names))))
    expect(json.loads(result.stats_text)["encrypted"] is True, "not all of it is encrypted", result)
    # They are connected to each other for its copies, each by the certificate that the program expects of it.
    stats = world.path("copies")
    copies = works(world.remote_gpu("run", "--stats=" + stats, "-s", ",".join(names), "--", "python3",
                                    os.path.join(HERE, "..", "server", "peers", "copies.py"), str(1 << 20), "2", ""))
    with open(stats) as file:
        counts = json.load(file)
    expect(counts["peer_direct"] == 4 << 20 and counts["encrypted"] is True, "they were not connected", copies)
    base = os.path.dirname(credentials_of(world))
    for name in ("ca.crt", "tls.crt", "tls.key"):  # those of one are worth nothing to the other
        shutil.copy(os.path.join(base, names[0], name), os.path.join(base, names[1], name))
    refused(world.remote_gpu("list", "-s", names[1]), "authority")


# --- what is refused, and how that is said ---------------------------------------------------------------------


def case_revoked(world):
    """Who is revoked has no running session a second later, and gets no new one."""
    daemon = world.start_server()
    world.join("alice")
    world.join("bob", "--credentials", world.path("bob"))
    alice, bob = world.hold(), world.hold(REMOTE_GPU_CREDENTIALS=world.path("bob"), REMOTE_GPU_SERVER=NAME)
    revoked = world.manage("revoke", "alice")
    expect(revoked.status == 0, "revoke", revoked)
    done = time.monotonic()
    ended = wait_until(lambda: "ended with error" in alice.output() or alice.process.poll() is not None, 5)
    after = time.monotonic() - done
    expect(ended, "the session did not end in %.2f s:\n%s" % (after, alice.output()))
    print("the session ended %.2f s after revoke" % after)
    expect("revoked" in alice.output(), "it was not told why:\n" + alice.output())
    refused(world.marker("1", "1"), "revoked", "operator")
    refused(world.remote_gpu("list"), "revoked")
    expect(bob.process.poll() is None and "error" not in bob.output(), "another user's session ended:\n" + bob.output())
    works(world.remote_gpu("list", "-s", NAME, REMOTE_GPU_CREDENTIALS=world.path("bob")))
    for event in ('event=join user="alice"', 'event=grant user="alice"', r'event=revoke user="alice" .* session=1 .* why=".*revoked',
                  r'event=refuse user="alice" .* why=".*revoked'):
        expect(re.search("audit: " + event, daemon.output()), "the audit log has no %s:\n%s" % (event, daemon.output()))
    expect("rgpu1:" not in daemon.output(), "there is a secret in the log")
    world.join("alice", "--force")  # a new token makes alice welcome again
    works(world.marker("1", "1"))


def nothing_left(world, folder=None):
    """No trace of a join that failed."""
    base = folder or os.path.join(world.client.home, ".config", "remote-gpu")
    left = [os.path.join(path, name) for path, _, names in os.walk(base) for name in names]
    expect(left == [], "something was left behind: %s" % left)


def case_tokens(world):
    """A token is good once, for a time, at the server of its authority; a join that fails leaves nothing behind."""
    world.start_server()
    token = world.token("alice")
    damaged = token.replace("rgpu1:", "rgpu1:A", 1)
    refused(world.remote_gpu("join", damaged), "damaged")
    refused(world.remote_gpu("join", "nonsense"), "is no token")
    other = ("B" if token[6] != "B" else "C").join((token[:6], token[7:]))  # the hash of another authority
    refused(world.remote_gpu("join", other), "authority")
    at = token.index("@")
    secret = token[:at - 4] + ("AAAA" if token[at - 4:at] != "AAAA" else "BBBB") + token[at:]
    refused(world.remote_gpu("join", secret), "token")
    refused(world.remote_gpu("join", token.replace(":%d" % PORT, ":7666")), "connection refused", "good as before")
    refused(world.remote_gpu("join", token.replace("gpu-machine", "no-such-machine.invalid")), "no-such-machine")
    nothing_left(world)
    works(world.remote_gpu("join", token))  # none of that used it up
    refused(world.remote_gpu("join", token, "--credentials", world.path("again")), "used")
    nothing_left(world, world.path("again"))
    works(world.remote_gpu("list"))
    short = world.token("bob", "--expires", "1s")
    time.sleep(2.1)
    refused(world.remote_gpu("join", short, "--credentials", world.path("late")), "valid until", "operator")
    twice = world.token("carol", "--uses", "2")
    for name in ("first", "second"):
        works(world.remote_gpu("join", twice, "--credentials", world.path(name)))
    refused(world.remote_gpu("join", twice, "--credentials", world.path("third")), "used")


def case_disk_full_at_join(world):
    """A disk that is full costs no token, and leaves nothing behind."""
    world.start_server()
    token = world.token("alice")
    small = world.path("small")
    os.mkdir(small)
    result = world.run("sh", "-c", "mount -t tmpfs -o size=16k none %s && exec %s join --credentials %s/credentials %s" % (
        small, world.build.command, small, token))
    refused(result, "No space left", "make room")
    left = world.run("sh", "-c", "find %s -type f" % small)
    expect(left.output == "", "something was left behind", left)
    world.run("umount", small)
    works(world.remote_gpu("join", token))


def case_read_only_folder(world):
    """A folder that cannot be written costs no token either."""
    world.start_server()
    token = world.token("alice")
    fixed = world.path("fixed")
    os.mkdir(fixed)
    result = world.run("sh", "-c", "mount -t tmpfs -o ro none %s && exec %s join --credentials %s/credentials %s" % (
        fixed, world.build.command, fixed, token))
    refused(result, "Read-only", "REMOTE_GPU_CREDENTIALS")
    works(world.remote_gpu("join", token))
    places = " && ".join("mount -t tmpfs -o ro none " + place for place in ("/run", "/dev/shm"))
    places += "".join(" && mount --bind %s %s && mount -o remount,bind,ro %s" % (place, place, place) for place in ("/tmp", "/var/tmp"))
    result = world.run_server("sh", "-c", "%s && exec %s --driver soft --config /dev/null --state-dir %s --listen 127.0.0.1:0" % (
        places, world.build.daemon, world.path("other")))
    expect(result.status == 125 and re.search("/run/remote-gpu cannot be .*: Read-only.*tmpfs", result.errors), "it is not said", result)


def case_dates(world):
    """Certificates that are expired or not yet valid, of either side, and clocks that are wrong."""
    authority = Authority(world.path("authority"))
    certificate, key = authority.issue("server", "gpu", "DNS:gpu-machine")
    good = authority.credentials(world.path("good"), "alice")
    old = authority.credentials(world.path("old"), "old", begins=-7200, ends=-3600)
    early = authority.credentials(world.path("early"), "early", begins=3600, ends=7200)
    daemon = world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
    works(world.remote_gpu("list", "-s", NAME, "--credentials", good))
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", old), "expired")
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", early), "not valid before", "clock")
    clock = os.path.join(world.build.folder, "tests", "moved_clock.so")
    for shift, words in ((-400, ("not valid before", "clock")), (400, ("expired",))):
        refused(world.remote_gpu("list", "-s", NAME, "--credentials", good, LD_PRELOAD=clock, SHIFT_SECONDS=str(shift * 86400)),
                *words)
    # what the client believes is the server's to decide: its clock says otherwise here
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", old, LD_PRELOAD=clock, SHIFT_SECONDS="-5000"), "expired")
    daemon.stop()
    # a server says at once that its certificate is of no use, and clients say so if that comes later
    for begins, ends, words in ((-7200, -3600, "was valid until"), (3600, 7200, "not valid before")):
        certificate, key = authority.issue("server", "gpu-%d" % ends, "DNS:gpu-machine", begins=begins, ends=ends)
        try:
            world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
            expect(False, "the server started")
        except Failure as failure:
            expect(words in str(failure), "the server does not say it: %s" % failure)
    certificate, key = authority.issue("server", "short", "DNS:gpu-machine", ends=8)
    world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
    works(world.remote_gpu("list", "-s", NAME, "--credentials", good))
    expect(wait_until(lambda: world.remote_gpu("list", "-s", NAME, "--credentials", good).status != 0, 30, 0.5),
           "a server whose certificate has expired is used")
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", good), "server's certificate", "expired")


def case_outlived_certificate(world):
    """A program that runs longer than its certificate: it loses the session with a sentence, unless its files are renewed."""
    authority = Authority(world.path("authority"))
    certificate, key = authority.issue("server", "gpu", "DNS:gpu-machine")
    later = authority.credentials(world.path("later"), "alice", ends=3600)
    world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
    folders = [authority.credentials(world.path(name), name, ends=20) for name in ("alice", "bob")]
    alice, bob = [world.hold(REMOTE_GPU_SERVER=NAME, REMOTE_GPU_CREDENTIALS=folder) for folder in folders]
    for name in ("tls.key", "tls.crt"):  # as cert-manager does
        os.replace(os.path.join(later, name), os.path.join(folders[0], name))
    expect(wait_until(lambda: bob.process.poll() is not None, 60), "a session outlives its certificate:\n" + bob.output())
    expect("has expired" in bob.output() and "renew" in bob.output(), "it is not said why:\n" + bob.output())
    time.sleep(2)
    expect(alice.process.poll() is None and "expire" not in alice.output(),
           "the renewed certificate was not shown:\n" + alice.output())


def case_strangers(world):
    """A wrong authority on either side, a wrong name, and certificates for another purpose."""
    authority, other = Authority(world.path("authority")), Authority(world.path("other"), "another authority")
    certificate, key = authority.issue("server", "gpu", "DNS:gpu-machine,IP:10.77.0.1")
    good = authority.credentials(world.path("good"), "alice")
    foreign = other.credentials(world.path("foreign"), "mallory")
    world.start_server("--tls-ca", authority.root, "--tls-cert", certificate, "--tls-key", key)
    works(world.remote_gpu("list", "-s", NAME, "--credentials", good))
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", foreign), "authority")  # the client's look at the server
    shutil.copy(authority.root, os.path.join(foreign, "ca.crt"))
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", foreign), "authority")  # the server's at the client
    refused(world.remote_gpu("list", "-s", "gpu-alias", "--credentials", good), "gpu-alias", "gpu-machine")
    wrong = world.path("wrong")
    shutil.copytree(good, wrong)
    shutil.copy(certificate, os.path.join(wrong, "tls.crt"))
    shutil.copy(key, os.path.join(wrong, "tls.key"))
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", wrong), "client|purpose")
    mixed = world.path("mixed")
    shutil.copytree(good, mixed)
    shutil.copy(key, os.path.join(mixed, "tls.key"))
    refused(world.remote_gpu("list", "-s", NAME, "--credentials", mixed), "key", "certificate")


def case_files(world):
    """Credentials that cannot be used as they are: never as good as none, and never without a word."""
    world.start_server("--allow-unauthenticated")
    world.join("alice")
    folder = credentials_of(world)
    for name in ("ca.crt", "tls.crt", "tls.key"):
        path = os.path.join(folder, name)
        os.rename(path, path + "-")
        refused(world.marker("1", "1"), "not complete", name, "--force")
        with open(path, "w"):
            os.chmod(path, 0o600)
        refused(world.marker("1", "1", REMOTE_GPU_ALLOW_UNAUTHENTICATED="yes"), "empty", name)
        with open(path, "w") as file:
            file.write("nonsense\n")
        refused(world.marker("1", "1", REMOTE_GPU_ALLOW_UNAUTHENTICATED="yes"), name.replace(".", r"\."))
        os.rename(path + "-", path)
    os.chmod(os.path.join(folder, "tls.key"), 0o644)
    refused(world.marker("1", "1"), "others", "0644", "chmod 600")
    os.chmod(os.path.join(folder, "tls.key"), 0o600)
    works(world.marker("1", "1"))
    world.run("chmod", "-R", "a+rX", world.client.home)
    os.chmod(os.path.join(folder, "tls.key"), 0o600)
    result = world.run("setpriv", "--reuid", "65534", "--clear-groups", world.build.command, "list")
    refused(result, "Permission denied", "65534")


def case_mixed_up(world):
    """A client without TLS at a server that wants it, and the other way round: each is told, and nobody falls back."""
    daemon = world.start_server()
    refused(world.marker("1", "1", REMOTE_GPU_SERVER=NAME, REMOTE_GPU_ALLOW_UNAUTHENTICATED="yes"), "TLS", "remote-gpu join")
    world.join("alice")
    daemon.stop()
    # a server that knows no TLS: one that answers as remote-gpud did before
    plain = world.server.command(sys.executable, "-c", PLAIN % {"port": PORT})
    answering = Background(plain, dict(os.environ), world.fresh("plain"))
    world.stack.callback(answering.stop)
    expect(wait_until(lambda: "ready" in answering.output(), 10), "no server without TLS")
    for changes in ({}, {"REMOTE_GPU_ALLOW_UNAUTHENTICATED": "yes"}):
        with world.capture() as packets:
            refused(world.marker("1", "1", ARGUMENT, options=("--timeout", "5"), **changes), "TLS")
        expect(seen_of(packets.data) == [], "it went on without: %s" % seen_of(packets.data))
    answering.stop()


PLAIN = """
import socket
listener = socket.create_server(("0.0.0.0", %(port)d))
print("ready", flush=True)
while True:
    conn, _ = listener.accept()
    conn.recv(64)
    conn.close()
"""


def case_killed_join(world):
    """A join that is killed half-way leaves credentials neither whole nor half, and the next one cleans up."""
    world.start_server()
    base = os.path.join(world.client.home, ".config", "remote-gpu", "servers")
    token = world.token("alice")
    stale = os.path.join(base, ".joining-killed")
    os.makedirs(stale)
    with open(os.path.join(stale, "tls.key"), "w") as file:
        file.write("half a key")
    refused(world.remote_gpu("run", "-s", NAME, "--", "true"), "remote-gpu join")
    works(world.remote_gpu("join", token))
    expect(os.listdir(base) == [NAME], "something is left: %s" % os.listdir(base))


def case_renewal(world):
    """A certificate renews itself at two thirds of its life, once; in the last tenth, a failure is said."""
    daemon = world.start_server("--certificate-days", "90")
    world.join("alice")
    path = os.path.join(credentials_of(world), "tls.crt")
    clock = os.path.join(world.build.folder, "tests", "moved_clock.so")

    def contents():
        with open(path) as file:
            return file.read()

    first = contents()
    time.sleep(1.1)  # certificates count seconds
    works(world.marker("1", "1"))
    works(world.marker("1", "1", LD_PRELOAD=clock, SHIFT_SECONDS=str(59 * 86400)))
    expect(contents() == first, "it was renewed too early")
    key = open(os.path.join(credentials_of(world), "tls.key")).read()
    works(world.marker("1", "1", LD_PRELOAD=clock, SHIFT_SECONDS=str(61 * 86400)))
    # the server's clock is the real one: what it gives is valid for 90 days from today
    second = contents()
    daemon_text = daemon.output()
    if second == first:
        expect(False, "it was not renewed:\n" + daemon_text)
    expect(open(os.path.join(credentials_of(world), "tls.key")).read() == key, "the key changed")
    works(world.marker("1", "1"))
    expect(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "the mode changed")
    # revoked meanwhile: no renewal, and what was renewed before is worth nothing
    world.manage("revoke", "alice")
    refused(world.marker("1", "1"), "revoked")


def case_resumed(world):
    """A session that has lost its connection goes on by TLS, and only for who began it."""
    world.start_server()
    world.join("alice")
    program = world.hold(REMOTE_GPU_LOG="info")
    with world.capture() as packets:
        # the cable is cut for the connections there are: the client's machine resets them
        cut = world.run("ss", "-K", "dst", "10.77.0.1")
        if cut.status != 0 or not wait_until(lambda: "goes on" in program.output(), 10):
            if "goes on" not in program.output() and "lost the connection" not in program.output():
                skip("connections cannot be ended here (ss -K)")
        expect(wait_until(lambda: "goes on" in program.output(), 20), "the session did not go on:\n" + program.output())
        time.sleep(0.3)
    expect(seen_of(packets.data) == [], "it can be read: %s" % seen_of(packets.data))
    expect(program.process.poll() is None, "the program ended:\n" + program.output())


def case_resumed_by_another(world):
    """A session that has lost its connection does not go on for another user, whatever secrets that user has of it."""
    daemon = world.start_server()
    for user in ("alice", "bob"):
        world.join(user, "--credentials", world.path(user))
    folders = [os.path.join(world.path(user), "servers", NAME) for user in ("alice", "bob")]
    program = world.hold(REMOTE_GPU_LOG="info", REMOTE_GPU_CREDENTIALS=world.path("alice"), REMOTE_GPU_SERVER=NAME)
    bystander = world.hold(REMOTE_GPU_CREDENTIALS=world.path("bob"), REMOTE_GPU_SERVER=NAME)
    # the program has the session's token, and is bob from now on
    os.rename(folders[0], folders[0] + "-")
    shutil.copytree(folders[1], folders[0])
    if world.run("ss", "-K", "dst", "10.77.0.1").status != 0 or not wait_until(
            lambda: "goes on" in bystander.output() or "ended with error" in bystander.output(), 20):
        skip("connections cannot be ended here (ss -K)")
    expect("goes on" in bystander.output(), "who has the right certificate cannot go on:\n" + bystander.output())
    expect(wait_until(lambda: "ended with error" in program.output(), 20), "the session went on:\n" + program.output())
    expect("goes on" not in program.output(), "the session went on:\n" + program.output())
    expect(re.search("begun by another than .*bob", program.output()), "it is not said why:\n" + program.output())
    expect(re.search(r'audit: event=refuse user="bob" .* why=".*begun by another', daemon.output()),
           "the audit log does not have it:\n" + daemon.output())
    expect(bystander.process.poll() is None, "another session ended:\n" + bystander.output())


def numbers_of(rank):
    """The first of what a rank of tests/server/nccl/ranks.c gives, as it is in memory."""
    seed, values = rank * 77 + 1, []
    for _ in range(8):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((seed >> 40) / 1000)
    return struct.pack("<8f", *values)


def ranks(world, servers, changes=({}, {})):
    """The results of two ranks of NCCL, each in a process on the client machine with a session of a server of its own."""
    program, file = os.path.join(world.build.folder, "tests", "nccl_ranks"), world.fresh("id")
    if not os.path.exists(program):
        skip("NCCL of the software device is not built")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda rank: world.remote_gpu("run", "-s", servers[rank], "--", program, file, "2", str(rank), "1",
                                                           **changes[rank]), range(2)))


def case_ranks_of_nccl(world):
    """What ranks on two servers give each other goes from server to server, and nobody between can read it; without TLS it can be read."""
    other = "client-machine:%d" % PORT  # what its clients say to it does not come by the cable
    state = world.path("other-state")
    for way in ("tls", "plain"):
        options = [] if way == "tls" else ["--allow-unauthenticated"]
        changes = {} if way == "tls" else {"REMOTE_GPU_ALLOW_UNAUTHENTICATED": "yes"}
        daemons = [world.start_server(*options), world.start_server(*options, state=state, machine=world.client)]
        if way == "tls":
            world.join("alice")
            works(world.remote_gpu("join", world.token("alice", server=other, state=state)))
        else:
            os.rename(os.path.join(world.client.home, ".config"), world.path("config"))
        with world.capture() as packets:
            results = ranks(world, [NAME, other], (changes, changes))
        for result in results:
            expect(result.status == 0 and "sum of floats" in result.output, "the ranks did not work (%s)" % way, result)
        expect((numbers_of(1) in packets.data) == (way == "plain"), "what rank 1 gives can%s be read (%s)" %
               ("not" if way == "plain" else "", way))
        for daemon in daemons:
            daemon.stop()


def case_ranks_of_two_users(world):
    """Ranks of two certificates' users are connected to each other neither on one server nor on two."""
    world.start_server(environment={"SOFTGPU_NCCL_TIMEOUT": "2"})
    world.join("alice")
    bob = {"XDG_CONFIG_HOME": world.path("bob")}
    works(world.remote_gpu("join", world.token("bob"), **bob))
    results = ranks(world, [NAME, NAME], ({}, bob))
    expect([result.status for result in results] == [3, 3], "they worked", results[0])
    expect("rank 1 did not come" in results[0].output, "rank 0 is not told", results[0])
    expect("all ranks of a communicator must be of one user" in results[1].output, "rank 1 is not told why", results[1])


HTTP_PORT = 9401

# Asks the HTTP port of the server from the client machine: a line of JSON with status and text of each path, in order.
ASK = """
import http.client, json, ssl, sys
port, authority, certificate, key, version, *paths = sys.argv[1:]
context = ssl.create_default_context(cafile=authority)
if certificate != "-":
    context.load_cert_chain(certificate, key)
if version == "old":
    context.maximum_version = ssl.TLSVersion.TLSv1_2
for path in paths:
    method, path = path.split(" ") if " " in path else ("GET", path)
    connection = http.client.HTTPSConnection("%s", int(port), timeout=20, context=context)
    try:
        connection.request(method, path, headers={"X-Remote-Gpu": "1"})
        answer = connection.getresponse()
        print(json.dumps([answer.status, answer.read().decode()]))
    except OSError as error:
        print(json.dumps([0, str(error)]))
    connection.close()
""" % NAME.split(":")[0]


def case_http_port(world):
    """By the HTTP port a stranger sees whether the server is well, does nothing, and nobody between reads what its users are shown."""
    world.start_server("--http", "0.0.0.0:%d" % HTTP_PORT)
    world.join("alice")
    program = world.hold()
    authority = os.path.join(world.state, "ca.crt")
    files = [os.path.join(credentials_of(world), name) for name in ("tls.crt", "tls.key")]

    def ask(*paths, certificate=("-", "-"), version="new"):
        result = world.run(sys.executable, "-c", ASK, str(HTTP_PORT), authority, *certificate, version, *paths)
        expect(result.status == 0, "the port cannot be asked", result)
        return [tuple(json.loads(line)) for line in result.output.splitlines()]

    with world.capture() as packets:
        healthy, ready, *refused_ = ask("/healthz", "/readyz", "/metrics", "/api/v1/server", "/api/v1/gpus", "/api/v1/sessions",
                                        "/api/v1/reader", "/api/v1/pool", "/api/v1/pool/links", "POST /api/v1/server/drain", "POST /api/v1/sessions/1/end")
        expect((healthy, ready) == ((200, "ok\n"), (200, "ready\n")), "it is not said whether it is well: %s %s" % (healthy, ready))
        for status, text in refused_:
            expect(status in (401, 404) and "alice" not in text and "marker" not in text, "a stranger is told: %d %s" % (status, text))
        expect(program.process.poll() is None, "a stranger has ended a session:\n" + program.output())
        ((status, text),) = ask("/api/v1/sessions", certificate=files)
        expect(status == 200 and '"alice"' in text and "security_marker" in text, "its user does not see it: %d %s" % (status, text))
    expect(seen_of(packets.data) == [] and b"security_marker" not in packets.data and b"healthz" not in packets.data,
           "it can be read on the network: %s" % seen_of(packets.data))
    ((status, text),) = ask("/healthz", version="old")
    expect(status == 0, "an older TLS was taken: %d %s" % (status, text))
    plain = world.run(sys.executable, "-c", "import socket; s = socket.create_connection((\"%s\", %d), 20); "
                      "s.sendall(b\"GET /healthz HTTP/1.0\\r\\n\\r\\n\"); print(s.recv(100)[:4])" % (NAME.split(":")[0], HTTP_PORT))
    expect("HTTP" not in plain.output, "it answers without TLS", plain)


# So many connections, from addresses of one network or all from one; how many of them were closed.
CROWD = """
import select, socket, sys, time
port, wanted, closing, addresses = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
connections = []
for number in range(wanted):
    one = socket.socket(socket.AF_INET6)
    for address in addresses:
        one.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
        one.bind((address + "%x" % number, 0))
    one.connect(("fd77::1", port))
    connections.append(one)
end = time.monotonic() + (10 if closing else 1)
while True:
    closed = len(select.select(connections, [], [], 0.1)[0])
    if time.monotonic() > end or (closing and closed >= closing):
        break
print(closed, flush=True)
time.sleep(1000)
"""


def case_http_crowd(world):
    """A machine with many addresses of one network takes no more of the HTTP port's connections than one with one."""
    world.start_server("--http", "[::]:%d" % HTTP_PORT)
    checked(*world.client.command("ip", "-6", "route", "add", "local", "fd78::1:0/112", "dev", "lo"))
    checked(*world.server.command("ip", "-6", "route", "add", "fd78::1:0/112", "via", "fd77::2"))

    def closed_of(machine, *words):
        crowd = Background(machine.command(sys.executable, "-c", CROWD, str(HTTP_PORT), *words), machine.environment(),
                           world.fresh("crowd"))
        world.stack.callback(crowd.stop)
        expect(wait_until(lambda: crowd.output().strip(), 30) and crowd.output().strip().isdigit(), "there is no crowd:\n" + crowd.output())
        return int(crowd.output())

    closed = closed_of(world.client, "40", "8", "fd78::1:")
    expect(closed >= 5, "nearly all were taken: %d of 40 were closed" % closed)  # 32, and what several threads take at once
    expect(closed_of(world.server, "20", "0") == 0, "others are not taken")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    run_case(globals(), World)
