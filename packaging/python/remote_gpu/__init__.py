"""Run CUDA programs on the GPUs of other machines.

From a shell: `remote-gpu run -- python train.py`, or the same as `python -m remote_gpu run -- …`.

In a notebook, where the program runs already: `remote_gpu.connect("gpu-machine")` before the first CUDA call.
"""

from remote_gpu._connect import Connection, Error, connect
from remote_gpu._version import __version__

__all__ = ["Connection", "Error", "connect", "__version__"]
