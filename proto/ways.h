/*
 * ways.h - how bulk data gets into and out of the memory of a GPU: what a worker tells of that (RG_NOTICE_WAY) where the
 * client understands it (RG_CONTROL_CAP_WAYS).
 */
#ifndef RG_PROTO_WAYS_H
#define RG_PROTO_WAYS_H

/** On the wire; the better the larger. */
enum rg_direct_path {
    RG_DIRECT_UNKNOWN,
    RG_DIRECT_STAGING, /* through page-locked memory of the server */
    RG_DIRECT_PEER,    /* by the network device, to which a kernel module has told of the GPU's address */
    RG_DIRECT_DMABUF,  /* by the network device, which was given the GPU's memory as a dma-buf */
    RG_DIRECT_PATHS
};

static inline const char *rg_direct_name(enum rg_direct_path path)
{
    return path == RG_DIRECT_DMABUF ? "dma-buf" : path == RG_DIRECT_PEER ? "peer memory" : "staging";
}

#endif
