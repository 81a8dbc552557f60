"""The table that scripts/try-programs keeps in a document: rows of others, and what stands around it, stay as they are.

usage: programs_table.py SCRIPT
"""

import importlib.machinery
import importlib.util
import os
import sys
import tempfile

DOCUMENT = """# Programs

| program | version | directly | remotely | equal | what is missing |
|---|---|---|---|---|---|
| other | 1 | 1.0 s | 1.0 s | yes |  |
| one | 1 | 1.0 s | 1.0 s | yes |  |

## More

| collection | version |
|---|---|
| other | 2 |
"""


def main():
    loader = importlib.machinery.SourceFileLoader("try_programs", sys.argv[1])
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("try_programs", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(script)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.md")
        script.write_table(path, ["one", "two"], [["one", "1", "1.0 s", "1.0 s", "yes", ""]])
        assert open(path).read() == "".join(line + "\n" for line in DOCUMENT.splitlines()[2:4] + DOCUMENT.splitlines()[5:6])
        with open(path, "w") as out:
            out.write(DOCUMENT)
        rows = [["one", "1", "2.0 s", "3.0 s", "no", ""], ["two", "2", "4.0 s", "5.0 s", "yes", "much"]]
        for _ in range(2):  # the second time it is the same
            script.write_table(path, ["one", "two"], rows)
            expected = DOCUMENT.replace("| one | 1 | 1.0 s | 1.0 s | yes |  |\n",
                                        "| one | 1 | 2.0 s | 3.0 s | no |  |\n| two | 2 | 4.0 s | 5.0 s | yes | much |\n")
            found = open(path).read()
            assert found == expected, found


if __name__ == "__main__":
    main()
