"""The image of places/kubernetes/Containerfile has every program that the chart starts, and the packages whose libraries these need."""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import unittest

STAGE = os.path.join(os.path.abspath(sys.argv.pop(1)), "stage")
PLACE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "places", "kubernetes")
ALWAYS = {"libc6", "libgcc-s1"}  # of every image of Debian's


def read(path):
    with open(path) as file:
        return file.read()


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


def with_dependencies(packages):
    """Packages and what they depend on, as far as this machine has them."""
    found, new = set(), set(packages)
    while new:
        found |= new
        names = re.findall(r"[a-z0-9][a-z0-9+.-]+", re.sub(r"\([^)]*\)|:any", "", output(
            "dpkg-query", "--show", "--showformat", "${Depends}, ${Pre-Depends}, ", *sorted(new))))
        new = set(names) - found
    return found


@functools.lru_cache(maxsize=None)
def packages_of(path):
    """Those that have a library: dpkg may know it below /lib or below /usr/lib."""
    other = path[4:] if path.startswith("/usr/") else "/usr" + path
    return {line.split(":")[0] for line in output("dpkg", "--search", path, other).splitlines()}


class Image(unittest.TestCase):
    def setUp(self):
        self.text = read(os.path.join(PLACE, "Containerfile")).replace("\\\n", " ")
        self.copied = [path for line in re.findall(r"^COPY (.*)$", self.text, re.MULTILINE) for path in line.split()[:-1]]

    def test_it_has_each_program_of_the_chart(self):
        for template in glob.glob(os.path.join(PLACE, "chart", "templates", "*.yaml")):
            for program in re.findall(r"command: \[(remote-gpu-kube-\w+)\]", read(template)):
                self.assertIn("build/release/stage/bin/" + program, self.copied, template)

    @unittest.skipUnless(shutil.which("dpkg"), "this is no Debian")
    def test_it_has_each_library_of_them(self):
        given = with_dependencies(re.search(r"--no-install-recommends(.*?)&&", self.text).group(1).split()) | ALWAYS
        staged = [path.replace("build/release/stage", STAGE) for path in self.copied if path.startswith("build/release/stage/")]
        files = [path for path in staged if os.path.isfile(path)] + [
            path for folder in staged if os.path.isdir(folder) for path in glob.glob(os.path.join(folder, "*.so")) if "rdma" not in path]
        self.assertGreater(len(files), 4)
        for file in files:
            for path in re.findall(r" => (/\S+)", output("ldd", file), re.MULTILINE):
                self.assertTrue(packages_of(path) & given or path.startswith(STAGE), "%s needs %s" % (file, path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
