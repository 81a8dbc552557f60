/*
 * nccl.h - the types of NCCL 2.27's binary interface: what programs that were compiled with NVIDIA's nccl.h pass to libnccl.so.2.
 *
 * The names and numbers are NCCL's own (nccl.h of 2.27.3, in the package nvidia-nccl-cu12), as programs and the server's library use
 * them. cudaStream_t is the driver's CUstream. The functions are listed in proto/nccl/functions.txt; generated/proto/nccl.h declares
 * them.
 */
#ifndef RG_COMMON_CUDA_NCCL_H
#define RG_COMMON_CUDA_NCCL_H

#include <cuda.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define NCCL_VERSION_CODE     22703 /* major * 10000 + minor * 100 + patch */
#define NCCL_UNIQUE_ID_BYTES  128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_MAGIC     0xcafebeefu
#define NCCL_SPLIT_NOCOLOR    (-1)
#define NCCL_SHRINK_DEFAULT   0
#define NCCL_SHRINK_ABORT     1

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
    ncclNumResults
} ncclResult_t;

/* Versions before 2.27 have fewer members; `size` tells which are there. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
} ncclConfig_t;

/** One that says nothing. */
#define NCCL_CONFIG_INITIALIZER                                                                              \
    {                                                                                                        \
        .size = sizeof(ncclConfig_t), .magic = NCCL_CONFIG_MAGIC, .version = NCCL_VERSION_CODE,              \
        .blocking = NCCL_CONFIG_UNDEF_INT, .cgaClusterSize = NCCL_CONFIG_UNDEF_INT,                          \
        .minCTAs = NCCL_CONFIG_UNDEF_INT, .maxCTAs = NCCL_CONFIG_UNDEF_INT,                                  \
        .splitShare = NCCL_CONFIG_UNDEF_INT, .trafficClass = NCCL_CONFIG_UNDEF_INT,                          \
        .collnetEnable = NCCL_CONFIG_UNDEF_INT, .CTAPolicy = NCCL_CONFIG_UNDEF_INT,                          \
        .shrinkShare = NCCL_CONFIG_UNDEF_INT, .nvlsCTAs = NCCL_CONFIG_UNDEF_INT                              \
    }

typedef struct {
    size_t size;
    unsigned magic, version;
    float estimatedTime;
} ncclSimInfo_t;

/* From ncclNumOps on: those that ncclRedOpCreatePreMulSum made. */
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps, ncclMaxRedOp = INT_MAX } ncclRedOp_t;

typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16,
    ncclFloat8e4m3,
    ncclFloat8e5m2,
    ncclNumTypes
} ncclDataType_t;

typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

/** What ncclGetErrorString says. */
static inline const char *rg_nccl_error_string(ncclResult_t result)
{
    static const char *const texts[ncclNumResults] = {"no error",
                                                      "unhandled cuda error",
                                                      "unhandled system error",
                                                      "internal error",
                                                      "invalid argument",
                                                      "invalid usage",
                                                      "remote process exited or there was a network error",
                                                      "NCCL operation in progress"};
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}

/**
 * The ranks of a list, which a communicator is to go on without, as bits in `words` words. What is wrong with the list, where the caller is
 * `rank` of `ranks`; NULL: nothing.
 */
static inline const char *rg_nccl_exclude(const int *list, int n, int rank, int ranks, uint64_t *bits,
                                          size_t words)
{
    if (!list || n < 1)
        return "no rank is to stay away";
    if ((size_t)ranks > words * 64)
        return "the communicator has more ranks than can be told apart here";
    for (size_t i = 0; i < words; i++)
        bits[i] = 0;
    for (int i = 0; i < n; i++) {
        if (list[i] < 0 || list[i] >= ranks)
            return "a rank that is to stay away is none of the communicator's";
        if (list[i] == rank)
            return "the caller is to stay away itself: it may not call this";
        bits[list[i] / 64] |= (uint64_t)1 << list[i] % 64;
    }
    return NULL;
}

/** Why a call cannot be made, or captured, where the driver says this of its streams. */
static inline const char *rg_nccl_why_not_captured(CUresult status)
{
    switch ((int)status) {
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return "the legacy stream would wait for a stream that is being captured";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        return "the capture of the stream is invalid";
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
        return "the capture has ended meanwhile";
    case CUDA_ERROR_NOT_SUPPORTED:
        return "NCCL's calls cannot be captured into the body of a conditional node";
    case CUDA_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    default:
        return "this is no stream";
    }
}
/**
 * Why calls cannot be in one group whose streams take part in these captures (0: in none); NULL: they can. They are of one communicator's
 * rank, of ranks of one communicator, or of none of both.
 */
static inline const char *rg_nccl_why_not_together(int same_rank, int same_communicator, uint64_t one,
                                                   uint64_t other)
{
    if (same_rank && one != other)
        return "of a communicator's streams in a group all must be captured into one graph, or none";
    if (same_communicator && !one != !other)
        return "of a communicator's ranks in a group all must be captured, or none";
    return NULL;
}

/** Registering a buffer or a window where that need not be done: NCCL's answers, and the handle for such a one. */
static inline ncclResult_t rg_nccl_register_nothing(const void *comm, const void *buffer, size_t size,
                                                    void **handle)
{
    if (!comm || !buffer || !size || !handle)
        return ncclInvalidArgument;
    *handle = NULL;
    return ncclSuccess;
}
static inline ncclResult_t rg_nccl_deregister_nothing(const void *comm)
{
    return comm ? ncclSuccess : ncclInvalidArgument;
}

/** Bytes of an element; 0: there is no such type. */
static inline size_t rg_nccl_type_size(unsigned type)
{
    static const unsigned char sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type < ncclNumTypes ? sizes[type] : 0;
}

#endif
