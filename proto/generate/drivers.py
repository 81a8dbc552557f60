"""Drivers of different ages: docs/drivers.md, and a table for the software device and `remote-gpu list`."""
import os

from .text import HEAD, write

FILE = "driver_versions.txt"


class Version:
    """A line of driver_versions.txt."""

    def __init__(self, line):
        number, self.branch, ptx, limits, self.news = (field.strip() for field in line.split("|"))
        self.number = int(number)
        self.ptx = int(ptx.replace(".", ""))
        self.limits = [int(limit) for limit in limits.split()]
        if len(self.limits) != 3:
            raise ValueError(line)

    @property
    def name(self):
        return f"{self.number // 1000}.{self.number % 1000 // 10}"


def read(folder):
    """The versions, the oldest first."""
    path = os.path.join(folder, FILE)
    with open(path, encoding="utf-8") as file:
        lines = [(number, line) for number, line in enumerate(file, 1) if line.strip() and not line.startswith("#")]
    versions = []
    for number, line in lines:
        try:
            version = Version(line)
        except ValueError:
            raise SystemExit(f"{path}:{number}: not VERSION | BRANCH | PTX | three numbers | text")
        if versions and version.number <= versions[-1].number:
            raise SystemExit(f"{path}:{number}: {version.name} does not come after {versions[-1].name}")
        versions.append(version)
    return versions


def table(versions, out):
    header = [HEAD, "#ifndef RG_GENERATED_PROTO_DRIVER_VERSIONS_H", "#define RG_GENERATED_PROTO_DRIVER_VERSIONS_H", "",
              f"#define RG_DRIVER_VERSIONS {len(versions)}", f"#define RG_DRIVER_VERSION_LEAST {versions[0].number} /* of those that are served */",
              "", "/** What drivers of a version know. */", "struct rg_driver_version {",
              "    int number;            /* as cuDriverGetVersion tells it: 12040 for 12.4 */",
              "    unsigned ptx;          /* the newest PTX that they take: 84 for 8.4 */",
              "    int device_attributes; /* they know those below */", "    int launch_attributes;", "    int jit_options;",
              "    const char *news;      /* what came with it, in words */", "};", "/** The oldest first. */",
              "extern const struct rg_driver_version rg_driver_versions[RG_DRIVER_VERSIONS];", "", "#endif", ""]
    write(f"{out}/proto/driver_versions.h", "\n".join(header))
    source = [HEAD, '#include "generated/proto/driver_versions.h"', "",
              "const struct rg_driver_version rg_driver_versions[RG_DRIVER_VERSIONS] = {"]
    source += [f'    {{{v.number}, {v.ptx}, {", ".join(map(str, v.limits))}, "{v.news}"}},' for v in versions]
    write(f"{out}/proto/driver_versions.c", "\n".join(source + ["};", ""]))


INTRODUCTION = """# Drivers of different ages

Generated from [proto/api](../proto/api/README.md). A server works with NVIDIA's drivers from {least} ({branch}) on, and refuses to start with older ones. `remote-gpu list`
says which one a server has, and what it lacks.

- **A program sees the server's driver.** `cuDriverGetVersion` is the server's, `cuGetProcAddress` finds what a driver of that
  version has (so do the CUDA runtime and all libraries, which look their functions up by it), attributes and errors are the
  driver's own. With several servers it is the oldest one's.
- **The same rules as on one machine.** A program of the CUDA 13 runtime needs 580 or later (`cudaErrorInsufficientDriver` with
  older ones); one of 12.x runs with every driver from 525 on, but its PTX has to be no newer than the driver's
  (`CUDA_ERROR_UNSUPPORTED_PTX_VERSION`, 222), or it needs machine code for the GPU. `nvcc` writes the newest PTX that it knows.
- **Parameters of kernels.** Drivers before 12.4 cannot tell the layout of a kernel's parameters, which a launch must know. With
  them the server reads it from the code itself: from machine code (cubins), PTX, and fat binaries of both, compressed or not. Code
  that has neither for the server's GPU, such as fat binaries of LTO intermediate code alone, cannot be launched there
  (`CUDA_ERROR_NOT_SUPPORTED`; the server's log says so).
- **The libraries' functions are all there.** `libcuda.so.1` of remote-gpu exports the functions of CUDA {newest} whatever the
  server has; one that is looked up by `dlsym`, or linked, and that the driver lacks returns `CUDA_ERROR_NOT_SUPPORTED`, or is made
  of others where that is possible. On a machine with that driver the program would not start.

To try an older driver without one: `SOFTGPU_DRIVER_VERSION` ([software-device.md](software-device.md)). The test
`fidelity.driver_versions` compares programs directly and remotely on 12.0, 12.2, 12.4, 12.8 and 13.0; none of NVIDIA's own has been
tried yet.

| CUDA | driver | PTX up to | functions | what came with it |
|---|---|---|---:|---|"""


def page(specification, versions, path):
    symbols = list(specification.symbols.values())
    lines = [INTRODUCTION.format(least=versions[0].name, branch=versions[0].branch, newest=versions[-1].name)]
    for version in versions:
        known = sum(symbol.since <= version.number for symbol in symbols)
        lines.append(f"| {version.name} | {version.branch} | {version.ptx // 10}.{version.ptx % 10} | {known} | {version.news} |")
    lines += ["", "## Functions that came later", "", "A driver lacks those of all later versions. Variants for the per-thread default "
              "stream came with the function.", ""]
    for before, version in zip(versions, versions[1:]):
        names = [symbol.name for symbol in specification.base_symbols() if before.number < symbol.since <= version.number]
        lines.append(f"- **{version.name}**: " + (", ".join(f"`{name}`" for name in names) if names else "none"))
    write(path, "\n".join(lines) + "\n")
