"""Generates code and documentation from the API specification.

usage: python3 proto/generate --spec proto/api --out BUILD/generated [--coverage FILE] [--drivers FILE]
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from generate import client, coverage, drivers, model, reader, server, tables  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--spec", required=True, help="folder of symbols.txt and *.api")
    parser.add_argument("--out", help="folder for generated code")
    parser.add_argument("--coverage", help="file for the coverage page")
    parser.add_argument("--drivers", help="file for the page about drivers' versions")
    arguments = parser.parse_args()
    try:
        specification = reader.read(arguments.spec)
    except model.SpecError as error:
        sys.exit(str(error))
    unaccounted = specification.unaccounted()
    if unaccounted:
        sys.exit(f"{arguments.spec}: no .api file says how these are served: {', '.join(unaccounted)}")
    versions = drivers.read(arguments.spec)
    if arguments.out:
        drivers.table(versions, arguments.out)
        for emitter in (tables, client, server):
            emitter.emit(specification, arguments.out)
    if arguments.coverage:
        coverage.emit(specification, arguments.coverage)
    if arguments.drivers:
        drivers.page(specification, versions, arguments.drivers)


if __name__ == "__main__":
    main()
