"""Management tools of others, where they are installed."""

import importlib.util
import shutil
import sys
import unittest

from nvml_harness import COMMAND, PRELOAD, Case, in_python, main, start


class Tools(Case):
    def under(self, *command):
        return start([COMMAND, "run", "-s", self.address, "--", *command], **PRELOAD)

    @unittest.skipUnless(shutil.which("nvidia-smi"), "nvidia-smi is not installed")
    def test_nvidia_smi(self):
        listed = self.under("nvidia-smi", "-L")
        self.assertEqual(listed.returncode, 0, listed.stdout + listed.stderr)
        self.assertRegex(listed.stdout, r"(?s)GPU 0: Fake GPU 0.*GPU 1: Fake GPU 1")
        asked = self.under("nvidia-smi", "--query-gpu=temperature.gpu,utilization.gpu,serial", "--format=csv,noheader")
        self.assertEqual(asked.stdout, "50, 10 %, SERIAL-1\n60, 20 %, SERIAL-2\n", asked.stderr)
        self.assertEqual(self.under("nvidia-smi").returncode, 0)

    @unittest.skipUnless(importlib.util.find_spec("pynvml"), "nvidia-ml-py is not installed")
    @in_python
    def test_pynvml(self):
        result = self.under(sys.executable, "-c", """
import pynvml as n
n.nvmlInit()
for i in range(n.nvmlDeviceGetCount()):
    d = n.nvmlDeviceGetHandleByIndex(i)
    print(n.nvmlDeviceGetSerial(d), n.nvmlDeviceGetTemperature(d, 0), n.nvmlDeviceGetUtilizationRates(d).gpu,
          n.nvmlDeviceGetSupportedGraphicsClocks(d, 100), [f.value.ullVal for f in n.nvmlDeviceGetFieldValues(d, [5])],
          n.nvmlDeviceGetSamples(d, 6, 40)[0], n.nvmlDeviceGetEccMode(d))
try:
    n.nvmlDeviceSetPersistenceMode(d, 1)
except n.NVMLError_NoPermission:
    print("refused")
""")
        self.assertEqual(result.stdout.count("SERIAL-"), 2, result.stderr)
        self.assertIn("SERIAL-2 60 20 [120, 121, 122] [5002]", result.stdout)
        self.assertRegex(result.stdout, "refused\n$")


if __name__ == "__main__":
    main()
