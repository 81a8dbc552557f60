#!/usr/bin/env python3
"""usage: images.py FATBINARY LIBRARY.ptx COUNT FOLDER

Makes COUNT fat binaries of one library's PTX, each with names of its own (lib00_…, lib01_…), and FOLDER/images.S, which
puts them into a program as nvcc does: containers in .nv_fatbin, a wrapper for each in .nvFatBinSegment. The symbol
startup_wrappers is the first wrapper.
"""

import os
import subprocess
import sys


def main():
    fatbinary, source, count, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    with open(source, encoding="ascii") as file:
        text = file.read()
    os.makedirs(folder, exist_ok=True)
    containers, wrappers = [], []
    for number in range(count):
        stem = os.path.join(folder, "lib%02d" % number)
        with open(stem + ".ptx", "w", encoding="ascii") as file:
            file.write(text.replace("libXX", "lib%02d" % number))
        subprocess.run([fatbinary, "--64", "--create=%s.fatbin" % stem,
                        "--image3=kind=ptx,sm=75,file=%s.ptx" % stem], check=True)
        containers += [".balign 8", "container_%02d:" % number, '.incbin "%s.fatbin"' % stem]
        wrappers += [".long 0x466243b1, 1", ".quad container_%02d, 0" % number]
    with open(os.path.join(folder, "images.S"), "w", encoding="ascii") as file:
        file.write("\n".join(['.section .nv_fatbin, "a"'] + containers + ['.section .nvFatBinSegment, "aw"', ".balign 8",
                             ".globl startup_wrappers", "startup_wrappers:"] + wrappers +
                             ['.section .note.GNU-stack, "", @progbits']) + "\n")


if __name__ == "__main__":
    main()
