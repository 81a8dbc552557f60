#!/usr/bin/env python3
"""Imports the CUDA driver API from a toolkit's headers into proto/api/symbols.txt.

Run by hand when the project moves to a newer toolkit; its output is committed, so a build needs only the types of
cuda.h. For each function that the toolkit's stub of libcuda exports it records

  * the exported symbol and its prototype (from the preprocessed headers),
  * the name and the CUDA version under which cuGetProcAddress hands it out (from the versioned typedefs of
    cudaTypedefs.h: PFN_<name>_v<version>), and the default stream it assumes (legacy, or per-thread).

usage: proto/import_api.py [CUDA_ROOT]      (default /usr/local/cuda)
"""
import os
import re
import subprocess
import sys
import tempfile

HEADERS = ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"]
TYPEDEFS = ["cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h",
            "cudaProfilerTypedefs.h"]
# What the graphics headers would need of other projects; the interop calls themselves are refused.
FOREIGN = {
    "GL/gl.h": "typedef unsigned int GLenum; typedef unsigned int GLuint;",
    "EGL/egl.h": "typedef int EGLint;",
    "EGL/eglext.h": "typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;",
    "vdpau/vdpau.h": "typedef unsigned VdpDevice; typedef unsigned VdpVideoSurface; typedef unsigned "
                     "VdpOutputSurface; typedef int VdpStatus; typedef unsigned VdpFuncId; "
                     "typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void **);",
}


def preprocess(root, names):
    with tempfile.TemporaryDirectory() as folder:
        for path, text in FOREIGN.items():
            os.makedirs(os.path.join(folder, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(folder, path), "w") as out:
                out.write("#pragma once\n" + text + "\n")
        source = "".join(f"#include <{name}>\n" for name in names)
        command = ["gcc", "-E", "-P", "-xc", f"-I{folder}", f"-I{root}/include", "-D__CUDA_API_VERSION_INTERNAL", "-"]
        return subprocess.run(command, input=source, text=True, check=True, stdout=subprocess.PIPE).stdout


def squeeze(text):
    return re.sub(r"\s+", " ", text).strip()


def prototypes(text):
    """symbol -> (return type, parameters) of every cu* function declared in preprocessed text."""
    found = {}
    for result, name, parameters in re.findall(r"\b(CUresult|void|int)\s+(cu[A-Z]\w*)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*;",
                                               re.sub(r"__attribute__\s*\(\(.*?\)\)", "", text, flags=re.S)):
        found[name] = (result, squeeze(parameters))
    return found


def look_ups(text):
    """[(name, version, suffix, parameters)] from the versioned function-pointer typedefs."""
    return [(name, int(version), suffix or "", squeeze(parameters)) for name, version, suffix, parameters in
            re.findall(r"typedef\s+\w+\s*\(\s*\*\s*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\s*\)\s*\((.*?)\)\s*;", text, flags=re.S)]


def split_symbol(symbol):
    """cuMemAlloc_v2 -> ('cuMemAlloc', 2, ''); cuMemcpy_ptds -> ('cuMemcpy', 1, '_ptds')."""
    match = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?", symbol)
    return match[1], int(match[2] or 1), match[3] or ""


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda"
    here = os.path.dirname(os.path.abspath(__file__))
    declared = prototypes(preprocess(root, HEADERS))
    stub = subprocess.run(["nm", "-D", "--defined-only", f"{root}/lib64/stubs/libcuda.so"], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    exported = sorted(line.split()[-1] for line in stub.splitlines() if line.split()[-1].startswith("cu"))
    missing = [symbol for symbol in exported if symbol not in declared]
    if missing:
        sys.exit("exported but not declared in the headers: " + " ".join(missing))

    # The i-th version of a name is the i-th exported symbol of that name.
    versions = {}
    for name, version, suffix, _ in look_ups(preprocess(root, TYPEDEFS)):
        versions.setdefault((name, suffix), set()).add(version)
    symbols = {}
    for symbol in exported:
        name, generation, suffix = split_symbol(symbol)
        symbols.setdefault((name, suffix), []).append((generation, symbol))
    since, doubts = {}, []
    for key, list_of in symbols.items():
        list_of.sort()
        known = sorted(versions.get(key, ()))
        if len(known) != len(list_of):
            doubts.append((key, known, [symbol for _, symbol in list_of]))
        for (_, symbol), version in zip(list_of, known):
            since[symbol] = version
    for key, known, names in doubts:
        print(f"look at {key[0]}{key[1]}: versions {known}, symbols {names}", file=sys.stderr)

    with open(os.path.join(here, "api", "symbols.txt"), "w") as out:
        version = re.search(r"#define CUDA_VERSION (\d+)", open(f"{root}/include/cuda.h").read())[1]
        out.write(f"# Functions that libcuda of CUDA {version} exports; made by proto/import_api.py, not edited by hand.\n"
                  "# symbol | name, version, stream for cuGetProcAddress ('-': not handed out) | return type (parameters)\n")
        out.write(f"version {version}\n")
        for symbol in exported:
            name, _, suffix = split_symbol(symbol)
            result, parameters = declared[symbol]
            look_up = f"{name} {since[symbol]} {suffix[1:] or 'legacy'}" if symbol in since else "-"
            out.write(f"{symbol} | {look_up} | {result} ({parameters})\n")
    print(f"{len(exported)} functions, {len(since)} of them with a version")


if __name__ == "__main__":
    main()
