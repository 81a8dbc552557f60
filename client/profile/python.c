/* python.c - see python.h. */
#include "client/profile/python.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *(*this_thread_state)(void);
static void (*dump_traceback)(int fd, void *thread_state);

void rg_profile_python_start(void)
{
    void *state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    void *dump = dlsym(RTLD_DEFAULT, "_Py_DumpTraceback");
    if (!state || !dump)
        return;
    memcpy(&this_thread_state, &state, sizeof state);
    memcpy(&dump_traceback, &dump, sizeof dump);
}

bool rg_profile_python_stack(char *text, size_t size)
{
    void *state = dump_traceback ? this_thread_state() : NULL;
    if (!state)
        return false;
    int fd = memfd_create("remote-gpu-profile", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    dump_traceback(fd, state);
    ssize_t length = pread(fd, text, size - 1, 0);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    char *first = strchr(text, '\n'); /* "Stack (most recent call first):" */
    if (!first)
        return false;
    memmove(text, first + 1, strlen(first + 1) + 1);
    char *last = strrchr(text, '\n'); /* what does not fit ends with a whole line */
    if (last)
        *last = 0;
    return *text != 0;
}
