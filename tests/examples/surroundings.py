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
from trial import Server

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
