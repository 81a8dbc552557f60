/* temporary.h - a folder of a test's own, which goes when the process that made it ends. */
#ifndef TESTS_TEMPORARY_H
#define TESTS_TEMPORARY_H

#include "tests/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *temporary; /* NULL: it is not there yet */
static pid_t temporary_owner;

static inline void temporary_remove(void)
{
    char command[PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", temporary);
    if (getpid() == temporary_owner && system(command) != 0)
        fprintf(stderr, "%s stays\n", temporary);
}

/** Its path, below `parent`; one for each source file, made by the first call there. */
static inline const char *temporary_folder_in(const char *parent)
{
    if (!temporary) {
        CHECK(asprintf(&temporary, "%s/remote-gpu-test-XXXXXX", parent) > 0);
        CHECK(mkdtemp(temporary) && atexit(temporary_remove) == 0);
        temporary_owner = getpid();
    }
    return temporary;
}

/** The same where TMPDIR says. */
static inline const char *temporary_folder(void)
{
    const char *parent = getenv("TMPDIR");
    return temporary_folder_in(parent && *parent ? parent : "/tmp");
}

/** A path in it, to be freed, or kept until the process ends. */
static inline char *temporary_path(const char *name)
{
    char *path = NULL;
    CHECK(asprintf(&path, "%s/%s", temporary_folder(), name) > 0);
    return path;
}

#endif
