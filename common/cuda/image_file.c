/* image_file.c - see image_file.h. */
#include "common/cuda/image_file.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/cuda/image.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

CUresult rg_cuda_image_read_file(const char *path, void **out, size_t *size)
{
    struct stat status;
    RG_CLEANUP_FD int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe is not waited for */
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return CUDA_ERROR_FILE_NOT_FOUND;
    if (status.st_size == 0 || (uint64_t)status.st_size > RG_IMAGE_MAX)
        return CUDA_ERROR_INVALID_IMAGE;
    const size_t length = (size_t)status.st_size;
    RG_CLEANUP_FREE char *data = malloc(length + 1);
    if (!data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!rg_file_read(fd, data, length))
        return CUDA_ERROR_INVALID_IMAGE;
    data[length] = '\0';
    if (rg_cuda_image_leads_outside(data, length)) /* loading calls take no size, and go by what is in it */
        return CUDA_ERROR_INVALID_IMAGE;
    *out = RG_TAKE_PTR(data);
    *size = length;
    return CUDA_SUCCESS;
}
