#!/usr/bin/env python3
"""Writes files as C: embed.py OUT 'PATH|TYPE|FILE'..., the table that page.h declares."""

import sys


def main():
    out, parts = sys.argv[1], [word.split("|") for word in sys.argv[2:]]
    lines = ['#include "server/http/page.h"', ""]
    for number, (_, _, name) in enumerate(parts):
        with open(name, "rb") as file:
            data = file.read()
        lines.append("static const unsigned char part_%d[] = {" % number)
        lines += [",".join(map(str, data[at:at + 64])) + "," for at in range(0, len(data), 64)]
        lines += ["};", ""]
    lines.append("const struct rg_page_part rg_page_parts[] = {")
    lines += ['    {"%s", "%s", part_%d, sizeof part_%d},' % (path, kind, number, number)
              for number, (path, kind, _) in enumerate(parts)]
    lines += ["};", "const size_t rg_page_n_parts = sizeof rg_page_parts / sizeof rg_page_parts[0];", ""]
    with open(out, "w") as file:
        file.write("\n".join(lines))


if __name__ == "__main__":
    main()
