/* trace_file.c - reads a trace's file, as a whole (trace.h). What cannot be read is a sentence for the user. */
#include "client/predict/trace.h"

#include "common/base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT (4ull << 30)

enum rg_status rg_trace_read(const char *path, struct rg_trace *trace, char *why, size_t why_size)
{
    *trace = (struct rg_trace){0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return RG_FAILED(RG_ERR_INVALID, why, why_size, "it cannot be read: %s", strerror(errno));
    RG_CLEANUP_FREE unsigned char *data = NULL;
    size_t size = 0, capacity = 0;
    enum rg_status status = RG_OK;
    for (;;) {
        if (size == capacity) {
            capacity = capacity ? capacity * 2 : 1u << 20;
            unsigned char *grown = capacity <= FILE_LIMIT ? realloc(data, capacity) : NULL;
            if (!grown) {
                status = RG_FAILED(RG_ERR_INVALID, why, why_size, "it is too large");
                break;
            }
            data = grown;
        }
        const size_t n = fread(data + size, 1, capacity - size, file);
        size += n;
        if (n == 0)
            break;
    }
    if (status == RG_OK && ferror(file))
        status = RG_FAILED(RG_ERR_INVALID, why, why_size, "it cannot be read: %s", strerror(errno));
    fclose(file);
    return status == RG_OK ? rg_trace_parse(data, size, trace, why, why_size) : status;
}
