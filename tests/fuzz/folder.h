/* folder.h - a folder of the fuzzer's own, in memory where the machine has such a file system; gone when it ends. */
#ifndef RG_TESTS_FUZZ_FOLDER_H
#define RG_TESTS_FUZZ_FOLDER_H

#include "tests/temporary.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *fuzz_folder;

static inline void fuzz_folder_make(void)
{
    fuzz_folder = temporary_folder_in(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
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
