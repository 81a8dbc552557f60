/* coredump.c - settings of GPU core dumps. The driver sizes its values; `capacity` is what the client has room for. */
#include "generated/server/serve.h"

typedef CUresult get_function(CUcoredumpSettings attrib, void *value, size_t *size);

static CUresult get(get_function *ask, CUcoredumpSettings attrib, unsigned query, size_t capacity,
                    void *value, size_t *size)
{
    if (!ask)
        return CUDA_ERROR_NOT_SUPPORTED;
    *size = capacity;
    return ask(attrib, query ? NULL : value, size);
}

CUresult rg_serve_rgCoredumpGet(struct rg_job *job, CUcoredumpSettings attrib, unsigned int query,
                                size_t capacity, void *value, size_t *size)
{
    (void)job;
    return get(rg_driver.cuCoredumpGetAttribute, attrib, query, capacity, value, size);
}

CUresult rg_serve_rgCoredumpGetGlobal(struct rg_job *job, CUcoredumpSettings attrib, unsigned int query,
                                      size_t capacity, void *value, size_t *size)
{
    (void)job;
    return get(rg_driver.cuCoredumpGetAttributeGlobal, attrib, query, capacity, value, size);
}

CUresult rg_serve_rgCoredumpSet(struct rg_job *job, CUcoredumpSettings attrib, size_t size, const void *value)
{
    (void)job;
    return rg_driver.cuCoredumpSetAttribute
               ? rg_driver.cuCoredumpSetAttribute(attrib, (void *)(uintptr_t)value, &size)
               : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult rg_serve_rgCoredumpSetGlobal(struct rg_job *job, CUcoredumpSettings attrib, size_t size,
                                      const void *value)
{
    (void)job;
    return rg_driver.cuCoredumpSetAttributeGlobal
               ? rg_driver.cuCoredumpSetAttributeGlobal(attrib, (void *)(uintptr_t)value, &size)
               : CUDA_ERROR_NOT_SUPPORTED;
}
