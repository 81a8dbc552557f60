"""The command remote-gpu from outside: what a user types, what comes back, and the exit status.

Runs from a tree of its own, in which the driver, the worker and the client library are stand-ins.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "scripts"))

from trial import wait_until  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "build"
STAGE = os.path.join(BUILD, "stage")
TREE = tempfile.mkdtemp(prefix="remote-gpu-cli-test-")
COMMAND = os.path.join(TREE, "bin", "remote-gpu")
LIBRARY = os.path.join(TREE, "lib", "remote-gpu")


def make_tree():
    os.makedirs(os.path.join(LIBRARY, "soft"))
    os.makedirs(os.path.join(TREE, "home"))
    os.mkdir(os.path.join(TREE, "bin"))
    links = {"bin/remote-gpu": "stage/bin/remote-gpu", "bin/remote-gpud": "stage/bin/remote-gpud",
             "lib/remote-gpu/probe": "stage/lib/remote-gpu/probe",
             "lib/remote-gpu/frontend": "stage/lib/remote-gpu/frontend",
             "lib/remote-gpu/transport": "stage/lib/remote-gpu/transport",
             "lib/remote-gpu/worker": "tests/daemon/fake_worker",
             "lib/remote-gpu/soft/ptxas": "stage/lib/remote-gpu/soft/ptxas",
             "lib/remote-gpu/soft/toolkit": "stage/lib/remote-gpu/soft/toolkit",
             "lib/remote-gpu/soft/libcuda.so.1": "tests/daemon/fake_libcuda.so",
             "lib/remote-gpu/libcuda.so.1": "tests/client/cli/fake_client.so"}
    for name, target in links.items():
        os.symlink(os.path.join(BUILD, target), os.path.join(TREE, name))


def environment(**changes):
    result = {name: value for name, value in os.environ.items() if not name.startswith("REMOTE_GPU_")}
    result.pop("LD_PRELOAD", None)
    result.pop("LD_LIBRARY_PATH", None)
    # a build with the address sanitizer is started under preloads, too
    result["ASAN_OPTIONS"] = "verify_asan_link_order=0:" + result.get("ASAN_OPTIONS", "")
    result.update(REMOTE_GPU_LIBDIR=LIBRARY, HOME=os.path.join(TREE, "home"),
                  XDG_CONFIG_HOME=os.path.join(TREE, "home", ".config"))
    result.update(changes)
    return result


def call(*words, **changes):
    return subprocess.run([COMMAND, *words], env=environment(**changes), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


def processes_with(text):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % entry, "rb") as file:
                if text.encode() in file.read() and int(entry) != os.getpid():
                    found.append(int(entry))
        except OSError:
            pass
    return found


class Server:
    """A remote-gpud on a free port."""

    def __init__(self, *arguments, program=os.path.join(TREE, "bin", "remote-gpud"), **changes):
        self.ready = os.path.join(TREE, "ready-%d" % time.monotonic_ns())
        self.process = subprocess.Popen([program, "--listen", "127.0.0.1:0", "--driver",
                                         "soft", "--ready-file", self.ready, "--grace", "0",
                                         *arguments],
                                        env=environment(**changes), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_until(lambda: os.path.exists(self.ready)), "no server"
        with open(self.ready) as file:
            self.address = file.read().strip().replace("tcp://", "")

    def stop(self):
        self.process.terminate()
        self.process.wait(20)
        os.unlink(self.ready)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.address = cls.server.address

    def ours(self, result):
        """Every line on stderr is ours and says so."""
        for line in result.stderr.splitlines():
            self.assertRegex(line, "^remote-gpud?: ")
        return result.stderr

    def own_failure(self, *words, **changes):
        result = call(*words, **changes)
        self.assertEqual(result.returncode, 125, result.stderr)
        self.assertEqual(result.stdout, "")
        return self.ours(result)


class Usage(Case):
    def test_help(self):
        result = call("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for name in ("run", "list", "smi", "version"):
            self.assertIn("\n  %s " % name, result.stdout)
            for words in ((name, "--help"), ("help", name), (name, "-h")):
                own = call(*words)
                self.assertEqual((own.returncode, own.stderr), (0, ""))
                self.assertIn("Usage: remote-gpu %s" % name, own.stdout)
                self.assertIn("--server", own.stdout)

    def test_mistakes(self):
        names = re.findall(r"^  ([a-z-]+) ", call("--help").stdout, re.M)
        self.assertIn("which subcommand? %s; see" % ", ".join(names), self.own_failure())
        self.assertIn("did you mean 'run'", self.own_failure("rnu"))
        self.assertIn("unknown subcommand 'frobnicate'", self.own_failure("frobnicate"))
        self.assertIn("did you mean '--server'", self.own_failure("run", "--sever", "x", "true"))
        self.assertIn("unknown option '--json'", self.own_failure("run", "--json"))
        self.assertIn("which command", self.own_failure("run", "-s", self.address))
        self.assertIn("list of servers is empty", self.own_failure("run", "-s", ",", "true"))
        self.assertIn("list of servers is empty", self.own_failure("list", "-s", ","))
        self.assertIn("takes no 'x'", self.own_failure("list", "-s", self.address, "x"))
        self.assertIn("-n: '0'", self.own_failure("run", "-n", "0", "true"))
        for number in ("99", "-1", "some"):
            self.assertIn("--connections", self.own_failure("run", "-s", self.address, "--connections", number, "true"))
        for option, value in (("--opt", "-wrong"), ("--rails", "0"), ("--driver", "")):
            self.assertIn("%s: " % option, self.own_failure("run", "-s", self.address, option, value, "true"))
        self.assertIn("REMOTE_GPU_OPT: no optimisation is called 'wrong' (there are: all, async",
                      self.own_failure("run", "-s", self.address, "true", REMOTE_GPU_OPT="-all,wrong"))
        self.assertIn("--opt: no optimisation is called 'late'",
                      self.own_failure("run", "-s", self.address, "--opt", "-async,-late", "true"))
        for server in ("|", "host:99999", "a host", "[::1"):
            self.assertIn("'", self.own_failure("run", "-s", server, "--no-check", "true"))
        self.assertIn("more than 16 servers",
                      self.own_failure("run", "-s", ",".join("h%d" % i for i in range(17)), "--no-check", "true"))
        for link in ("", "nonsense", "oneway=nonsense", "bandwidth=0", "oneway=1ms;fault:send_lost_at=1"):
            self.assertIn("--link", self.own_failure("compare", "-s", self.address, "--link", link, "true"))
        self.assertIn("one server", self.own_failure("compare", "-s", "a|b", "true"))
        self.assertIn("one server", self.own_failure("netperf", "-s", "a|b"))

    def test_shares_that_make_no_sense(self):
        for words, expected in ((("-m", "0"), "no memory at all"), (("-p", "0"), "not more than 0 and at most 1"),
                                (("-p", "101%"), "not more than 0 and at most 1"), (("-m", "1Q"), "'1Q' is not a size"),
                                (("-m", "1G", "-p", "0.5"), "-m and -p do not go together"),
                                (("--compute", "0"), "not more than 0"), (("--compute", "1.5"), "at most 1"),
                                (("--weight", "0"), "not in the range 1 to 1000"), (("--priority", "urgent"), "low"),
                                (("--idle-timeout", "soon"), "is not a time"),
                                (("--project", "x" * 600), "longer than")):
            with self.subTest(words):
                self.assertIn(expected, self.own_failure("run", "-s", self.address, *words, "true"))

    def test_a_folder_that_is_not_there_any_more(self):
        for words, there in ((("--stats=counts",), False), (("--profile",), False), (("--record=a/b",), False),
                             (("--credentials", "keys"), False), (("--stats",), True), (("--stats=/dev/null",), True)):
            script = 'cd "$0" && rmdir "$0" && exec "$@"'
            folder = tempfile.mkdtemp()
            result = subprocess.run(["sh", "-c", script, folder, COMMAND, "run", "-s", self.address, *words, "--", "echo", "ran"],
                                    env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            with self.subTest(words):
                self.assertEqual(result.stdout, "ran\n" if there else "")
                if there:
                    continue
                self.assertEqual(result.returncode, 125)
                self.assertRegex(self.ours(result), "%s.* the current folder has no path" % words[0].partition("=")[0])

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([COMMAND, "version"], env=environment(), stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 125)
        self.assertIn(b"No space left on device", result.stderr)
        result = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", COMMAND, "list", "-s", self.address], env=environment(),
                                stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 125)
        self.assertIn(b"cannot write to standard output: Bad file descriptor", result.stderr)

    def test_wrong_scheme(self):
        self.assertIn("no transport http; an address is HOST", self.own_failure("list", "-s", "http://gpu"))
        self.assertIn("not one of auto, tcp, rdma", self.own_failure("run", "--transport", "udp", "true"))


class Run(Case):
    def run_command(self, *words, **changes):
        return call("run", "-s", self.address, *words, **changes)

    def test_exit_status(self):
        for status in (0, 1, 42, 125, 255):
            self.assertEqual(self.run_command("--", "sh", "-c", "exit %d" % status).returncode, status)
        self.assertEqual(self.run_command("sh", "-c", "kill -TERM $$").returncode, -signal.SIGTERM)

    def test_command_that_cannot_run(self):
        result = self.run_command("--", "/nonexistent/program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("/nonexistent/program", self.ours(result))
        result = self.run_command("--", TREE)
        self.assertEqual(result.returncode, 126)
        self.ours(result)

    def test_environment(self):
        result = self.run_command("-n", "2", "--opt=-all", "--stats=counts", "--log", "error", "--", "env",
                                  LD_PRELOAD="/lib/x86_64-linux-gnu/libm.so.6", LD_LIBRARY_PATH="/some:%s" % LIBRARY)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        seen = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertEqual(seen["LD_PRELOAD"], "%s/libcuda.so.1:/lib/x86_64-linux-gnu/libm.so.6" % LIBRARY)
        self.assertEqual(seen["LD_LIBRARY_PATH"], "%s:/some" % LIBRARY)
        self.assertEqual(seen["REMOTE_GPU_SERVER"], self.address)
        self.assertEqual(seen["REMOTE_GPU_GPUS"], "2")
        self.assertEqual(seen["REMOTE_GPU_OPT"], "-all")
        self.assertEqual(seen["REMOTE_GPU_STATS"], os.path.join(os.getcwd(), "counts"))
        self.assertEqual(seen["REMOTE_GPU_LOG"], "error")

    def test_without_preloading(self):
        result = self.run_command("--no-preload", "--", "env", LD_PRELOAD="/lib/x86_64-linux-gnu/libm.so.6")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        seen = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
        self.assertEqual(seen["LD_PRELOAD"], "/lib/x86_64-linux-gnu/libm.so.6")
        self.assertEqual(seen["LD_LIBRARY_PATH"].split(":")[0], LIBRARY)

    def test_programs_of_sanitizers_start(self):
        """What the user wants of the sanitizer comes behind what lets programs start, and counts."""
        for before, after in ((None, "verify_asan_link_order=0"), ("detect_leaks=0", "verify_asan_link_order=0:detect_leaks=0"),
                              ("verify_asan_link_order=0:a=1", "verify_asan_link_order=0:a=1")):
            changes = {"ASAN_OPTIONS": before} if before else {}
            surroundings = environment(REMOTE_GPU_SERVER=self.address, **changes)
            if not before:
                surroundings.pop("ASAN_OPTIONS")
            result = subprocess.run([COMMAND, "run", "--", "sh", "-c", "echo $ASAN_OPTIONS"], env=surroundings, text=True,
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            if "AddressSanitizer" not in result.stderr:  # a build with the sanitizer
                self.assertEqual(result.stdout, after + "\n", result.stderr)

    @unittest.skipIf(os.geteuid() != 0 or os.statvfs(TREE).f_flag & os.ST_NOSUID, "no set-user-ID programs can be made here")
    def test_a_command_with_other_rights(self):
        """It cannot find a server, so the user is told; who is on the way to it by PATH is, too."""
        folder = os.path.join(TREE, "rights")
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        program = os.path.join(folder, "powerful")
        shutil.copy(shutil.which("true"), program)
        os.chown(program, 65534, 65534)
        for mode, word in ((0o755, None), (0o4755, "set-user-ID"), (0o2755, "set-group-ID"), (0o2745, None)):
            os.chmod(program, mode)
            for command in (program, "powerful"):
                result = self.run_command("--", command, PATH=folder + ":" + os.environ["PATH"])
                self.assertEqual(result.returncode, 0, result.stderr)
                if not word:
                    self.assertEqual(result.stderr, "")
                else:
                    self.assertIn("(%s)" % word, self.ours(result))
                    self.assertIn(program, result.stderr)

    @unittest.skipUnless(shutil.which("cc"), "there is no compiler")
    def test_a_command_of_another_c_library(self):
        """musl's loader would refuse our libraries with words about symbols."""
        folder = os.path.join(TREE, "musl")
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        program = os.path.join(folder, "small")
        subprocess.run(["cc", "-x", "c", "-", "-o", program, "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"],
                       input=b"int main(void) { return 0; }\n", check=True)
        for command in (program, "small"):
            result = self.run_command("--", command, PATH=folder + ":" + os.environ["PATH"])
            self.assertEqual(result.returncode, 126, result)
            self.assertIn(program + " is made for the C library musl (/lib/ld-musl-x86_64.so.1)", self.ours(result))

    def test_memory_as_a_size_or_a_part(self):
        """Both say how much memory: a flag beats the environment, and that a file; of one source they contradict."""
        script = "echo $REMOTE_GPU_MEMORY,$REMOTE_GPU_FRACTION"
        folder = os.path.join(TREE, "configured")
        os.makedirs(os.path.join(folder, "remote-gpu"))
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "remote-gpu", "config"), "w") as file:
            file.write("memory = 4M\n")
        for words, changes, expected in ((("-m", "1M"), {"REMOTE_GPU_FRACTION": "0.5"}, "1048576,"),
                                         (("-p", "0.5"), {"REMOTE_GPU_MEMORY": "1M"}, ",0.500000"),
                                         (("-p", "0.5"), {"XDG_CONFIG_HOME": folder}, ",0.500000"),
                                         ((), {"REMOTE_GPU_FRACTION": "0.25", "XDG_CONFIG_HOME": folder}, ",0.250000"),
                                         ((), {"XDG_CONFIG_HOME": folder}, "4194304,")):
            with self.subTest((words, changes)):
                result = self.run_command(*words, "--", "sh", "-c", script, **changes)
                self.assertEqual((result.returncode, result.stdout.strip(), result.stderr), (0, expected, ""))
        both = self.run_command("true", REMOTE_GPU_MEMORY="1M", REMOTE_GPU_FRACTION="0.5")
        self.assertEqual(both.returncode, 125)
        self.assertIn("-m and -p do not go together", both.stderr)

    def test_management_library_and_device_files_are_preloaded_where_they_are(self):
        libraries = ["libcuda.so.1", "libnvidia-ml.so.1", "device-files.so"]
        for name in libraries[1:]:
            path = os.path.join(LIBRARY, name)
            shutil.copy(os.path.join(BUILD, "tests/client/cli/fake_client.so"), path)
            self.addCleanup(os.unlink, path)
        result = self.run_command("--", "sh", "-c", "echo $LD_PRELOAD")
        self.assertEqual(result.stdout.strip().split(":"), [os.path.join(LIBRARY, name) for name in libraries])

    def test_installed_in_a_folder_with_a_blank(self):
        tree = os.path.join(TREE, "a folder", "lib", "remote-gpu")
        self.addCleanup(shutil.rmtree, os.path.join(TREE, "a folder"))
        shutil.copytree(LIBRARY, tree, symlinks=True)
        # which program it is must not matter: what counts is that its process has the library
        result = self.run_command("--", "grep", "-c", "fake_client", "/proc/self/maps", REMOTE_GPU_LIBDIR=tree)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertGreater(int(result.stdout), 0)
        nested = self.run_command("--", COMMAND, "run", "--", "sh", "-c", "echo $LD_PRELOAD:$LD_LIBRARY_PATH",
                                  REMOTE_GPU_LIBDIR=tree)
        self.assertEqual(nested.stdout, "libcuda.so.1:%s\n" % tree, nested.stderr)

    def test_nested(self):
        result = self.run_command("--", COMMAND, "run", "--", "sh", "-c", "echo $LD_PRELOAD $LD_LIBRARY_PATH")
        self.assertEqual(result.stdout, "%s/libcuda.so.1 %s\n" % (LIBRARY, LIBRARY), result.stderr)

    def test_closed_streams_stay_closed(self):
        script = 'exec "$@" <&- 2>&-'
        look = ["sh", "-c", "for i in 0 1 2; do test -e /proc/self/fd/$i && echo $i; done; true"]
        result = subprocess.run(["sh", "-c", script, "sh", COMMAND, "run", "-s", self.address, "--", *look], env=environment(),
                                stdout=subprocess.PIPE)
        self.assertEqual(result.stdout, b"1\n")

    def test_stdin_and_stdout_are_the_commands(self):
        result = subprocess.run([COMMAND, "run", "-s", self.address, "cat"], env=environment(), input=b"\x00data\xff",
                                stdout=subprocess.PIPE)
        self.assertEqual(result.stdout, b"\x00data\xff")

    def test_server_from_environment_and_file(self):
        self.assertEqual(call("run", "true", REMOTE_GPU_SERVER=self.address).returncode, 0)
        of_a_file = call("run", "sh", "-c", "echo $REMOTE_GPU_SERVER", REMOTE_GPU_SERVER=self.address + "\r\n")
        self.assertEqual(of_a_file.stdout, self.address + "\n", of_a_file.stderr)
        folder = os.path.join(TREE, "home", ".config", "remote-gpu")
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "config"), "w") as file:
            file.write("server = %s\n" % self.address)
        self.assertEqual(call("run", "true").returncode, 0)
        self.own_failure("run", "true", REMOTE_GPU_SERVER="127.0.0.1:1")
        with open(os.path.join(folder, "config"), "w") as file:
            file.write("server = 127.0.0.1:1 | %s , %s\n" % (self.address, self.address))
        result = call("run", "sh", "-c", "echo $REMOTE_GPU_SERVER")
        self.assertEqual(result.stdout, "%s,%s\n" % (self.address, self.address), result.stderr)
        # a question is about each of them
        servers = json.loads(call("list", "--json").stdout)["servers"]
        self.assertEqual([server["address"] for server in servers], ["127.0.0.1:1", self.address, self.address])
        self.assertIn("refused", servers[0]["error"])

    def test_no_server_there(self):
        text = self.own_failure("run", "-s", "127.0.0.1:1", "true")
        self.assertRegex(text, "(?i)cannot reach the server 127.0.0.1:1: .*refused.*remote-gpud")
        self.assertEqual(call("run", "-s", "127.0.0.1:1", "--no-check", "true").returncode, 0)
        self.own_failure("run", "-s", "no-such-host.invalid", "true")
        self.own_failure("run", "-s", "127.0.0.1:x", "true")

    def test_without_a_name_it_is_this_machine(self):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", 7600)) == 0:
                self.skipTest("a server runs on the default port")
        text = self.own_failure("run", "true")
        self.assertRegex(text, r"cannot reach the server 127.0.0.1 \(port 7600\): .*-s HOST names one, --local starts one")

    def test_something_else_there(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = "127.0.0.1:%d" % other.getsockname()[1]
            started = time.monotonic()
            self.assertIn("did not answer", self.own_failure("run", "-s", address, "--timeout", "1", "true"))
            self.assertLess(time.monotonic() - started, 5)

    def test_first_server_that_will_do(self):
        result = call("run", "-s", "127.0.0.1:1|%s" % self.address, "--", "sh", "-c", "echo $REMOTE_GPU_SERVER")
        self.assertEqual((result.returncode, result.stdout), (0, self.address + "\n"))
        self.assertIn("127.0.0.1:1", self.ours(result))

    def test_several_servers(self):
        other = Server()
        self.addCleanup(other.stop)
        both = "%s,%s" % (self.address, other.address)
        result = call("run", "-s", both, "--", "sh", "-c", "echo $REMOTE_GPU_SERVER")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, both + "\n", ""))
        result = call("run", "-s", "127.0.0.1:1|" + both, "-n", "3", "--", "sh", "-c", "echo $REMOTE_GPU_SERVER")
        self.assertEqual((result.returncode, result.stdout), (0, both + "\n"))
        self.assertIn("have 4 GPUs together, and 5 were asked for",
                      self.own_failure("run", "-s", both, "-n", "5", "true"))
        listed = call("list", "-s", both)
        self.assertEqual([line.split(":")[0].strip() for line in listed.stdout.splitlines() if "GPU " in line],
                         ["GPU 0", "GPU 1", "GPU 2", "GPU 3"])
        errors = self.own_failure("run", "-s", self.address + ",127.0.0.1:1", "true")
        self.assertRegex(errors, "cannot reach the server 127.0.0.1:1: .*refused.*all servers of the list are needed")

    def test_more_gpus_than_there_are(self):
        self.assertIn("has 2 GPUs, and 3 were asked for",
                      self.own_failure("run", "-s", self.address, "-n", "3", "true"))

    def test_incomplete_installation(self):
        library = os.path.join(TREE, "incomplete")
        os.mkdir(library)
        os.symlink(os.path.join(LIBRARY, "transport"), os.path.join(library, "transport"))
        self.assertIn("installation is incomplete",
                      self.own_failure("run", "-s", self.address, "true", REMOTE_GPU_LIBDIR=library))


class Local(Case):
    def test_ptxas_of_text(self):
        """PTX as a word of the command line, by which programs also ask for the newest version that is known."""
        ptxas = os.path.join(LIBRARY, "soft", "ptxas")
        with tempfile.TemporaryDirectory() as folder:
            output = os.path.join(folder, "out.cubin")
            text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
            for option in (["--input-as-string", text], ["-ias=" + text]):
                made = subprocess.run([ptxas, "-arch=sm_90", "-o", output] + option, capture_output=True, text=True, timeout=60)
                self.assertEqual((made.returncode, made.stderr), (0, ""))
                with open(output, "rb") as file:
                    self.assertIn(b".visible .entry k()", file.read())
                os.unlink(output)
            newer = subprocess.run([ptxas, "-o", output, "--input-as-string", ".version 99.99"], capture_output=True, text=True, timeout=60)
            self.assertEqual(newer.returncode, 1)
            self.assertIn("Unsupported .version 99.99; current version is '9.0'", newer.stderr)
            self.assertFalse(os.path.exists(output))

    def test_ptxas(self):
        script = 'echo "$TRITON_PTXAS_PATH $TRITON_PTXAS_BLACKWELL_PATH"'
        ptxas = os.path.join(LIBRARY, "soft", "ptxas")
        local = call("run", "--local", "--driver=soft", "sh", "-c", script, TRITON_PTXAS_PATH="/mine")
        self.assertEqual(local.stdout.split(), ["/mine", ptxas], local.stderr)
        served = call("run", "-s", self.address, "sh", "-c", script)
        self.assertEqual(served.stdout.split(), [ptxas, ptxas], served.stderr)
        unknown = call("run", "-s", self.address, "--no-check", "sh", "-c", script)
        self.assertEqual(unknown.stdout.split(), [], unknown.stderr)

    def test_toolkit(self):
        script = '"$CUDA_ROOT/bin/ptxas" --version'
        for where in (("--local", "--driver=soft"), ("-s", self.address)):
            found = call("run", *where, "sh", "-c", script)
            self.assertIn("remote-gpu's software device", found.stdout, found.stderr)
        own = call("run", "-s", self.address, "sh", "-c", 'echo "$CUDA_ROOT"', CUDA_ROOT="/mine")
        self.assertEqual(own.stdout, "/mine\n", own.stderr)

    def test_runs_and_leaves_nothing(self):
        result = call("run", "--local", "--driver", "soft", "--", "sh", "-c", "echo $REMOTE_GPU_SERVER; exit 7")
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertRegex(result.stdout, r"^unix:@remote-gpu-\d+-[0-9a-f]{32}\n$")
        self.assertEqual(processes_with(result.stdout.strip()), [])

    def test_the_server_answers(self):
        result = call("run", "--local", "--driver", "soft", "--", COMMAND, "list", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(json.loads(result.stdout)["servers"][0]["devices"]), 2)

    def test_falls_back_and_says_so(self):
        result = call("run", "--local", "--", "true")
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stderr == "" or "software device" in self.ours(result))

    def test_status_of_signals_and_failures(self):
        self.assertEqual(call("run", "--local", "--driver=soft", "sh", "-c", "kill -KILL $$").returncode, 128 + 9)
        self.assertEqual(call("run", "--local", "--driver=soft", "/nonexistent/program").returncode, 127)
        ignored = subprocess.run([COMMAND, "run", "--local", "--driver=soft", "sh", "-c", "exit 7"], env=environment(),
                                 timeout=60, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(ignored.returncode, 7)
        self.assertEqual(call("run", "--local", "--driver=soft", TREE).returncode, 126)

    def test_server_that_does_not_start(self):
        text = self.own_failure("run", "--local", "--driver", "/nonexistent/libcuda.so.1", "true")
        self.assertIn("/nonexistent/libcuda.so.1", text)

    def test_what_is_for_pools(self):
        for option in ("--wait-for=1h", "--filter=memory>=1G", "--spread", "--lease=1"):
            self.assertIn("are for pools", self.own_failure("run", "--local", "--driver=soft", option, "true"))
        result = call("run", "--local", "--driver=soft", "true", REMOTE_GPU_LEASE="lab/1@127.0.0.1")
        self.assertEqual(result.returncode, 0, result.stderr)

    def start(self, script):
        process = subprocess.Popen([COMMAND, "run", "--local", "--driver=soft", "--", "sh", "-c", script],
                                   env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        return process, process.stdout.readline().strip()

    def test_signals_are_forwarded(self):
        script = "trap 'echo got; exit 5' %s; echo $REMOTE_GPU_SERVER; while :; do sleep 0.05; done"
        for name in ("TERM", "INT", "USR1", "HUP"):
            with self.subTest(name):
                process, address = self.start(script % name)
                process.send_signal(getattr(signal, "SIG" + name))
                self.assertEqual(process.stdout.readline(), "got\n")
                self.assertEqual(process.wait(20), 5)
                self.assertTrue(wait_until(lambda: not processes_with(address)))

    def test_server_ends_with_a_command_that_is_killed(self):
        process, address = self.start("echo $REMOTE_GPU_SERVER; exec sleep 2")
        self.assertTrue(processes_with(address))
        process.kill()
        process.wait(20)
        self.assertTrue(wait_until(lambda: not processes_with(address)))


class Questions(Case):
    def test_list(self):
        result = call("list", "-s", self.address)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"^%s: remote-gpu \S+, soft driver, CUDA 13\.0, 0 of 64 sessions\n"
                         % re.escape(self.address))
        self.assertRegex(result.stdout, r"\n  GPU 1: Fake GPU 1 .*, compute capability 9\.0, 16\.0 GiB, free [\d.]+ [GM]iB\n")
        self.assertNotIn("\033", result.stdout)

    def test_list_says_what_an_older_driver_lacks(self):
        server = Server(CUDA_FAKE_DRIVER_VERSION="12040")
        self.addCleanup(server.stop)
        text = call("list", "-s", server.address).stdout
        self.assertRegex(text, r"CUDA 12\.4, .*\n  this driver takes PTX up to 8\.4 and lacks \(docs/drivers\.md\):\n"
                               r"    of CUDA 12\.5: ")
        self.assertNotIn("of CUDA 12.4", text)
        self.assertIn("\n    of CUDA 13.0: ", text)
        driver = json.loads(call("list", "-s", server.address, "--json").stdout)["servers"][0]["driver"]
        self.assertEqual([lack["version"] for lack in driver["lacks"]], [12050, 12060, 12070, 12080, 12090, 13000])
        newest = json.loads(call("list", "-s", self.address, "--json").stdout)["servers"][0]["driver"]
        self.assertEqual(newest["lacks"], [])

    def test_list_shows_sessions(self):
        client = subprocess.Popen([os.path.join(BUILD, "tests", "daemon", "control_client"), self.address, "hold",
                                   "command=./train --epochs 3"], env=environment(), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        try:
            client.stdout.readline()
            text = call("list", "-s", self.address).stdout
            self.assertRegex(text, r"\n  session \d+: \S+@\S+, process \d+, for \d+ s, GPU 0,1, unauthenticated, not encrypted: train\n")
            self.assertIn("| train ", call("smi", "-s", self.address).stdout)
            data = json.loads(call("list", "-s", self.address, "--json").stdout)
            self.assertEqual(data["servers"][0]["sessions"][0]["devices"], [0, 1])
        finally:
            client.stdin.close()
            client.wait(20)
            client.stdout.close()

    def test_json(self):
        data = json.loads(call("list", "--json", "-s", self.address).stdout)
        (server,) = data["servers"]
        self.assertEqual(server["driver"]["version"], 13000)
        self.assertEqual(server["devices"][0]["memory_total"], 1 << 33)
        self.assertTrue(0 < server["devices"][0]["memory_free"] <= 1 << 33)
        self.assertEqual(server["devices"][1]["pci"], "0000:02:00.0")

    def test_a_server_whose_program_was_replaced(self):
        tree = os.path.join(TREE, "replaced")
        program = os.path.join(tree, "bin", "remote-gpud")
        for name in ("bin/remote-gpud", "lib/remote-gpu/probe", "lib/remote-gpu/frontend", "lib/remote-gpu/worker", "lib/remote-gpu/transport/tcp.so",
                     "lib/remote-gpu/soft/libcuda.so.1"):
            os.makedirs(os.path.dirname(os.path.join(tree, name)), exist_ok=True)
            shutil.copy(os.path.join(STAGE, name), os.path.join(tree, name))
        server = Server(program=program, REMOTE_GPU_LIBDIR="")
        self.addCleanup(server.stop)
        os.unlink(program)
        data = json.loads(call("list", "--json", "-s", server.address).stdout)
        self.assertIsNotNone(data["servers"][0]["devices"][0]["memory_free"])

    def test_one_of_several_is_not_there(self):
        result = call("list", "-s", "127.0.0.1:1,%s" % self.address)
        self.assertEqual(result.returncode, 125)
        self.assertIn("127.0.0.1:1", self.ours(result))
        self.assertIn("GPU 0", result.stdout)
        result = call("list", "--json", "-s", "127.0.0.1:1,%s" % self.address)
        self.assertEqual(result.returncode, 125)
        self.assertEqual(result.stderr, "")
        self.assertIn("error", json.loads(result.stdout)["servers"][0])

    def test_json_that_cannot_be(self):
        for name in ("list", "smi", "version"):
            result = call(name, "--json", "-s", b"\xff\xfe")
            self.assertEqual((result.returncode, result.stdout), (125, ""))
            self.assertIn("cannot write JSON", result.stderr)

    def test_smi(self):
        result = call("smi", "-s", self.address)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        table = [line for line in result.stdout.splitlines() if line[0] in "|+"]
        # A session of the test before may not have ended yet: sessions have a table of their own, behind its border.
        sessions = [i for i, line in enumerate(table) if line.startswith("| GPU | Session")]
        table = table[:sessions[0] - 1 if sessions else None]
        self.assertGreater(len(table), 4)
        self.assertEqual(len({len(line) for line in table}), 1, result.stdout)
        self.assertRegex(result.stdout, r"\| [\d.]+ [GM]?i?B / 8\.0 GiB +\| n/a ")

    def test_version(self):
        self.assertRegex(call("version").stdout, r"^remote-gpu \d+\.\d+\.\d+, protocol \d+\.\d+\n$")
        self.assertEqual(call("--version").stdout, call("version").stdout)
        self.assertRegex(call("version", "-s", self.address).stdout, r"\n%s: remote-gpu " % re.escape(self.address))
        data = json.loads(call("version", "--json", "-s", self.address).stdout)
        self.assertEqual(data["software"], data["servers"][0]["software"])


if __name__ == "__main__":
    make_tree()
    try:
        unittest.main(verbosity=2)
    finally:
        shutil.rmtree(TREE)
