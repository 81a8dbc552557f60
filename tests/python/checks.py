"""The checks of a client, one after the other: each is a function that raises where something is wrong."""
import sys

CHECKS = []


def check(function):
    """Adds a function to those that are run."""
    CHECKS.append(function)
    return function


def run():
    """Runs all, or those that the command line names, and ends the program: 1 if any failed."""
    names = [word for word in sys.argv[1:] if not word.startswith("-")]
    failed = 0
    for function in CHECKS:
        if names and function.__name__ not in names:
            continue
        try:
            function()
            print(f"{function.__name__}: ok", flush=True)
        except Exception as error:  # the rest is to be tried as well
            failed += 1
            print(f"{function.__name__}: {type(error).__name__}: {str(error)[-900:]}", flush=True)
    sys.exit(1 if failed else 0)
