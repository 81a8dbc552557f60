"""The installed tree: complete, working from wherever it lies, and known to what uninstalls it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CMAKE, BUILD, EXAMPLE = sys.argv[1:4]
del sys.argv[1:4]


def install(prefix, **changes):
    subprocess.run([CMAKE, "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **changes})
    with open(os.path.join(BUILD, "install_manifest.txt")) as file:
        return file.read().splitlines()


def files_below(folder):
    return {os.path.join(at, name) for at, _, names in os.walk(folder) for name in names}


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="remote-gpu-install-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_from(self, prefix):
        result = subprocess.run([os.path.join(prefix, "bin", "remote-gpu"), "run", "--local", "--driver", "soft", "--",
                                 EXAMPLE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, timeout=120, cwd="/", env={**os.environ, "HOME": self.folder})
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)

    def test_runs_where_it_was_put_and_where_it_is_moved_to(self):
        prefix = os.path.join(self.folder, "a prefix", "with blanks")
        install(prefix)
        self.run_from(prefix)
        moved = os.path.join(self.folder, "elsewhere")
        shutil.move(prefix, moved)
        self.run_from(moved)
        linked = os.path.join(self.folder, "links", "bin")
        os.makedirs(linked)
        os.symlink(os.path.join(moved, "bin", "remote-gpu"), os.path.join(linked, "remote-gpu"))
        self.run_from(os.path.dirname(linked))

    def test_unit_names_the_installed_server(self):
        root = os.path.join(self.folder, "root")
        install("/opt/remote-gpu", DESTDIR=root)
        with open(os.path.join(root, "opt", "remote-gpu", "lib", "systemd", "system", "remote-gpud.service")) as file:
            unit = file.read()
        self.assertIn('ExecStart="/opt/remote-gpu/bin/remote-gpud"\n', unit)
        self.assertNotRegex(unit, r"@\w+@")
        self.assertTrue(os.access(os.path.join(root, "opt", "remote-gpu", "bin", "remote-gpud"), os.X_OK))

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_valid(self):
        prefix = os.path.join(self.folder, "prefix")
        install(prefix)
        for name in ("remote-gpud.service", "remote-gpud.socket"):
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
                                     os.path.join(prefix, "lib", "systemd", "system", name)], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
            self.assertEqual((result.returncode, [line for line in result.stdout.splitlines() if "remote-gpud" in line]),
                             (0, []), result.stdout)

    def test_all_of_it_can_be_removed(self):
        prefix = os.path.join(self.folder, "prefix")
        manifest = install(prefix)
        self.assertEqual(files_below(prefix), set(manifest))
        self.assertTrue({os.path.join(prefix, name) for name in (
            "bin/remote-gpu", "bin/remote-gpud", "lib/remote-gpu/libcuda.so.1", "share/man/man8/remote-gpud.8",
            "share/bash-completion/completions/remote-gpu")} <= set(manifest))


if __name__ == "__main__":
    unittest.main(verbosity=2)
