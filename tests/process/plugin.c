/* plugin.c - a library whose constructor uses CUDA, as that of global objects does which keep memory of the device. */
#include <cuda.h>

/* Of the constructor: 0, the first error, or -1 where the data is wrong. */
__attribute__((visibility("default"))) int plugin_result = -1;

static CUresult use(void)
{
    enum { SIZE = 1000 };
    unsigned char bytes[SIZE] = {0};
    CUcontext context;
    CUdeviceptr data;
    CUresult result = cuInit(0);
    result = result ? result : cuDevicePrimaryCtxRetain(&context, 0);
    result = result ? result : cuCtxPushCurrent_v2(context);
    if (result)
        return result;
    result = cuMemAlloc_v2(&data, SIZE);
    result = result ? result : cuMemsetD8_v2(data, 7, SIZE);
    result = result ? result : cuMemcpyDtoH_v2(bytes, data, SIZE);
    result = result ? result : cuMemFree_v2(data);
    (void)cuCtxPopCurrent_v2(&context);
    return result ? result : bytes[0] == 7 && bytes[SIZE - 1] == 7 ? CUDA_SUCCESS : (CUresult)-1;
}

__attribute__((constructor)) static void begin(void)
{
    plugin_result = (int)use();
}
