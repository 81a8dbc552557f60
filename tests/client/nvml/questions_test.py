"""What the server's management library is asked when a program asks."""

import subprocess
import sys

from nvml_harness import Case, as_client_of, in_python, main, user


@in_python
class Questions(Case):
    DEFINE = """
call("nvmlInit")
one, two = handle(0), handle(1)
class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_int), ("result", ctypes.c_int),
                ("value", ctypes.c_ulonglong)]
def pair(kind=ctypes.c_int):
    return (kind * 2)(77, 77)
def ref(array, i):
    return ctypes.byref(array, i * ctypes.sizeof(array._type_))
"""

    def test_every_kind_of_signature(self):
        out, errors = user(self.DEFINE + """
out["temperature"] = [number("nvmlDeviceGetTemperature", d, 2) for d in (one, two)]
v = (ctypes.c_int * 3)(12 | 1 << 24, 5, 0)
call("nvmlDeviceGetTemperatureV", two, v)
out["structure"] = v[2]
v[0] = 12 | 9 << 24
out["version"] = library.nvmlDeviceGetTemperatureV(two, v)
u = pair(ctypes.c_uint); call("nvmlDeviceGetUtilizationRates", two, u); out["rates"] = list(u)
out["serial"] = text("nvmlDeviceGetSerial", two, size=30)
out["short"] = library.nvmlDeviceGetSerial(two, ctypes.create_string_buffer(5), 5)
out["inforom"] = text("nvmlDeviceGetInforomVersion", two, 3)
n = ctypes.c_uint(0)
out["length"] = [library.nvmlDeviceGetSupportedGraphicsClocks(one, 1000, ctypes.byref(n), None), n.value]
clocks = (ctypes.c_uint * 5)(*[9] * 5); n.value = 5
call("nvmlDeviceGetSupportedGraphicsClocks", one, 1000, ctypes.byref(n), clocks)
out["clocks"] = [n.value, list(clocks)]
kind, n, room = ctypes.c_int(), ctypes.c_uint(1), (ctypes.c_ulonglong * 4)(1, 1, 1, 1)
call("nvmlDeviceGetSamples", two, 6, ctypes.c_ulonglong(1 << 40), ctypes.byref(kind), ctypes.byref(n), room)
out["samples"] = [kind.value, n.value, list(room)]
out["two devices"] = [number("nvmlDeviceGetTopologyCommonAncestor", one, two), number("nvmlDeviceGetP2PStatus", two, one, 3)]
fields = (Field * 3)(); fields[0].id, fields[1].id, fields[2].id, fields[2].scope = 5, 99, 7, 20
call("nvmlDeviceGetFieldValues", two, 3, fields)
out["fields"] = [[f.result, f.value] for f in fields]
p = pair(); call("nvmlDeviceGetEccMode", one, ref(p, 0), ref(p, 1)); out["ecc"] = list(p)
out["by serial"] = handle_by("nvmlDeviceGetHandleBySerial", "SERIAL-2").value == two.value
""", self.address)
        self.assertEqual(errors, "")
        self.assertEqual(out, {
            "temperature": [52, 62], "structure": -47, "version": 25, "rates": [20, 7], "serial": "SERIAL-2",
            "short": 7, "inforom": "2.3", "length": [7, 3], "clocks": [3, [1010, 1011, 1012, 9, 9]],
            "samples": [7, 2, [1 << 40, 2, 1, 1]], "two devices": [30, 213],
            "fields": [[0, 5002], [3, 99002], [0, 7022]], "ecc": [1, 0], "by serial": True})

    def test_what_is_wrong(self):
        out, errors = user(self.DEFINE + """
n = ctypes.c_uint(3)
out["null"] = [library.nvmlDeviceGetTemperature(one, 0, None), library.nvmlDeviceGetSerial(one, None, 30),
               library.nvmlDeviceGetSupportedMemoryClocks(one, None, None),
               library.nvmlDeviceGetSupportedMemoryClocks(one, ctypes.byref(n), None),
               library.nvmlDeviceGetEccMode(one, ctypes.byref(n), None),
               library.nvmlDeviceGetFieldValues(one, 3, None)]
out["refused there"] = library.nvmlDeviceGetTemperature(one, 3, ctypes.byref(n))
out["not supported there"] = library.nvmlDeviceGetFanSpeed(one, ctypes.byref(n))
out["missing there"] = library.nvmlDeviceGetNumFans(one, ctypes.byref(n))
out["other device"] = library.nvmlDeviceGetTopologyCommonAncestor(one, ctypes.c_void_p(8), ctypes.byref(n))
huge = (ctypes.c_uint * 2)(0xffffff | 1 << 24)
out["huge"] = library.nvmlDeviceGetTemperatureV(one, huge)
out["tiny"] = library.nvmlDeviceGetTemperatureV(one, (ctypes.c_uint * 2)(2))
out["untouched"] = n.value
""", self.address)
        self.assertEqual(errors, "")
        self.assertEqual(out, {"null": [2] * 6, "refused there": 2, "not supported there": 3, "missing there": 3,
                               "other device": 2, "huge": 2, "tiny": 2, "untouched": 3})

    def test_a_library_that_crashes(self):
        server = self.serve()
        out, _ = user(self.DEFINE + """
n = ctypes.c_uint()
out["crash"] = library.nvmlDeviceGetIrqNum(one, ctypes.byref(n))
time.sleep(1.1)
out["after"] = number("nvmlDeviceGetTemperature", one, 0)
""", server.address)
        self.assertEqual(out, {"crash": 999, "after": 50})

    def test_answers_are_kept_for_a_tenth_of_a_second(self):
        out, _ = user(self.DEFINE + """
def energy(d): return number("nvmlDeviceGetTotalEnergyConsumption", d, kind=ctypes.c_ulonglong)
deadline = time.monotonic() + 20
same = False
while not same and time.monotonic() < deadline:
    same = energy(one) == energy(one)
first = energy(one)
time.sleep(0.15)
out["kept"], out["asked again"], out["other"] = same, energy(one) > first, energy(two) >> 40
""", self.address)
        self.assertEqual(out, {"kept": True, "asked again": True, "other": 2})

    def test_polling_is_a_question_in_a_tenth_of_a_second(self):
        counts = {}
        for way, changes in (("kept", {}), ("asked", {"REMOTE_GPU_OPT": "-query-cache"})):
            proxy = self.passage(self.server)
            out, _ = user(self.DEFINE + """
start = time.monotonic()
values = {number("nvmlDeviceGetTemperature", one, 0) for i in range(300)}
out["seconds"], out["values"] = time.monotonic() - start, len(values)
""", REMOTE_GPU_SERVER=proxy.address, **changes)
            self.assertEqual(out["values"], 1)
            counts[way] = proxy.connections
            if way == "kept":
                self.assertLessEqual(proxy.connections, 3 + out["seconds"] / 0.1)
        self.assertGreaterEqual(counts["asked"], 300)

    def test_only_what_is_granted_can_be_asked_of(self):
        out, _ = user("""
call("nvmlInit")
out["serial"] = text("nvmlDeviceGetSerial", handle(0))
out["other"] = library.nvmlDeviceGetHandleBySerial(b"SERIAL-2", ctypes.byref(ctypes.c_void_p()))
""", self.address, REMOTE_GPU_GPUS="1")
        self.assertEqual(out, {"serial": "SERIAL-1", "other": 6})

    def test_devices_of_two_servers(self):
        other = self.serve()
        out, _ = user("""
call("nvmlInit")
out["serials"] = [text("nvmlDeviceGetSerial", handle(i)) for i in range(4)]
n = ctypes.c_int()
out["level"] = library.nvmlDeviceGetTopologyCommonAncestor(handle(0), handle(3), ctypes.byref(n))
out["peers"] = number("nvmlDeviceGetP2PStatus", handle(0), handle(3), 0)
out["same"] = number("nvmlDeviceGetTopologyCommonAncestor", handle(2), handle(3))
""", REMOTE_GPU_SERVER="%s,%s" % (self.address, other.address))
        self.assertEqual(out, {"serials": ["SERIAL-1", "SERIAL-2"] * 2, "level": 3, "peers": 6, "same": 30})

    def test_a_server_that_is_gone(self):
        server = self.serve()
        command = [sys.executable, "-u", "-c", """
from nvml_user import *
call("nvmlInit")
d, n = handle(0), ctypes.c_uint()
print("ready"); input()
print(library.nvmlDeviceGetTemperature(d, 0, ctypes.byref(n)))
"""]
        with subprocess.Popen(command, env=as_client_of(server), text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            self.addCleanup(process.kill)
            self.assertEqual(process.stdout.readline(), "ready\n")
            server.stop()
            self.assertEqual(process.communicate("\n", 60)[0], "15\n")

    def test_event_sets(self):
        out, _ = user(self.DEFINE + """
s, types, data = ctypes.c_void_p(), ctypes.c_ulonglong(5), (ctypes.c_ubyte * 64)()
call("nvmlEventSetCreate", ctypes.byref(s))
call("nvmlDeviceGetSupportedEventTypes", one, ctypes.byref(types))
out["results"] = [types.value, library.nvmlDeviceRegisterEvents(one, ctypes.c_ulonglong(8), s),
                  library.nvmlEventSetWait_v2(s, data, 10), library.nvmlEventSetFree(s)]
table = ctypes.c_void_p()
known = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
out["table"] = [library.nvmlInternalGetExportTable(ctypes.byref(table), bytes(16)),
                library.nvmlInternalGetExportTable(ctypes.byref(table), known)]
size = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))[0]
out["size"] = size
""", self.address)
        self.assertEqual(out, {"results": [0, 3, 10, 0], "table": [6, 0], "size": 2048})


if __name__ == "__main__":
    main()
