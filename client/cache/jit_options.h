/* jit_options.h - the options of loading and linking device code, and the logs that come of it. Any thread. */
#ifndef RG_CLIENT_CACHE_JIT_OPTIONS_H
#define RG_CLIENT_CACHE_JIT_OPTIONS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

struct rg_reader;

#define RG_JIT_OPTIONS 64 /* of one call, at most */

/**
 * The JIT options of a call, taken apart: numbers to send, and buffers that the worker's logs are copied to.
 */
struct rg_jit {
    unsigned count;
    CUjit_option options[RG_JIT_OPTIONS];
    unsigned long long values[RG_JIT_OPTIONS];
    char *info, *error; /* the application's buffers */
    size_t info_size, error_size;
    void **info_size_out, **error_size_out; /* where the driver writes how much there was */
    void **wall_time;                       /* where it writes how long it took */
    uint64_t began;
};

/** CUDA_ERROR_NOT_SUPPORTED for options whose values are pointers that only make sense on this side. */
CUresult rg_jit_read(struct rg_jit *jit, unsigned count, const CUjit_option *options, void *const *values);
/** Copies the logs of the worker's answer into the application's buffers. */
void rg_jit_answer(struct rg_jit *jit, struct rg_reader *reply);
/** The same of an error that was found here; "": of nothing to tell. */
void rg_jit_fail(struct rg_jit *jit, const char *text);
/** The call ends: notes how long it took, as the program waited. */
void rg_jit_done(const struct rg_jit *jit);

#endif
