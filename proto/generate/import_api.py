#!/usr/bin/env python3
"""Imports the CUDA driver API from a toolkit's headers into proto/api/symbols.txt.

Run by hand when the project moves to a newer toolkit; its output is committed, so a build needs only the types of
cuda.h. For each function that the toolkit's stub of libcuda exports, and each that its graphics headers declare (the
driver exports those too), it records

  * the exported symbol and its prototype (from the preprocessed headers),
  * the name and the CUDA version under which cuGetProcAddress hands it out (from the versioned typedefs of
    cudaTypedefs.h: PFN_<name>_v<version>), and the default stream it assumes (legacy, or per-thread).

usage: proto/generate/import_api.py [--check] [CUDA_ROOT]      (default /usr/local/cuda)
  --check  writes nothing: compares symbols.txt with the toolkit. With the toolkit that it was made from nothing may
           differ; of another one, each function that both know must be the same one of the same version.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile

HEADERS = ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"]
TYPEDEFS = ["cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h",
            "cudaProfilerTypedefs.h"]
# Exported by the driver, not by the stub.
GRAPHICS = re.compile(r"cuGL|cuGraphics(GL|EGL|VDPAU)|cuEGL|cuVDPAU|cuEventCreateFromEGLSync|cuGraphicsResourceGetMappedEglFrame")
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


def collect(root, known=None):
    """(CUDA version, {symbol: (look-up or '-', return type, parameters)}) of a toolkit. One without the stub of libcuda, as
    the wheels of headers are, is asked for the `known` symbols alone."""
    declared = prototypes(preprocess(root, HEADERS))
    stub = f"{root}/lib64/stubs/libcuda.so"
    if known is not None and not os.path.exists(stub):
        exported = {symbol for symbol in known if symbol in declared}
    else:
        names = subprocess.run(["nm", "-D", "--defined-only", stub], text=True, check=True, stdout=subprocess.PIPE).stdout
        exported = {line.split()[-1] for line in names.splitlines() if line.split()[-1].startswith("cu")}
    exported = sorted(exported | {symbol for symbol in declared if GRAPHICS.match(symbol)})
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
    since = {}
    for key, list_of in symbols.items():
        list_of.sort()
        known = sorted(versions.get(key, ()))
        if len(known) != len(list_of):
            print(f"look at {key[0]}{key[1]}: versions {known}, symbols {[name for _, name in list_of]}", file=sys.stderr)
        for (_, symbol), version in zip(list_of, known):
            since[symbol] = version
    found = {}
    for symbol in exported:
        name, _, suffix = split_symbol(symbol)
        look_up = f"{name} {since[symbol]} {suffix[1:] or 'legacy'}" if symbol in since else "-"
        found[symbol] = (look_up, *declared[symbol])
    with open(f"{root}/include/cuda.h") as header:
        return int(re.search(r"#define CUDA_VERSION (\d+)", header.read())[1]), found


def text_of(version, symbols):
    lines = [f"# Functions that libcuda of CUDA {version} exports; made by proto/generate/import_api.py, not edited by hand.",
             "# symbol | name, version, stream for cuGetProcAddress ('-': not handed out) | return type (parameters)",
             f"version {version}"]
    lines += [f"{symbol} | {look_up} | {result} ({parameters})" for symbol, (look_up, result, parameters) in symbols.items()]
    return "\n".join(lines) + "\n"


def differences(known, version, symbols):
    """What is wrong with the text of symbols.txt, by a toolkit's headers."""
    if re.search(r"^version (\d+)", known, flags=re.M)[1] == str(version):
        ours, theirs = known.splitlines(), text_of(version, symbols).splitlines()
        return [line for line in difflib.unified_diff(ours, theirs, "symbols.txt", "the toolkit", lineterm="", n=0)]
    ours = {line.split()[0]: line.split("|")[1].strip() for line in known.splitlines() if line.startswith("cu")}
    return [f"{symbol}: '{ours[symbol]}' here, '{look_up}' by CUDA {version}'s headers"
            for symbol, (look_up, _, _) in symbols.items() if symbol in ours and ours[symbol] != look_up]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("root", nargs="?", default="/usr/local/cuda")
    arguments = parser.parse_args()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api", "symbols.txt")
    with open(path) as file:
        known = file.read()
    version, symbols = collect(arguments.root, re.findall(r"^cu\w+", known, flags=re.M) if arguments.check else None)
    if not arguments.check:
        with open(path, "w") as out:
            out.write(text_of(version, symbols))
        print(f"{len(symbols)} functions of CUDA {version}")
        return
    wrong = differences(known, version, symbols)
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"symbols.txt agrees with the headers of CUDA {version}")


if __name__ == "__main__":
    main()
