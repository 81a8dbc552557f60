/*
 * device_copy.c - copies and fills that kernels ask for: what they name is memory that kernels can reach, or the call is refused; the work
 * itself is the grid's children's (children.h). The kernel's own thread.
 */
#include "softgpu/exec/device_runtime/call.h"

static bool reachable(const struct sg_runtime_call *call, const void *address, uint64_t pitch, uint64_t width,
                      uint64_t height, bool write)
{
    uint64_t at = (uintptr_t)address, size;
    if (__builtin_mul_overflow(height - 1, pitch, &size) || __builtin_add_overflow(size, width, &size))
        return false;
    return sg_heap_holds(at, size) || call->services->reachable(at, size, write);
}

static int transfer(const struct sg_runtime_call *call, const struct sg_child_copy *t, uint64_t stream)
{
    if (!t->width || !t->height)
        return SG_CUDA_SUCCESS;
    if (t->height > 1 && (t->to_pitch < t->width || (t->from && t->from_pitch < t->width)))
        return SG_CUDA_INVALID_PITCH;
    if (!reachable(call, t->to, t->to_pitch, t->width, t->height, true) ||
        (t->from && !reachable(call, t->from, t->from_pitch, t->width, t->height, false)))
        return SG_CUDA_INVALID_VALUE;
    return sg_child_transfer(call->parent, t, call->block, stream);
}

static int copy(const struct sg_runtime_call *call, const struct sg_child_copy *t, unsigned kind,
                unsigned stream)
{
    enum { DEVICE_TO_DEVICE = 3, DEFAULT = 4 };
    if (sg_runtime_word(call, kind) != DEVICE_TO_DEVICE && sg_runtime_word(call, kind) != DEFAULT)
        return SG_CUDA_INVALID_VALUE;
    if (!t->from)
        return SG_CUDA_INVALID_VALUE;
    return transfer(call, t, sg_runtime_number(call, stream));
}

int sg_runtime_copy_1d(const struct sg_runtime_call *call)
{
    const struct sg_child_copy t = {.to = sg_runtime_pointer(call, 0),
                                    .from = sg_runtime_pointer(call, 1),
                                    .width = sg_runtime_number(call, 2),
                                    .height = 1};
    return copy(call, &t, 3, 4);
}

int sg_runtime_copy_2d(const struct sg_runtime_call *call)
{
    const struct sg_child_copy t = {.to = sg_runtime_pointer(call, 0),
                                    .to_pitch = sg_runtime_number(call, 1),
                                    .from = sg_runtime_pointer(call, 2),
                                    .from_pitch = sg_runtime_number(call, 3),
                                    .width = sg_runtime_number(call, 4),
                                    .height = sg_runtime_number(call, 5)};
    return copy(call, &t, 6, 7);
}

int sg_runtime_set_1d(const struct sg_runtime_call *call)
{
    const struct sg_child_copy t = {.to = sg_runtime_pointer(call, 0),
                                    .value = (unsigned char)sg_runtime_word(call, 1),
                                    .width = sg_runtime_number(call, 2),
                                    .height = 1};
    return transfer(call, &t, sg_runtime_number(call, 3));
}

int sg_runtime_set_2d(const struct sg_runtime_call *call)
{
    const struct sg_child_copy t = {.to = sg_runtime_pointer(call, 0),
                                    .to_pitch = sg_runtime_number(call, 1),
                                    .value = (unsigned char)sg_runtime_word(call, 2),
                                    .width = sg_runtime_number(call, 3),
                                    .height = sg_runtime_number(call, 4)};
    return transfer(call, &t, sg_runtime_number(call, 5));
}
