/*
 * library.h - the worker's own libnccl.so.2, loaded when it is first needed.
 *
 * REMOTE_GPU_NCCL names it (a path; "off": none is to be used). Else it is the one beside the driver, where the software device has
 * its own, or what the dynamic linker finds. Any thread.
 */
#ifndef RG_SERVER_NCCL_LIBRARY_H
#define RG_SERVER_NCCL_LIBRARY_H

#include "common/cuda/nccl_network.h"
#include "generated/proto/nccl.h"

/* Those that the worker calls; X(name). */
#define RG_NCCL_USED(X)                                                                                      \
    X(ncclGetUniqueId)                                                                                       \
    X(ncclGetLastError)                                                                                      \
    X(ncclCommInitRankConfig)                                                                                \
    X(ncclCommSplit)                                                                                         \
    X(ncclCommFinalize)                                                                                      \
    X(ncclCommDestroy)                                                                                       \
    X(ncclCommAbort)                                                                                         \
    X(ncclCommGetAsyncError)                                                                                 \
    X(ncclCommCount)                                                                                         \
    X(ncclCommUserRank)                                                                                      \
    X(ncclRedOpCreatePreMulSum)                                                                              \
    X(ncclRedOpDestroy)                                                                                      \
    X(ncclReduce)                                                                                            \
    X(ncclBroadcast)                                                                                         \
    X(ncclAllReduce)                                                                                         \
    X(ncclReduceScatter)                                                                                     \
    X(ncclAllGather)                                                                                         \
    X(ncclSend)                                                                                              \
    X(ncclRecv)                                                                                              \
    X(ncclGroupStart)                                                                                        \
    X(ncclGroupEnd)

/* Those that older versions lack: NULL there. */
#define RG_NCCL_USED_IF_THERE(X) X(ncclCommShrink) /* 2.27 */

struct rg_nccl_library {
#define RG_NCCL_MEMBER(name) __typeof__(name) *name;
    RG_NCCL_USED(RG_NCCL_MEMBER)
    RG_NCCL_USED_IF_THERE(RG_NCCL_MEMBER)
#undef RG_NCCL_MEMBER
};

/** The path of the driver that the worker has loaded; stays valid. Before the session begins. */
void rg_nccl_set_driver(const char *driver);
/** NULL: there is none; `why` (may be NULL) is set to a sentence for the client, which stays valid. */
const struct rg_nccl_library *rg_nccl_library(const char **why);

/** What the software device's has besides, by which ranks of several sessions find each other; NULL: it is another one's. */
const struct rg_nccl_extension *rg_nccl_library_extension(void);

#endif
