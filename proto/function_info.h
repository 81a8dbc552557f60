/* function_info.h - what the client keeps of a function or kernel: the answer of the operations that find one. */
#ifndef RG_PROTO_FUNCTION_INFO_H
#define RG_PROTO_FUNCTION_INFO_H

#include <assert.h>
#include <stdint.h>

#define RG_FUNCTION_ATTRIBUTES 16 /* CUfunction_attribute 0 … 15 */

/*
 * In `known`: the driver has not loaded the function yet, and will when it is first launched, which may take long. It is so
 * only when it is said: what is kept of a function says nothing of it.
 */
#define RG_FUNCTION_UNLOADED (1u << 31)

/**
 * Followed by n_params struct rg_param_info. An attribute the driver does not know has its bit in `known` clear; so have all of a
 * function that is not loaded while its context may be at work, as the driver may have to wait for that to tell them.
 */
struct rg_function_info {
    uint32_t n_params;
    uint32_t known;
    int32_t attributes[RG_FUNCTION_ATTRIBUTES];
};
static_assert(sizeof(struct rg_function_info) == 72, "wire layout");

struct rg_param_info {
    uint32_t offset;
    uint32_t size;
};
static_assert(sizeof(struct rg_param_info) == 8, "wire layout");

#endif
