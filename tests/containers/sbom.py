"""scripts/sbom: what it says of a root with a few packages and of a client tree, that it says the same twice, and what it refuses."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

SBOM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "sbom")
STATUS = """Package: libstdc++6
Status: install ok installed
Architecture: amd64
Maintainer: Debian GCC Maintainers <debian-gcc@lists.debian.org>
Source: gcc-12 (12.2.0-14)
Version: 12.2.0-14+b1
Homepage: http://gcc.gnu.org/
Description: GNU Standard C++ Library v3
 With a second line,
 and: a third one

Package: remote-gpu-client
Status: install ok installed
Architecture: amd64
Maintainer: the remote-gpu authors <remote-gpu@example.org>
Source: remote-gpu
Version: 0.1.0
Static-Built-Using: openssl (= 3.0.17-1~deb12u2), zlib (= 1:1.2.13.dfsg-1)
Description: run CUDA programs on GPUs of other machines

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Maintainer: nobody <nobody@example.org>
Version: 1
Description: removed
"""


class Bill(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-sbom-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def root(self, status=STATUS, name="./var/lib/dpkg/status"):
        handle, path = tempfile.mkstemp(suffix=".tar", dir=self.folder)
        os.close(handle)
        with tarfile.open(path, "w") as root:
            member = tarfile.TarInfo(name)
            member.size = len(status.encode())
            root.addfile(member, io.BytesIO(status.encode()))
        return path

    def client(self):
        folder = os.path.join(self.folder, "client", "share", "doc", "remote-gpu", "inside")
        os.makedirs(folder)
        with open(os.path.join(folder, "versions"), "w") as file:
            file.write("protobuf-c 1.4.1-1\njansson 2.14-2\n")
        return os.path.join(self.folder, "client")

    def run_sbom(self, *arguments, output="out.json"):
        path = os.path.join(self.folder, output)
        return path, subprocess.run([SBOM, "--image", "remote-gpu/server:0.1.0", "--time", "1767225600", "--output", path, *arguments],
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def bill(self, *arguments):
        path, result = self.run_sbom(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(path) as file:
            return json.load(file)

    def relations(self, bill, how):
        names = {package["SPDXID"]: package["name"] for package in bill["packages"]}
        return {(names.get(one["spdxElementId"], "the document"), names[one["relatedSpdxElement"]])
                for one in bill["relationships"] if one["relationshipType"] == how}

    def test_packages_and_what_is_linked_into_them(self):
        bill = self.bill("--root", self.root())
        packages = {package["name"]: package for package in bill["packages"]}
        self.assertEqual(set(packages), {"remote-gpu/server", "libstdc++6", "remote-gpu-client", "openssl", "zlib"})
        self.assertEqual(packages["libstdc++6"]["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14%2Bb1?arch=amd64")
        self.assertEqual(packages["libstdc++6"]["sourceInfo"], "built from gcc-12 12.2.0-14")
        self.assertEqual(packages["zlib"]["versionInfo"], "1:1.2.13.dfsg-1")
        self.assertEqual((packages["remote-gpu-client"]["licenseDeclared"], packages["libstdc++6"]["licenseDeclared"]), ("MIT", "NOASSERTION"))
        self.assertEqual(self.relations(bill, "DESCRIBES"), {("the document", "remote-gpu/server")})
        self.assertEqual(self.relations(bill, "CONTAINS"), {("remote-gpu/server", "libstdc++6"), ("remote-gpu/server", "remote-gpu-client")})
        self.assertEqual(self.relations(bill, "STATIC_LINK"), {("remote-gpu-client", "openssl"), ("remote-gpu-client", "zlib")})

    def test_a_client_tree(self):
        bill = self.bill("--client", self.client())
        self.assertEqual(self.relations(bill, "STATIC_LINK"), {("remote-gpu client", "protobuf-c"), ("remote-gpu client", "jansson")})

    def test_it_is_spdx(self):
        """What the specification asks of every document and package (spdx.github.io/spdx-spec/v2.3)."""
        bill = self.bill("--root", self.root(), "--client", self.client())
        self.assertEqual((bill["spdxVersion"], bill["dataLicense"], bill["SPDXID"], bill["creationInfo"]["created"]),
                         ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT", "2026-01-01T00:00:00Z"))
        self.assertRegex(bill["documentNamespace"], r"^https://[^#\s]+$")
        identities = [package["SPDXID"] for package in bill["packages"]]
        self.assertEqual(len(set(identities)), len(identities))
        for package in bill["packages"]:
            self.assertRegex(package["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertTrue({"name", "versionInfo", "downloadLocation", "filesAnalyzed"} <= set(package))
        for relation in bill["relationships"]:
            self.assertTrue({relation["spdxElementId"], relation["relatedSpdxElement"]} <= {"SPDXRef-DOCUMENT", *identities})

    def test_the_same_twice_and_another_one_of_another_input(self):
        first, second = self.bill("--root", self.root()), self.bill("--root", self.root())
        self.assertEqual(first, second)
        other = self.bill("--root", self.root(STATUS.replace("12.2.0-14+b1", "12.2.0-14+b2")))
        self.assertNotEqual(first["documentNamespace"], other["documentNamespace"])

    def test_what_is_no_root_is_refused(self):
        for arguments, what in ((["--root", self.root(name="./etc/passwd")], "no root of Debian"), (["--root", self.root("")], "no package"),
                                (["--root", SBOM], "sbom: error"), (["--client", self.folder], "scripts/build-client")):
            path, result = self.run_sbom(*arguments, output="refused.json")
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(what, result.stderr)
            self.assertFalse(re.search("Traceback", result.stderr))
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
