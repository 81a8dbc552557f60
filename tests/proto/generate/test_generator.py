"""The specification's parser: mistakes end with file, line and reason; the coverage page is the specification's."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "proto"))
from generate import client, coverage, drivers, import_api, model, nccl, reader, server, tables  # noqa: E402

SYMBOLS = """version 13000
cuA | cuA 2000 legacy | CUresult (CUstream s, size_t n, const int *p)
cuB | cuB 2000 legacy | CUresult (int *out)
cuB_v2 | cuB 3020 legacy | CUresult (long *out)
cuC_ptsz | cuC 7000 ptsz | CUresult (CUstream s)
"""


def shipped(name):
    with open(os.path.join(ROOT, "proto", "api", name)) as text:
        return text.read()


class Specification(unittest.TestCase):
    def read(self, group, symbols=SYMBOLS, types=None, traits=None):
        files = {"symbols.txt": symbols, "g.api": group, "types.txt": types or shipped("types.txt"),
                 "traits.txt": traits or shipped("traits.txt")}
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w") as out:
                    out.write(text)
            return reader.read(folder)

    def refused(self, group, line, words, **files):
        with self.assertRaises(model.SpecError) as caught:
            self.read(group, **files)
        self.assertIn(f":{line}: ", str(caught.exception))
        self.assertIn(words, str(caught.exception))

    def test_good(self):
        specification = self.read('group g "G"\ncuA sync p:in[n]=plain\nop rgX async (CUevent e)\n')
        a, x = specification.wire_operations
        self.assertEqual([p.role for p in a.parameters], ["handle", "value", "in-array"])
        self.assertEqual([p.name for p in a.wire_order][0], "n")
        self.assertEqual((a.number, x.number), (1, 2))

    def test_another_call(self):
        """An older name is the newer one, for both sides; with other arguments where the line has them."""
        specification = self.read('group g "G"\ncuA sync p:in[n]=plain\ncuB local as=cuB_v2\ncuB_v2 custom as=cuA(NULL,0,out)\n',
                                  symbols=SYMBOLS.rpartition("cuC_ptsz")[0])
        self.assertEqual([one.made_of for one in specification.operations], ["", "cuB_v2(out)", "cuA(NULL, 0, out)"])
        with tempfile.TemporaryDirectory() as folder:
            client.emit(specification, folder)
            tables.softgpu(specification, folder)
            for made in ("client/rest.c", "softgpu/unsupported.c"):
                with open(os.path.join(folder, made)) as text:
                    self.assertIn("CUresult cuB(int *out)\n{\n    return cuB_v2(out);\n}\n", text.read())

    def test_mistakes(self):
        head = 'group g "G"\n'
        self.refused("cuA local\n", 1, "'group' must come first")
        self.refused(head + "cuZ local\n", 2, "exports no function 'cuZ'")
        self.refused(head + "cuA fast\n", 2, "unknown class 'fast'")
        self.refused(head + "cuA sync\n", 2, "'p' is a pointer, which needs a note")
        self.refused(head + "cuA sync q:in\n", 2, "no parameter 'q'")
        self.refused(head + "cuA sync p:in[m]\n", 2, "no parameter 'm'")
        self.refused(head + "cuA sync p:inn\n", 2, "unknown note 'inn'")
        self.refused(head + "cuB async out:out\n", 2, "is async but returns 'out'")
        self.refused(head + "cuC_ptsz local\n", 2, "per-thread forms are generated")
        self.refused(head + "cuA local\ncuA local\n", 3, "is also at")
        self.refused(head + "cuA refused\n", 2, "needs the reason")
        self.refused(head + "cuA sync p:in[n]=plain as=cuB\n", 2, "is sync, so it cannot be as=cuB")
        self.refused(head + "cuB local as=cuZ\n", 2, "is as=cuZ, which libcuda does not export")
        self.refused(head + "cuB local as=cuA(\n", 2, "cannot read 'as=cuA('")
        self.refused(head + "cuA refused because\n", 2, "needs the reason")
        self.refused(head + "cuA local nonsense\n", 2, "cannot read 'nonsense'")
        self.refused(head + "cuA local context=n\n", 2, "cuA has context=n, which brings none along")
        self.refused(head + "cuA local context=m\n", 2, "cuA has context=m, which brings none along")
        self.refused(head + "cuA local context=s->member\n", 2, "which brings none along")
        self.refused(head + "cuA local context=s context=none\n", 2, "cuA has 'context=' twice")
        self.refused(head + "op rgX async (CUevent e) context=e\n", 2, "rgX has context=e, which brings none along")
        self.refused('group h "G"\n', 1, "named after")
        self.refused(head, 2, "not a symbol line", symbols="version 13000\nnonsense\n")

    def test_traits(self):
        head = 'group g "G"\n'
        said = self.read(head + "cuA sync p:in[n]=plain idle awaits=stream context=none\ncuB wait out:out accesses\n"
                         "op rgX async (CUevent e) bulk credit server=custom\n").operations
        self.assertEqual(said[0].traits, {"idle", "awaits_stream", "stream"})
        self.assertEqual(said[1].traits, {"context", "waits", "work", "accesses"})
        self.assertEqual(said[2].traits, {"context", "custom", "work", "bulk", "credit"})
        x = "op rgX async (CUevent e) "
        self.refused(head + x + "idle lasts\n", 2, "cannot be both 'idle' and 'lasts'")
        self.refused(head + x + "accesses idle\n", 2, "cannot be both 'idle' and 'accesses'")
        self.refused(head + x + "credit\n", 2, "rgX is 'credit', but not 'bulk'")
        self.refused(head + x + "awaits=event\n", 2, "rgX is async")
        self.refused(head + "op rgY async (CUcontext c) c:del\n", 2, "rgY ends what holds memory, but is not 'ends'")
        self.refused(head + x + "work\n", 2, "cannot read 'work'")
        self.refused(head + x + "awaits\n", 2, "cannot read 'awaits'")
        self.refused(head + x + "deferred=in deferred=out\n", 2, "has 'deferred=' twice")
        self.refused(head + "cuA local lasts\n", 2, "cuA is no operation of the wire")
        self.refused(head + "cuA sync p:in=plain capture=rg_capture_fill(n)\n", 2, "cannot read 'capture=")

    def test_tables_of_traits_and_types(self):
        group = 'group g "G"\ncuA local\n'
        self.refused(group, 2, "not a trait", traits="one  a meaning\nOne a meaning\n")
        self.refused(group, 3, "the trait 'a=b' is there twice", traits="# head\na=b  one\na=b  two\n")
        with self.assertRaisesRegex(model.SpecError, "more traits than"):
            self.read(group, traits="".join(f"trait={chr(97 + i // 26)}{chr(97 + i % 26)}  one\n" for i in range(33)))
        self.refused(group, 1, "not a line about a type", types="scalar int u16\n")
        self.refused(group, 2, "not a line about a type", types="scalar int u32\nhandle CUstream\n")

    def test_table_of_operations(self):
        group = 'group g "G"\ncuA sync p:in[n]=plain idle context=none\nop rgX wait () context=none blocks\n'
        with tempfile.TemporaryDirectory() as folder:
            tables.operations(self.read(group), folder)
            with open(os.path.join(folder, "proto", "ops.c")) as made:
                code = made.read()
        self.assertIn("[RG_OP_cuA] = RG_TRAIT_STREAM | RG_TRAIT_IDLE,", code)
        self.assertIn("[RG_OP_rgX] = RG_TRAIT_WAITS | RG_TRAIT_WORK | RG_TRAIT_BLOCKS,", code)

    def test_captures(self):
        symbols = ("version 13000\ncuFill | cuFill 7000 legacy | CUresult (CUdeviceptr to, size_t pitch, unsigned short us, size_t w, size_t h, CUstream s)\n"
                   "cuWait | cuWait 8000 legacy | CUresult (CUstream s, CUdeviceptr at, cuuint32_t v, unsigned int flags)\n"
                   "cuSet | cuSet 2000 legacy | CUresult (CUdeviceptr to, unsigned char uc, size_t n)\n")
        made = self.read('group g "G"\ncuFill async capture=fill device=to,n,w,h\n'
                         'cuWait async capture=memop,WAIT_VALUE_32 device=at,4\n'
                         'cuSet async capture=refuse within=to,n\n', symbols=symbols).operations
        self.assertEqual([client.captures(operation)[1].strip() for operation in made],
                         ["return rg_capture_fill(to, pitch, us, sizeof us, w, h, s);",
                          "return rg_capture_memop(CU_STREAM_MEM_OP_WAIT_VALUE_32, at, v, flags, s);",
                          "return rg_capture_refuse(NULL);"])

    def test_addresses(self):
        """No address of a client's gets to the driver by a line that does not say what it must be."""
        head = 'group g "G"\n'
        x = "op rgX async (CUdeviceptr to, size_t pitch, unsigned n) "
        self.refused(head + x + "accesses\n", 2, "rgX: 'to' may be any address")
        self.refused(head + "cuA sync p:value\n", 2, "cuA: 'p' may be any address")
        self.refused(head + x + "device=to,n lookup=at\n", 2, "rgX has no parameter 'at'")
        self.refused(head + x + "own=to\n", 2, "rgX has own=to, which is for hand-written code")
        self.refused(head + x + "aligned=to,4\n", 2, "'to' may be any address")
        for line in ("own=to server=custom", "lookup=to", "device=to,1"):
            self.read(head + x + line + "\n")
        checked = "\n".join(server.execute(self.read(head + x + "device=to,pitch,n*4,9 within=to,n\n").operations[0]))
        self.assertIn("rg_request_device_memory(request, (uint64_t)to, pitch, rg_request_bytes_of(n, 4), 9)", checked)
        self.assertIn("rg_request_device_memory(request, (uint64_t)to, 0, n, 1)", checked)
        self.assertLess(checked.index("rg_request_device_memory"), checked.index("rg_driver.rgX"))

    def test_content_of_bytes(self):
        """What a client sends as bytes gets to the driver by a line that says what it is, and no other."""
        head = 'group g "G"\ncuB local\n'
        self.refused(head + "cuA sync p:in\n", 3, "cuA: 'p' does not say what its bytes are")
        self.refused(head + "cuA sync p:in[n]\n", 3, "does not say what its bytes are")
        self.refused(head + "cuA sync p:bytes[n]\n", 3, "does not say what its bytes are")
        self.refused(head + "cuA sync p:in?\n", 3, "does not say what its bytes are")
        self.refused(head + "op rgX async (size_t n, const CUipcMemHandle *h) h:in\n", 3, "does not say what its bytes are")
        self.refused(head + "cuA sync p:in=nonsense\n", 3, "unknown content 'nonsense'")
        self.refused(head + "cuA sync p:out[n]=plain\n", 3, "sends no bytes")
        self.refused(head + "cuA sync p:in=plain s:value=plain\n", 3, "sends no bytes")
        self.refused(head + "cuA sync p:in=checked\n", 3, "without server=custom the driver gets it as it is")
        self.refused(head + "cuA sync p:bytes[n]=data\n", 3, "without server=custom the driver gets it as it is")
        self.refused(head + "cuA sync p:in=translated\n", 3, "'int' is no type of CUDA's")
        self.refused(head + "op rgX sync (const CUlaunchAttribute *a) a:in=translated\n"
                     "op rgY sync (const CUlaunchAttribute *a) a:in=plain\n", 4, "is translated at")
        self.refused(head + "op rgY sync (const CUlaunchAttribute *a) a:in=checked server=custom\n"
                     "op rgX sync (const CUlaunchAttribute *a) a:in=translated\n", 3, "is translated at")
        good = self.read(head + "cuA sync p:in?=plain\nop rgX sync (const void *d) d:bytes[9]=data server=custom\n"
                         "op rgY sync (unsigned n, const CUlaunchAttribute *a) a:in[n]=translated\n")
        self.assertEqual([p.content for o in good.wire_operations for p in o.parameters if p.is_blob],
                         ["plain", "data", "translated"])

    def test_translated_before_the_driver(self):
        group = 'group g "G"\nop rgY sync (unsigned n, const CUlaunchAttribute *a) a:in[n]=translated server=custom\n'
        with tempfile.TemporaryDirectory() as folder:
            server.emit(self.read(group), folder)
            with open(os.path.join(folder, "server", "g.c")) as made:
                code = made.read()
        translation = code.index("rg_translate_CUlaunchAttribute(request, a, (size_t)(n))")
        self.assertLess(code.index("rg_request_array_in"), translation)
        self.assertLess(translation, code.index("rg_request_enter"))

    def test_contexts(self):
        said = self.read('group g "G"\ncuA sync p:in[n]=plain context=s\ncuB sync out:out context=none\ncuB_v2 local\n').operations
        self.assertEqual([o.brings for o in said], [("s", "", "STREAM"), None, None])
        self.assertEqual([o.needs_context for o in said], [True, False, True])
        self.assertEqual([coverage.context(o) for o in said], ["that of `s`", "none", "a current one"])

    def test_every_function_is_accounted_for(self):
        some = self.read('group g "G"\ncuA local\n')
        self.assertEqual(some.unaccounted(), ["cuB", "cuB_v2"])
        every = self.read('group g "G"\ncuA local\ncuB unsupported\ncuB_v2 refused "a reason"\n')
        self.assertEqual(every.unaccounted(), [])
        self.assertEqual(every.operations[2].reason, "a reason")

    def test_digest_follows_layout(self):
        one = self.read('group g "G"\ncuA sync p:in[n]=plain\n').digest
        self.assertEqual(one, self.read('# other words\ngroup g "G"\ncuA sync p:in[n]=data server=custom\n').digest)
        self.assertNotEqual(one, self.read('group g "G"\ncuA sync p:bytes[n]=plain\n').digest)


class Headers(unittest.TestCase):
    """The comparison of symbols.txt with a toolkit's headers finds what differs."""
    KNOWN = "# head\nversion 13000\ncuA | cuA 2000 legacy | CUresult (int a)\ncuB | cuB 3000 legacy | CUresult (int b)\n"

    def test_same_toolkit(self):
        symbols = {"cuA": ("cuA 2000 legacy", "CUresult", "int a"), "cuB": ("cuB 3000 legacy", "CUresult", "int b")}
        known = import_api.text_of(13000, symbols)
        self.assertEqual(import_api.differences(known, 13000, symbols), [])
        changed = dict(symbols, cuB=("cuB 3000 legacy", "CUresult", "long b"))
        self.assertIn("+cuB | cuB 3000 legacy | CUresult (long b)", import_api.differences(known, 13000, changed))
        more = dict(symbols, cuC=("-", "CUresult", "void"))
        self.assertIn("+cuC | - | CUresult (void)", import_api.differences(known, 13000, more))

    def test_another_toolkit(self):
        symbols = {"cuA": ("cuA 2000 legacy", "CUresult", "int x"), "cuOld": ("cuOld 1 legacy", "CUresult", "void")}
        self.assertEqual(import_api.differences(self.KNOWN, 12090, symbols), [])
        symbols["cuB"] = ("cuB 3010 legacy", "CUresult", "int b")
        self.assertEqual(len(import_api.differences(self.KNOWN, 12090, symbols)), 1)


class Drivers(unittest.TestCase):
    GOOD = "12000 | 525 | 8.0 | 1 2 3 | something\n"

    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, drivers.FILE), "w") as file:
                file.write("# a comment\n" + text)
            return drivers.read(folder)

    def test_versions(self):
        version, = self.read(self.GOOD)
        self.assertEqual((version.number, version.name, version.branch, version.ptx, version.limits, version.news),
                         (12000, "12.0", "525", 80, [1, 2, 3], "something"))

    def test_mistakes(self):
        for text in ("12000 | 525 | 8.0 | 1 2 | something\n", "12000 | 525 | 8.0\n", self.GOOD + self.GOOD):
            with self.assertRaisesRegex(SystemExit, "driver_versions.txt:[23]: "):
                self.read(text)


class Nccl(unittest.TestCase):
    GOOD = "ncclResult_t ncclA(int x, const void *y) local\n"

    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "functions.txt")
            with open(path, "w") as file:
                file.write(text)
            return nccl.read(path)

    def test_what_a_line_says(self):
        (function,), later = self.read("# of nothing\n" + self.GOOD + "\nlater ncclNew\n")
        self.assertEqual(later, ["ncclNew"])
        self.assertEqual((function.name, function.cls, function.arguments, function.prototype("p")),
                         ("ncclA", "local", "x, y", "ncclResult_t pncclA(int x, const void *y)"))

    def test_mistakes(self):
        for text in ("ncclResult_t ncclA(int x)\n", "ncclResult_t ncclA(int x) served\n", "int other(int x) local\n",
                     "ncclResult_t ncclA(int x) refused\n", 'ncclResult_t ncclA(int x) local "why"\n', self.GOOD + self.GOOD,
                     self.GOOD + "later ncclA\n", "later other\n"):
            with self.assertRaisesRegex(SystemExit, "functions.txt:"):
                self.read(text)


class Project(unittest.TestCase):
    def test_coverage_page_is_current(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            coverage.emit(reader.read(os.path.join(ROOT, "proto", "api")), page)
            with open(page) as made, open(os.path.join(ROOT, "docs", "api-coverage.md")) as committed:
                self.assertEqual(made.read(), committed.read(),
                                 "run: python3 proto/generate --spec proto/api --coverage docs/api-coverage.md")

    def test_nccl_page_is_current(self):
        functions, later = nccl.read(os.path.join(ROOT, "proto", "nccl", "functions.txt"))
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            nccl.page(functions, later, page)
            with open(page) as made, open(os.path.join(ROOT, "docs", "nccl-coverage.md")) as committed:
                self.assertEqual(made.read(), committed.read(),
                                 "run: python3 proto/generate/nccl.py --spec proto/nccl/functions.txt --coverage docs/nccl-coverage.md")

    def test_drivers_page_is_current(self):
        spec = os.path.join(ROOT, "proto", "api")
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            drivers.page(reader.read(spec), drivers.read(spec), page)
            with open(page) as made, open(os.path.join(ROOT, "docs", "drivers.md")) as committed:
                self.assertEqual(made.read(), committed.read(),
                                 "run: python3 proto/generate --spec proto/api --drivers docs/drivers.md")

    def test_generated_code_is_stable(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.join(ROOT, "proto", "generate"), "--spec", os.path.join(ROOT, "proto", "api")]
            for name in ("a", "b"):
                subprocess.run(command + ["--out", os.path.join(folder, name)], check=True)
            self.assertEqual(subprocess.run(["diff", "-r", os.path.join(folder, "a"), os.path.join(folder, "b")]).returncode, 0)


if __name__ == "__main__":
    unittest.main()
