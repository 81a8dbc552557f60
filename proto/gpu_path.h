/*
 * gpu_path.h - how bulk data gets into and out of the memory of a GPU: what a worker tells of that (RG_NOTICE_GPU_PATH) where the
 * client understands it (RG_CONTROL_CAP_GPU_PATH).
 */
#ifndef RG_PROTO_GPU_PATH_H
#define RG_PROTO_GPU_PATH_H

/** On the wire; the better the larger. */
enum rg_gpu_path {
    RG_GPU_PATH_UNKNOWN,
    RG_GPU_PATH_STAGING, /* through page-locked memory of the server */
    RG_GPU_PATH_PEER,    /* by the network device, to which a kernel module has told of the GPU's address */
    RG_GPU_PATH_DMABUF,  /* by the network device, which was given the GPU's memory as a dma-buf */
    RG_GPU_PATH_PATHS
};

static inline const char *rg_gpu_path_name(enum rg_gpu_path path)
{
    return path == RG_GPU_PATH_DMABUF ? "dma-buf" : path == RG_GPU_PATH_PEER ? "peer memory" : "staging";
}

#endif
