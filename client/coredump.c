/* coredump.c - settings of GPU core dumps: the driver's that runs the kernels, so dumps are files of the server's. */
#include "client/call.h"
#include "generated/client/operations.h"

#include <string.h>

#define VALUE_MAX 1024 /* names of files: the longest value there is */

typedef CUresult ask_function(CUcoredumpSettings attrib, unsigned int query, size_t capacity, void *value,
                              size_t *size);
typedef CUresult tell_function(CUcoredumpSettings attrib, size_t size, const void *value);

static CUresult get(ask_function *ask, unsigned flags, CUcoredumpSettings attrib, void *value, size_t *size)
{
    unsigned char answer[VALUE_MAX];
    CUresult status = rg_call_allowed(flags);
    if (status != CUDA_SUCCESS)
        return status;
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    const size_t room = *size < VALUE_MAX ? *size : VALUE_MAX;
    status = ask(attrib, value == NULL, value ? room : 0, answer, &found);
    if (status != CUDA_SUCCESS)
        return status;
    if (value)
        memcpy(value, answer, found < room ? found : room);
    *size = found;
    return CUDA_SUCCESS;
}

static CUresult set(tell_function *tell, unsigned flags, CUcoredumpSettings attrib, const void *value,
                    const size_t *size)
{
    CUresult status = rg_call_allowed(flags);
    if (status != CUDA_SUCCESS)
        return status;
    if (!value || !size || *size > VALUE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    return tell(attrib, *size, value);
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(rg_op_rgCoredumpGet, RG_CALL_CONTEXT, attrib, value, size);
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(rg_op_rgCoredumpGetGlobal, 0, attrib, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(rg_op_rgCoredumpSet, RG_CALL_CONTEXT, attrib, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(rg_op_rgCoredumpSetGlobal, 0, attrib, value, size);
}
