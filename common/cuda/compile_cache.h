/*
 * compile_cache.h - the driver's cache of compiled code, by which NVRTC and nvJitLink find what they need not compile
 * (export table da9151d3).
 *
 * It keeps nothing for devices that run machine code: the compilers then compile. Where a device runs PTX alone,
 * the cache answers a question for machine code with a carrier (ptx_carrier.h) of the PTX: for nvJitLink, whose input is
 * that PTX; for NVRTC, which asks with its intermediate code, of the PTX that the same thread made of it a
 * moment before and gave to the cache. So programs that compile for the device which they find get what it runs.
 *
 * The protocol is known from watching NVRTC and nvJitLink of 12.9, 13.0 and 13.5, and nvJitLink of 12.1 to 12.8;
 * NVRTC of 12.4 and nvJitLink of 12.0 do not ask.
 */
#ifndef RG_COMMON_CUDA_COMPILE_CACHE_H
#define RG_COMMON_CUDA_COMPILE_CACHE_H

#include "common/cuda/api.h"

#include <stddef.h>
#include <stdint.h>

enum rg_compile_kind {
    RG_COMPILE_BINARY = 1,    /* machine code; of NVRTC's intermediate code, or of PTX */
    RG_COMPILE_PTX = 2,       /* of NVRTC's intermediate code */
    RG_COMPILE_FINALISED = 3, /* machine code for exactly one device, of more general one */
};

/** A question, from begin to end. */
struct rg_compile;

/**
 * Starts a question. `newest` is the newest architecture, like 130, for which PTX stands in for machine code; 0: there
 * are devices of machine code, and nothing is kept. `architecture` is the one compiled for.
 */
CUresult rg_compile_begin(struct rg_compile **out, unsigned newest, unsigned kind, const void *input,
                          size_t size, const char *options, unsigned architecture);
/** Ends it. */
CUresult rg_compile_end(struct rg_compile *compile);
/** Looks for the result; CUDA_ERROR_NOT_FOUND: it is to be compiled. *data is to be freed with free(). */
CUresult rg_compile_find(const struct rg_compile *compile, void **data, uint32_t *size);
/** Gives a result that was compiled. */
CUresult rg_compile_store(const struct rg_compile *compile, const void *data, uint32_t size);

#endif
