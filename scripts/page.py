"""Commands of a page of the documentation, for tests that run them as they stand there.

A fenced block that begins with "```sh NAME" is for the test of that name; other blocks are not run.
"""

import re


def blocks(path, name):
    """The blocks of the page for the test `name`, in their order."""
    with open(path) as page:
        found = re.findall(r"^```sh %s\n(.*?)^```$" % re.escape(name), page.read(), re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError("%s has no block for %s" % (path, name))
    return found


def script(path, name):
    """All of them as one script of bash, which shows each command and ends at the first that fails."""
    return "set -euxo pipefail\n" + "\n".join(blocks(path, name))
