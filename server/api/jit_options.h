/* jit_options.h - the options of a load or of a linker, and its logs. Any thread that executes a record. */
#ifndef RG_SERVER_API_JIT_OPTIONS_H
#define RG_SERVER_API_JIT_OPTIONS_H

#include "common/base/limits.h"
#include "server/core/worker.h"

/** What a driver is given; it writes to the values. */
struct rg_jit_options {
    unsigned count;
    CUjit_option options[RG_JIT_OPTIONS_MAX];
    void *values[RG_JIT_OPTIONS_MAX];
};

/** Takes a client's options; an error if there are too many, or one cannot be passed on. */
CUresult rg_jit_options_read(struct rg_request *request, struct rg_jit_options *out, unsigned count,
                             const CUjit_option *options, const unsigned long long *values);
/** A log's size as it is granted: its text travels in the answer. */
size_t rg_jit_log_size(size_t size);
/** Has the driver write its logs to two buffers; none where a size is 0. */
void rg_jit_options_add_logs(struct rg_jit_options *to, char *info, size_t info_size, char *error,
                             size_t error_size);
/** Outputs a log, as far as it is written; NULL: an empty one. */
void rg_jit_output_log(struct rg_request *request, const char *log, size_t size);

#endif
