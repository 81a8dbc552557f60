/* folder.h - a folder of the fuzzer's own, in memory where the machine has such a file system; gone when it ends. */
#ifndef RG_TESTS_FUZZ_FOLDER_H
#define RG_TESTS_FUZZ_FOLDER_H

#include "tests/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_folder[128];

static inline void fuzz_folder_remove(void)
{
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", fuzz_folder);
    if (system(command) != 0)
        fprintf(stderr, "%s stays\n", fuzz_folder);
}

static inline void fuzz_folder_make(void)
{
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/remote-gpu-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(fuzz_folder) && atexit(fuzz_folder_remove) == 0);
}

/* Writes a file below it, for its owner alone. */
static inline void fuzz_folder_write(const char *name, const void *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
}

#endif
