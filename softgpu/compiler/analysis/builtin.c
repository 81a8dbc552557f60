/*
 * builtin.c - functions that programs call without defining them: those that the runtime provides under their
 * CUDA names, and those of the CUDA device runtime library that the engine serves.
 */
#include "softgpu/compiler/analysis/analysis.h"

#include <string.h>

enum sg_device_call sg_device_call_find(const struct sg_ptx_function *function)
{
    static const struct {
        const char *name;
        uint32_t n_params;
    } calls[] = {
#define CALL(name, n_params) {#name, n_params},
        SG_DEVICE_CALLS(CALL)
#undef CALL
    };
    static const char nvcc[] = "__cudaCDP2", plain[] = "cuda", per_thread[] = "_ptsz";
    const char *name = function->name;
    if (function->n_returns != 1)
        return SG_CALL_COUNT;
    if (strncmp(name, nvcc, sizeof(nvcc) - 1) == 0)
        name += sizeof(nvcc) - 1;
    else if (!function->defined && strncmp(name, plain, sizeof(plain) - 1) == 0)
        name += sizeof(plain) - 1;
    else
        return SG_CALL_COUNT;
    for (uint32_t i = 0; i < SG_CALL_COUNT; i++) {
        size_t length = strlen(calls[i].name);
        if (function->n_params == calls[i].n_params && strncmp(name, calls[i].name, length) == 0 &&
            (name[length] == '\0' || strcmp(name + length, per_thread) == 0))
            return (enum sg_device_call)i;
    }
    return SG_CALL_COUNT;
}

enum sg_builtin sg_builtin_find(const struct sg_ptx_function *function)
{
    static const struct {
        const char *name;
        enum sg_builtin builtin;
        uint32_t n_params, n_returns;
    } builtins[] = {
        {"vprintf", SG_BUILTIN_VPRINTF, 2, 1},
        {"__assertfail", SG_BUILTIN_ASSERTFAIL, 5, 0},
        {"malloc", SG_BUILTIN_MALLOC, 1, 1},
        {"free", SG_BUILTIN_FREE, 1, 0},
        {"cudaGraphSetConditional", SG_BUILTIN_SET_CONDITIONAL, 2, 0},
    };
    if (sg_device_call_find(function) != SG_CALL_COUNT)
        return SG_BUILTIN_DEVICE_CALL;
    if (function->defined)
        return SG_BUILTIN_NONE;
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++)
        if (strcmp(function->name, builtins[i].name) == 0 && function->n_params == builtins[i].n_params &&
            function->n_returns <= builtins[i].n_returns) /* Taichi declares vprintf without a result */
            return builtins[i].builtin;
    return SG_BUILTIN_NONE;
}
