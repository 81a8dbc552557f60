/* runtime_calls.c - see runtime_calls.h. */
#include "common/cuda/runtime_calls.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INVALID_CONFIGURATION ((CUresult)9) /* cudaErrorInvalidConfiguration; cuda.h has no such result */

typedef CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           CUstream, void **, void **);
typedef CUresult (*launch_together)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    unsigned, CUstream, void **);
typedef CUresult (*launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **);

/* What was found, by whether it is the form for per-thread default streams. All runtimes of a process find the same. */
static struct {
    launch launch;
    launch_together together;
    launch_ex ex;
} found[2];

static __thread bool looks_up;

/* Whether no device takes such a grid of such blocks: the limits are those of all compute capabilities since 3.0. */
static bool impossible(unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned x, unsigned y, unsigned z)
{
    return !grid_x || !grid_y || !grid_z || grid_x > INT32_MAX || grid_y > 65535 || grid_z > 65535 || !x ||
           !y || !z || x > 1024 || y > 1024 || z > 64 || x * y * z > 1024;
}

static CUresult call(unsigned form, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                     unsigned x, unsigned y, unsigned z, unsigned shared, CUstream stream, void **parameters,
                     void **extra)
{
    CUresult result =
        found[form].launch(f, grid_x, grid_y, grid_z, x, y, z, shared, stream, parameters, extra);
    return result == CUDA_ERROR_INVALID_VALUE && impossible(grid_x, grid_y, grid_z, x, y, z)
               ? INVALID_CONFIGURATION
               : result;
}

static CUresult call_together(unsigned form, CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned x, unsigned y, unsigned z, unsigned shared, CUstream stream,
                              void **parameters)
{
    CUresult result = found[form].together(f, grid_x, grid_y, grid_z, x, y, z, shared, stream, parameters);
    return result == CUDA_ERROR_INVALID_VALUE && impossible(grid_x, grid_y, grid_z, x, y, z)
               ? INVALID_CONFIGURATION
               : result;
}

static CUresult call_ex(unsigned form, const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra)
{
    CUresult result = found[form].ex(c, f, parameters, extra);
    return result == CUDA_ERROR_INVALID_VALUE && c &&
                   impossible(c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ)
               ? INVALID_CONFIGURATION
               : result;
}

/* A form of each for each of the two default streams. */
#define FORM(name, form)                                                                                     \
    static CUresult launch_##name(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned x, unsigned y,  \
                                  unsigned z, unsigned shared, CUstream stream, void **parameters,           \
                                  void **extra)                                                              \
    {                                                                                                        \
        return call(form, f, a, b, c, x, y, z, shared, stream, parameters, extra);                           \
    }                                                                                                        \
    static CUresult together_##name(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned x,            \
                                    unsigned y, unsigned z, unsigned shared, CUstream stream,                \
                                    void **parameters)                                                       \
    {                                                                                                        \
        return call_together(form, f, a, b, c, x, y, z, shared, stream, parameters);                         \
    }                                                                                                        \
    static CUresult ex_##name(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)   \
    {                                                                                                        \
        return call_ex(form, config, f, parameters, extra);                                                  \
    }
FORM(legacy, 0)
FORM(per_thread, 1)

void *rg_runtime_call(const char *name, bool per_thread, void *function)
{
    if (!*name)
        looks_up = true;
    if (!looks_up || !function)
        return function;
    if (strcmp(name, "cuLaunchKernel") == 0) {
        found[per_thread].launch = (launch)function;
        return per_thread ? (void *)launch_per_thread : (void *)launch_legacy;
    }
    if (strcmp(name, "cuLaunchCooperativeKernel") == 0) {
        found[per_thread].together = (launch_together)function;
        return per_thread ? (void *)together_per_thread : (void *)together_legacy;
    }
    if (strcmp(name, "cuLaunchKernelEx") == 0) {
        found[per_thread].ex = (launch_ex)function;
        return per_thread ? (void *)ex_per_thread : (void *)ex_legacy;
    }
    return function;
}

void rg_runtime_has_looked_up(void)
{
    looks_up = false;
}
