"""Tests of what a program may find around it: another locale, rights that are not its user's."""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile

from expected import expect
from trial import Failure, Server, run_program

# Numbers of PTX have a point, whatever the locale; so has JSON.
PROGRAM = r"""
import ctypes, locale, struct, sys
if sys.argv[2:]:
    locale.setlocale(locale.LC_NUMERIC, sys.argv[2])
    assert locale.localeconv()["decimal_point"] == ","
cuda = ctypes.CDLL(sys.argv[1])
def call(name, *arguments):
    error = getattr(cuda, name)(*arguments)
    if error:
        sys.exit("%s: %d" % (name, error))
context, module, kernel, memory = (ctypes.c_void_p() for _ in range(4))
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), b'''
.version 7.0
.target sm_50
.address_size 64
.visible .entry put(.param .u64 p)
{
    .reg .u64 %r;
    .reg .f32 %f;
    ld.param.u64 %r, [p];
    mov.f32 %f, 1.625;
    st.global.f32 [%r], %f;
    ret;
}
''')
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"put")
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4))
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)
got = ctypes.create_string_buffer(4)
call("cuMemcpyDtoH_v2", got, memory, ctypes.c_size_t(4))
print(struct.unpack("f", got.raw)[0])
"""


def make_comma_locale(folder):
    """A locale whose decimal point is a comma; False: cannot be made here."""
    source = os.path.join(folder, "source")
    with open(source, "w") as file:
        file.write('LC_NUMERIC\ndecimal_point ","\nthousands_sep ""\ngrouping -1\nEND LC_NUMERIC\n')
    subprocess.run(["localedef", "-c", "-i", source, os.path.join(folder, "comma")], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=False)
    return os.path.isdir(os.path.join(folder, "comma"))


def test_decimal_comma(build):
    """A program in a locale with a decimal comma gets right numbers, and its statistics and profile are JSON."""
    with tempfile.TemporaryDirectory() as folder, Server(build) as server:
        if not shutil.which("localedef") or not make_comma_locale(folder):
            print("no locale can be made here")
            return
        program, profile = os.path.join(folder, "program.py"), os.path.join(folder, "profile.json")
        with open(program, "w") as file:
            file.write(PROGRAM)
        environment = {"LOCPATH": folder, "SOFTGPU_CACHE": "off"}
        direct = build.run_direct([sys.executable, program, os.path.join(build.soft_dir, "libcuda.so.1"), "comma"],
                                  environment=environment)
        expect(direct.status == 0 and direct.output == "1.625\n", "wrong on the software device", direct)
        command = [sys.executable, program, "libcuda.so.1", "comma"]
        remote = build.run_remote(command, server.address, environment=environment)
        expect(remote.status == 0 and remote.output == "1.625\n", "wrong remotely", remote, server.log())
        # run_remote has read the statistics
        profiled = build.run_remote(command, server.address, environment={**environment, "REMOTE_GPU_PROFILE": profile})
        expect(profiled.status == 0 and profiled.output == "1.625\n", "wrong when it is profiled", profiled)
        with open(profile) as file:
            text = file.read()
        try:
            json.loads(text)
        except ValueError as error:
            expect(False, "the profile is no JSON: %s\n%s" % (error, text[:1000]), profiled)


def test_set_user_id(build):
    """A program with other rights than its user's believes nothing of what its user's environment says."""
    if os.geteuid() != 0:
        print("left out: only root can make such a program")
        return
    with tempfile.TemporaryDirectory() as folder, Server(build) as server:
        os.chmod(folder, 0o777)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            print("left out: %s is mounted without set-user-ID" % folder)
            return
        program = os.path.join(folder, "program")
        shutil.copy(os.path.join(build.folder, "tests", "load_and_init"), program)
        os.chown(program, 65534, 65534)
        written = {"REMOTE_GPU_STATS": os.path.join(folder, "stats"),
                   "REMOTE_GPU_PROFILE": os.path.join(folder, "profile")}
        environment = {**written, "REMOTE_GPU_SERVER": server.address}
        command = [program, os.path.join(build.lib_dir, "libcuda.so.1")]
        for mode, result in ((0o755, "0\n"), (stat.S_ISUID | 0o755, "100\n")):
            os.chmod(program, mode)
            run = build.run_direct(command, environment=environment)
            expect(run.status == 0 and run.output == result, "cuInit is to be %s" % result.strip(), run, server.log())
            for path in written.values():
                expect(os.path.exists(path) == (mode == 0o755), "%s is%s there" % (
                    path, "" if os.path.exists(path) else " not"), run)
                if os.path.exists(path):
                    os.unlink(path)


def test_names_of_the_drivers(build):
    """A program whose library, or one that this needs, has variables by the names of the driver's functions runs."""
    with Server(build) as server:
        for library, function in (("driver_pointers.so", "count_devices"),
                                  ("driver_pointers_behind.so", "count_devices_behind")):
            command = [sys.executable, "-c", "import ctypes, sys; print(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])())",
                       os.path.join(build.folder, "tests", library), function]
            for result in (build.run_direct(command), build.run_by_path(command, server.address),
                           build.run_remote(command, server.address),
                           build.run_remote(command, server.address, ["--no-preload"])):
                expect(result.status == 0 and result.output == "1\n", "its variables are not its own", result, server.log())


def test_sanitizers(build):
    """Programs that are built with the address or the thread sanitizer run directly, by the library path and by `run`."""
    with Server(build) as server:
        for name in ("address", "thread"):
            command = [os.path.join(build.folder, "tests", "sanitized_by_" + name)]
            environment = {"ASAN_OPTIONS": "detect_leaks=0"}
            by_path = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"}  # which `run` says by itself
            for result in (build.run_direct(command, environment=environment),
                           build.run_by_path(command, server.address, environment={**environment, **by_path}),
                           build.run_remote(command, server.address, environment=environment)):
                expect(result.status == 0 and result.output == "ok\n" and "Sanitizer" not in result.errors,
                       "the %s sanitizer" % name, result, server.log())


def test_wrong_settings(build):
    """A variable that makes no sense is told once, by its name, and the program runs."""
    with Server(build, tcp=True) as server:
        for name, value in (("OPT", "-nonsense"), ("TRANSPORT", "nonsense"), ("WAIT", "nonsense"), ("CONNECTIONS", "99"),
                            ("COMPRESS", "nonsense"), ("GPUS", "0"), ("GPUS", "many"), ("RECONNECT", "nonsense"),
                            ("FAULTS", "nonsense"), ("ZEROCOPY", "nonsense"), ("LOG", "nonsense")):
            variable = "REMOTE_GPU_" + name
            arguments = ["--reconnect-grace", "5"] if name == "RECONNECT" else []
            with Server(build, tcp=True, arguments=arguments) if arguments else contextlib.nullcontext(server) as one:
                result = build.run_by_path([build.example("unified_memory" if name == "FAULTS" else "big_copy")],
                                           one.address, environment={variable: value})
            expect(result.status == 0, "%s=%s: the program failed" % (variable, value), result)
            lines = [line for line in result.errors.splitlines() if line.startswith("remote-gpu:")]
            expect(len(lines) == 1 and variable in lines[0], "%s=%s is to be told once" % (variable, value), result)


# Found by a relative path, and used from another folder.
RELATIVE = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
os.chdir("/")
count = ctypes.c_int()
print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""


def test_relative_library_path(build):
    """LD_LIBRARY_PATH may name the libraries' folder from where a program starts, wherever that goes before its first call."""
    folder, name = os.path.split(build.lib_dir)
    with Server(build) as server:
        result = run_program(["sh", "-c", 'cd "$0" && exec "$@"', folder, sys.executable, "-c", RELATIVE],
                             {"LD_LIBRARY_PATH": name, "REMOTE_GPU_SERVER": server.address})
        expect(result.output == "0 0 1\n" and result.errors == "", "the client is not found", result, server.log())


def without_streams(redirections):
    """The words in front of a command that start it with some of its standard streams closed."""
    return ["sh", "-c", 'exec "$@" ' + redirections, "sh"]


def test_closed_streams(build):
    """A server without standard streams serves, also what kernels print; and so does one of `run --local`."""
    prints = os.path.join(build.folder, "tests", "device_output")
    for command in [build.example("vector_add")], [prints]:
        direct = build.run_direct(command)
        with Server(build, prefix=without_streams("<&- >&- 2>&-"), environment={"REMOTE_GPU_LOG": "debug"}) as server:
            result = build.run_remote(command, server.address)
            expect(result.status == direct.status and sorted(result.output) == sorted(direct.output), "not as directly", direct,
                   result)
        local = run_program([*without_streams("<&- 2>&-"), build.command, "run", "--local", "--driver", "soft", "--", *command])
        expect(local.status == direct.status and sorted(local.output) == sorted(direct.output), "not as directly", direct, local)


def test_server_without_proc(build):
    """Where /proc is not mounted for a server, who asks for a GPU is told that this is why there is none."""
    prefix = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("left out: no mount namespaces can be made here")
        return
    with Server(build, prefix=prefix) as server:
        result = build.run_remote([build.example("vector_add")], server.address)
        expect(result.status == 0 or "/proc is not mounted" in result.errors, "it is not told why", result, server.log())


def with_limit(limit):
    """The words in front of a command that start it with a limit of its shell's."""
    return ["bash", "-c", 'ulimit %s && exec "$@"' % limit, "bash"]


def test_little_stack(build):
    """Servers, and commands that talk to them, make do with stacks that may have 64 KiB."""
    direct = build.run_direct([build.example("vector_add")])
    with Server(build, tcp=True, prefix=with_limit("-S -s 64")) as server:
        result = build.run_remote([build.example("vector_add")], server.address)
        expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result, server.log())
        for command in ["list"], ["netperf", "--json"], ["run"]:
            program = ["--", build.example("vector_add")] if command == ["run"] else []
            result = run_program([*with_limit("-s 64"), build.command, *command, "-s", server.address, *program])
            expect(result.status == 0, "it fails", result, server.log())


def test_server_of_small_files(build):
    """A server whose files may not grow (ulimit -f) says why it does not start."""
    result = run_program([*with_limit("-f 0"), build.daemon, "--driver", "soft", "--listen", "127.0.0.1:0"], timeout=60)
    expect(result.status == 125 and "ulimit -f" in result.errors, "it does not say why", result)


def test_root_of_a_namespace(build):
    """Who is root of a user namespace without other users, as in `unshare -r`, has a server of `run --local`."""
    alone = ["unshare", "-r"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        print("left out: no user namespaces can be made here")
        return
    direct = build.run_direct([build.example("vector_add")])
    local = [*alone, build.command, "run", "--local", "--driver", "soft", "--", build.example("vector_add")]
    ways = [local]
    if os.geteuid() == 0 and shutil.which("setpriv"):  # who may not write where root's servers have their folder
        ways.append(["setpriv", "--reuid", "61997", "--regid", "61997", "--clear-groups", *local])
    for command in ways:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            result = run_program(command, {"HOME": folder, "XDG_RUNTIME_DIR": folder, "SOFTGPU_CACHE": "off",
                                           "REMOTE_GPU_IMAGE_CACHE": "off"})
            expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


def test_root_without_capabilities(build):
    """Who is root without capabilities, as in a container that is started with --cap-drop all, has a server of `run --local`."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("left out: only root can give up root's capabilities")
        return
    direct = build.run_direct([build.example("vector_add")])
    result = run_program(["setpriv", "--bounding-set=-all", "--inh-caps=-all", build.command, "run", "--local", "--driver", "soft", "--",
                          build.example("vector_add")], {"SOFTGPU_CACHE": "off", "REMOTE_GPU_IMAGE_CACHE": "off"})
    expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


def test_anothers_home(build):
    """Who finds another user's home in HOME, as in containers that run as somebody else, has no settings, and no trouble."""
    with tempfile.TemporaryDirectory() as folder, Server(build, tcp=True) as server:
        os.makedirs(os.path.join(folder, "home", ".config", "remote-gpu"))
        os.chmod(os.path.join(folder, "home"), 0o700 if os.geteuid() == 0 else 0)
        somebody = ["setpriv", "--reuid", "61996", "--regid", "61996", "--clear-groups"] if os.geteuid() == 0 else []
        os.chmod(folder, 0o755)
        result = run_program([*somebody, "env", "-u", "XDG_CONFIG_HOME", "-u", "XDG_CACHE_HOME", "-u", "REMOTE_GPU_CACHE",
                              build.command, "run", "-s", server.address, "--", build.example("vector_add")],
                             {"HOME": os.path.join(folder, "home")})
        os.chmod(os.path.join(folder, "home"), 0o700)
        expect(result.status == 0 and result.errors == "", "it was not run", result, server.log())


def test_bare_surroundings(build):
    """A program in a container that has nothing: no place for temporary files or shared memory, no home, no variables, and a user without a name."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("left out: only root can make such surroundings")
        return
    # not hidden: the build may be in one of them
    closed = "".join("mount --bind %s %s && mount -o remount,bind,ro %s && " % (folder, folder, folder)
                     for folder in ("/tmp", "/var/tmp", "/dev/shm", "/run"))
    bare = ["unshare", "-m", "sh", "-c", closed + 'cd / && exec "$@"', "sh", *as_user(61993), "env", "-i"]
    direct = build.run_direct([build.example("vector_add")])
    with Server(build, tcp=True, arguments=["--allow-unauthenticated"]) as server:
        looked = run_program([*bare, "sh", "-c", "id -un; touch /tmp/x /dev/shm/x; echo home $HOME."])
        expect(looked.errors.count("Read-only") == 2 and "cannot find name" in looked.errors and "home ." in looked.output,
               "the surroundings are not bare", looked)
        result = run_program([*bare, build.command, "run", "-s", server.address, "--allow-unauthenticated", "--", build.example("vector_add")])
        expect(result.status == 0 and result.output == direct.output and result.errors == "", "not as directly", direct, result, server.log())


def test_read_only_files(build):
    """In a container whose files are all read-only, as by `docker run --read-only`, `run --local` finds a place for what its server keeps."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("left out: only root can make such surroundings")
        return
    direct = build.run_direct([build.example("vector_add")])
    for folders in ("/run",), ("/run", "/tmp", "/var/tmp"):
        closed = "".join("mount --bind %s %s && mount -o remount,bind,ro %s && " % (folder, folder, folder) for folder in folders)
        for user in [], as_user(61995):
            command = ["unshare", "-m", "sh", "-c", closed + 'cd / && exec "$@"', "sh", *user, build.command, "run", "--local", "--driver", "soft", "--",
                       build.example("vector_add")]
            result = run_program(command, {"HOME": "/", "XDG_RUNTIME_DIR": "", "SOFTGPU_CACHE": "off", "REMOTE_GPU_IMAGE_CACHE": "off"})
            expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


# A root that is read-only, with all folders of this one's but /run.
NO_RUN = """set -e
root=$1 && shift
mount -t tmpfs none "$root"
for entry in /*; do
    name=${entry#/}
    if [ -L "$entry" ]; then cp -P "$entry" "$root/"
    elif [ -d "$entry" ] && [ "$name" != run ]; then mkdir "$root/$name" && mount --rbind "$entry" "$root/$name"
    fi
done
mount -o remount,ro "$root" && cd "$root" && pivot_root . . && umount -l . && exec "$@"
"""


def test_no_run(build):
    """In an image without /run whose files are all read-only, too."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("left out: only root can make such surroundings")
        return
    direct = build.run_direct([build.example("vector_add")])
    for user in [], as_user(61995):
        with tempfile.TemporaryDirectory() as root:
            result = run_program(["unshare", "-m", "sh", "-c", NO_RUN, "sh", root, *user, build.command, "run", "--local", "--driver", "soft", "--",
                                  build.example("vector_add")],
                                 {"HOME": "/", "XDG_RUNTIME_DIR": "", "SOFTGPU_CACHE": "off", "REMOTE_GPU_IMAGE_CACHE": "off"})
        expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)


def as_user(number):
    """The words in front of a command by which root starts it as another user; none where this is not root."""
    return ["setpriv", "--reuid", str(number), "--regid", str(number), "--clear-groups"] if os.geteuid() == 0 else []


def test_server_of_few_threads(build):
    """Where a server may start no more threads, its log says which limit is meant, and clients are not told that it is none."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("left out: only root can start a server of a user who has no other process")
        return
    said = False
    for limit in 3, 4, 5:
        server = Server(build, tcp=True, prefix=[*as_user(61991), *with_limit("-u %d" % limit)],
                        environment={"HOME": "/", "XDG_RUNTIME_DIR": "", "SOFTGPU_CACHE": "off", "REMOTE_GPU_IMAGE_CACHE": "off"})
        os.chown(server.folder, 61991, 61991)
        try:
            with server:
                result = build.run_remote([build.example("vector_add")], server.address)
                told = server.log() + result.errors
        except Failure:  # it does not even start
            continue
        expect("is not a remote-gpud (" not in result.errors, "it is said to be none", result, told)
        expect(result.status == 0 or "ulimit" in told, "no limit is named", result, told)
        said = said or "ulimit" in told
    expect(said, "no limit was met")


def test_anothers_folder(build):
    """Where another user has the folder in /tmp that a server would take, it takes another one."""
    user = 61992 if os.geteuid() == 0 else os.geteuid()
    taken = "/tmp/remote-gpu-%d" % user
    if os.geteuid() != 0 or os.path.exists(taken):
        print("left out: only root can make such a folder")
        return
    direct = build.run_direct([build.example("vector_add")])
    os.mkdir(taken, 0o700)
    try:
        result = run_program([*as_user(user), build.command, "run", "--local", "--driver", "soft", "--", build.example("vector_add")],
                             {"HOME": "/", "XDG_RUNTIME_DIR": "", "SOFTGPU_CACHE": "off", "REMOTE_GPU_IMAGE_CACHE": "off"})
        expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)
    finally:
        os.rmdir(taken)
        shutil.rmtree(taken + "-1", ignore_errors=True)


def test_refused_server(build):
    """A server that does not serve other machines with the driver that it finds has made no certificates by then."""
    with tempfile.TemporaryDirectory() as folder:
        state = os.path.join(folder, "state")
        result = run_program([build.daemon, "--driver", "soft", "--listen", "0.0.0.0:0", "--state-dir", state],
                             {"SOFTGPU_GUARD": "0"}, timeout=60)
        expect(result.status == 125 and "SOFTGPU_GUARD=0" in result.errors, "it is not refused", result)
        expect(not os.path.exists(state), "it has left something behind: %s" % (os.path.exists(state) and os.listdir(state)), result)


def test_untold_faults(build):
    """Where the kernel does not say whether a touch of managed memory was a write, as gVisor's, the program goes on."""
    environment = {"REMOTE_GPU_FAULTS": "signals", "LD_PRELOAD": os.path.join(build.folder, "tests", "untold_faults.so")}
    with Server(build) as server:
        for name in ("managed_memory", "unified_memory"):
            command = [build.example(name)]
            direct = build.run_direct(command)
            result = build.run_remote(command, server.address, environment=environment, timeout=100)
            expect(result.status == 0 and result.output == direct.output, "not as directly", direct, result)
