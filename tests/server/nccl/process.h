/*
 * process.h - what processes with ranks of one communicator, as a launcher starts them, have in common: files by which they find each
 * other. Of one source file a program.
 */
#ifndef TESTS_SERVER_NCCL_PROCESS_H
#define TESTS_SERVER_NCCL_PROCESS_H

#include "tests/fidelity/must.h"
#include "tests/fidelity/nccl/nccl.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int ranks, first;    /* of the communicator; of this process */
static const char *id_file; /* what other files are named after, too */

static inline void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Makes an id in the process with rank 0, and gives it to the others by a file: within so many naps; false: it did not come. */
static inline bool share_id_in_time(ncclUniqueId *id, const char *name, int naps)
{
    char path[512], temporary[600];
    snprintf(path, sizeof path, "%s%s", id_file, name);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    if (first == 0) {
        if (nccl.ncclGetUniqueId(id) != ncclSuccess)
            return false;
        FILE *file = fopen(temporary, "wb");
        if (!file || fwrite(id, sizeof *id, 1, file) != 1 || fclose(file) != 0 ||
            rename(temporary, path) != 0)
            exit(1);
        return true;
    }
    for (; naps; naps--, nap()) {
        FILE *file = fopen(path, "rb");
        if (!file)
            continue;
        if (fread(id, sizeof *id, 1, file) != 1)
            exit(1);
        fclose(file);
        return true;
    }
    return false;
}

static inline void touch(const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s", id_file, name);
    FILE *file = fopen(path, "wb");
    if (file)
        fclose(file);
}

#endif
