/* shared_memory.c - see shared_memory.h. */
#include "server/shares/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void *rg_shared_memory_create(const char *name, size_t size, int *fd)
{
    const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *memory = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)size) == 0 &&
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        const int error = errno;
        if (file >= 0)
            close(file);
        errno = error;
        return NULL;
    }
    *fd = file;
    return memory;
}

void *rg_shared_memory_open(int fd, size_t least, size_t *size)
{
    struct stat state;
    if (fstat(fd, &state) != 0 || state.st_size < 0 || (size_t)state.st_size < least)
        return NULL;
    *size = (size_t)state.st_size;
    void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}
