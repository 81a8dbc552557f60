/* python.h - the Python frames of the calling thread, where the process is a Python that can tell them. */
#ifndef RG_CLIENT_PROFILE_PYTHON_H
#define RG_CLIENT_PROFILE_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

/** Looks for Python's functions in the process, once, before stacks are taken. Without them there are no lines. */
void rg_profile_python_start(void);
/**
 * Fills `text` with lines of `File "NAME", line N in FUNCTION`, innermost first; false: there are none, or
 * this Python does not export what that takes (_Py_DumpTraceback, which reads a thread's frames without the
 * interpreter's lock, as the traceback of a crash does). Costs system calls. On a thread that is inside of a
 * call of a Python program.
 */
bool rg_profile_python_stack(char *text, size_t size);

#endif
