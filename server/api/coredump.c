/*
 * coredump.c - settings of GPU core dumps. The driver sizes its values, and is believed to keep to the size
 * that it is told only as far as there is room for its longest; what it is given is of exactly the right size
 * and good. What would make it write a file or make a pipe here is refused.
 */
#include "common/cuda/coredump.h"

#include "generated/server/execute.h"

#include <string.h>

typedef CUresult attribute_function(CUcoredumpSettings attrib, void *value, size_t *size);

static CUresult get(struct rg_request *request, attribute_function *ask, CUcoredumpSettings attrib,
                    unsigned query, size_t capacity, void *value, size_t *size)
{
    if (!ask)
        return CUDA_ERROR_NOT_SUPPORTED;
    unsigned char *room = rg_request_memory(request, RG_COREDUMP_NAME_MAX);
    if (!room)
        return request->result;
    if (capacity > RG_COREDUMP_NAME_MAX)
        capacity = RG_COREDUMP_NAME_MAX;
    *size = capacity;
    CUresult result = ask(attrib, query ? NULL : room, size);
    if (result == CUDA_SUCCESS && !query)
        memcpy(value, room, *size < capacity ? *size : capacity);
    return result;
}

static CUresult set(attribute_function *tell, CUcoredumpSettings attrib, size_t size, const void *value)
{
    unsigned char own[RG_COREDUMP_NAME_MAX];
    if (!tell)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!rg_coredump_value_good(attrib, value, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (rg_coredump_of_server(attrib, value))
        return CUDA_ERROR_NOT_PERMITTED;
    memcpy(own, value, size); /* in the record it may lie anywhere */
    return tell(attrib, own, &size);
}

CUresult rg_execute_rgCoredumpGet(struct rg_request *request, CUcoredumpSettings attrib, unsigned int query,
                                  size_t capacity, void *value, size_t *size)
{
    return get(request, rg_driver.cuCoredumpGetAttribute, attrib, query, capacity, value, size);
}

CUresult rg_execute_rgCoredumpGetGlobal(struct rg_request *request, CUcoredumpSettings attrib,
                                        unsigned int query, size_t capacity, void *value, size_t *size)
{
    return get(request, rg_driver.cuCoredumpGetAttributeGlobal, attrib, query, capacity, value, size);
}

CUresult rg_execute_rgCoredumpSet(struct rg_request *request, CUcoredumpSettings attrib, size_t size,
                                  const void *value)
{
    (void)request;
    return set(rg_driver.cuCoredumpSetAttribute, attrib, size, value);
}

CUresult rg_execute_rgCoredumpSetGlobal(struct rg_request *request, CUcoredumpSettings attrib, size_t size,
                                        const void *value)
{
    (void)request;
    return set(rg_driver.cuCoredumpSetAttributeGlobal, attrib, size, value);
}
