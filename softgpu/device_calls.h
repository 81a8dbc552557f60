/*
 * device_calls.h - the functions of the CUDA device runtime (cudadevrt) that kernels call and the engine serves: name
 * without its prefix, number of parameters. nvcc calls them by "__cudaCDP2" and the name; "cuda" and the name is what
 * other compilers write. "_ptsz" behind it, the form for per-thread default streams, means the same on the device.
 *
 * Source: cuda_device_runtime_api.h of CUDA 13.0, "CDP2 endpoints".
 */
#ifndef SG_DEVICE_CALLS_H
#define SG_DEVICE_CALLS_H

#define SG_DEVICE_CALLS(X)                                                                                   \
    X(DeviceGetAttribute, 3)                                                                                 \
    X(DeviceGetLimit, 2)                                                                                     \
    X(DeviceGetCacheConfig, 1)                                                                               \
    X(DeviceGetSharedMemConfig, 1)                                                                           \
    X(GetLastError, 0)                                                                                       \
    X(PeekAtLastError, 0)                                                                                    \
    X(GetErrorString, 1)                                                                                     \
    X(GetErrorName, 1)                                                                                       \
    X(GetDeviceCount, 1)                                                                                     \
    X(GetDevice, 1)                                                                                          \
    X(StreamCreateWithFlags, 2)                                                                              \
    X(StreamDestroy, 1)                                                                                      \
    X(StreamWaitEvent, 3)                                                                                    \
    X(EventCreateWithFlags, 2)                                                                               \
    X(EventRecord, 2)                                                                                        \
    X(EventRecordWithFlags, 3)                                                                               \
    X(EventDestroy, 1)                                                                                       \
    X(FuncGetAttributes, 2)                                                                                  \
    X(Free, 1)                                                                                               \
    X(Malloc, 2)                                                                                             \
    X(MemcpyAsync, 5)                                                                                        \
    X(Memcpy2DAsync, 8)                                                                                      \
    X(MemsetAsync, 4)                                                                                        \
    X(Memset2DAsync, 6)                                                                                      \
    X(RuntimeGetVersion, 1)                                                                                  \
    X(GetParameterBuffer, 2)                                                                                 \
    X(GetParameterBufferV2, 4)                                                                               \
    X(LaunchDevice, 6)                                                                                       \
    X(LaunchDeviceV2, 2)                                                                                     \
    X(OccupancyMaxActiveBlocksPerMultiprocessor, 4)                                                          \
    X(OccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 5)

enum sg_device_call {
#define SG_DEVICE_CALL(name, n_params) SG_CALL_##name,
    SG_DEVICE_CALLS(SG_DEVICE_CALL)
#undef SG_DEVICE_CALL
        SG_CALL_COUNT
};

/** What they return: values of cudaError_t. */
enum sg_device_error {
    SG_CUDA_SUCCESS = 0,
    SG_CUDA_INVALID_VALUE = 1,
    SG_CUDA_OUT_OF_MEMORY = 2,
    SG_CUDA_INVALID_CONFIGURATION = 9,
    SG_CUDA_INVALID_PITCH = 12,
    SG_CUDA_LAUNCH_PENDING_COUNT_EXCEEDED = 69,
    SG_CUDA_INVALID_DEVICE_FUNCTION = 98,
    SG_CUDA_INVALID_DEVICE = 101,
    SG_CUDA_INVALID_HANDLE = 400,
    SG_CUDA_NOT_SUPPORTED = 801,
};

#endif
