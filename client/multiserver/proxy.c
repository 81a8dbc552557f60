/* proxy.c - see proxy.h. */
#include "client/multiserver/proxy.h"

#include "client/core/context_scope.h"
#include "client/core/home.h"
#include "client/multiserver/cross_fence.h"
#include "client/multiserver/helper_stream.h"

CUresult rg_proxy_begin(struct rg_proxy *proxy, uint64_t home, CUstream stream, bool synchronous)
{
    *proxy = (struct rg_proxy){.stream = stream, .of = stream, .synchronous = synchronous};
    if (!rg_several_servers() || !rg_homes_differ(home, rg_home_of(RG_KIND_STREAM, (uint64_t)stream))) {
        const CUresult entered = rg_context_scope_enter_stream(stream, &proxy->straight);
        proxy->on = proxy->straight;
        return entered;
    }
    proxy->context = rg_home_context(home);
    proxy->of_context = rg_home_context_of_stream(stream);
    CUresult status = CUDA_SUCCESS;
    if (synchronous) {
        status = rg_context_scope_synchronize(proxy->of_context, stream);
        proxy->stream = CU_STREAM_LEGACY;
    } else {
        status = rg_helper_stream_take(proxy->context, stream, &proxy->helper);
        if (status == CUDA_SUCCESS)
            status =
                rg_cross_fence_put(proxy->of_context, stream, proxy->context, proxy->helper->stream, NULL);
        if (status == CUDA_SUCCESS)
            proxy->stream = proxy->helper->stream;
    }
    if (status == CUDA_SUCCESS)
        status = rg_context_scope_enter(proxy->context);
    proxy->on = status == CUDA_SUCCESS;
    if (!proxy->on)
        rg_helper_stream_give(proxy->helper);
    return status;
}

CUresult rg_proxy_end(struct rg_proxy *proxy, CUresult status)
{
    if (!proxy->on)
        return status;
    rg_context_scope_leave();
    if (proxy->synchronous || proxy->straight)
        return status;
    CUresult result =
        rg_cross_fence_put(proxy->context, proxy->stream, proxy->of_context, proxy->of, proxy->helper);
    return status == CUDA_SUCCESS ? result : status;
}
