/* file.c - see file.h. */
#include "common/base/file.h"

#include "common/base/quiet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Counts what a call moved. False: it failed, or moved nothing. */
static bool advance(size_t *done, ssize_t moved)
{
    if (moved < 0)
        return errno == EINTR;
    if (moved == 0)
        errno = EIO;
    *done += (size_t)moved;
    return moved > 0;
}

bool rg_file_read(int fd, void *data, size_t size)
{
    for (size_t done = 0; done < size;)
        if (!advance(&done, read(fd, (char *)data + done, size - done)))
            return false;
    return true;
}

bool rg_file_write(int fd, const void *data, size_t size)
{
    struct rg_quiet quiet;
    bool good = true;
    rg_quiet_begin(&quiet);
    for (size_t done = 0; good && done < size;)
        good = advance(&done, write(fd, (const char *)data + done, size - done));
    rg_quiet_end(&quiet, good ? 0 : errno);
    return good;
}

bool rg_file_write_at(int fd, off_t offset, const void *data, size_t size)
{
    struct rg_quiet quiet;
    bool good = true;
    rg_quiet_begin(&quiet);
    for (size_t done = 0; good && done < size;)
        good = advance(&done, pwrite(fd, (const char *)data + done, size - done, offset + (off_t)done));
    rg_quiet_end(&quiet, good ? 0 : errno);
    return good;
}

int rg_file_in_memory(const char *name, const void *data, size_t size)
{
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || (rg_file_write(fd, data, size) && lseek(fd, 0, SEEK_SET) == 0))
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int rg_file_temporary(const char *name, char *path, size_t size)
{
    const char *folder = secure_getenv("TMPDIR");
    const int length = snprintf(path, size, "%s/%s.XXXXXX", folder && *folder ? folder : "/tmp", name);
    if (length < 0 || (size_t)length >= size) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkostemp(path, O_CLOEXEC);
}
