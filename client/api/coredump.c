/*
 * coredump.c - settings of GPU core dumps: the driver's that runs the kernels, so dumps would be files of the
 * server's. Whether and where it writes some is not for its clients to say; what they may set is sent.
 */
#include "common/cuda/coredump.h"
#include "client/core/call.h"
#include "common/base/status.h"
#include "generated/client/operations.h"

#include <string.h>

typedef CUresult ask_function(CUcoredumpSettings attrib, unsigned int query, size_t capacity, void *value,
                              size_t *size);
typedef CUresult tell_function(CUcoredumpSettings attrib, size_t size, const void *value);

static CUresult get(ask_function *ask, unsigned flags, CUcoredumpSettings attrib, void *value, size_t *size)
{
    unsigned char answer[RG_COREDUMP_NAME_MAX];
    RG_TRY(rg_call_allowed(flags));
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    const size_t room = *size < sizeof answer ? *size : sizeof answer;
    RG_TRY(ask(attrib, value == NULL, value ? room : 0, answer, &found));
    if (value)
        memcpy(value, answer, found < room ? found : room);
    *size = found;
    return CUDA_SUCCESS;
}

static CUresult set(tell_function *tell, unsigned flags, CUcoredumpSettings attrib, const void *value,
                    size_t *size)
{
    RG_TRY(rg_call_allowed(flags));
    const size_t room = rg_coredump_size(attrib);
    if (!size || !room)
        return CUDA_ERROR_INVALID_VALUE;
    if (!value) { /* asks for the size */
        *size = room;
        return CUDA_SUCCESS;
    }
    if (!rg_coredump_value_good(attrib, value, *size))
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_coredump_of_server(attrib, value))
        return CUDA_ERROR_NOT_PERMITTED;
    return tell(attrib, *size, value);
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(rg_op_rgCoredumpGet, RG_TRAIT_CONTEXT, attrib, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(rg_op_rgCoredumpGetGlobal, 0, attrib, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(rg_op_rgCoredumpSet, RG_TRAIT_CONTEXT, attrib, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(rg_op_rgCoredumpSetGlobal, 0, attrib, value, size);
}
