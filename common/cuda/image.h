/*
 * image.h - what a module image is and how long.
 *
 * The driver API takes module images as a bare pointer: a fat binary (with or without the wrapper that nvcc
 * puts into programs), an ELF cubin, or PTX text. To send one elsewhere its length must be found from its
 * contents; the receiver finds it again in a buffer of known size and trusts nothing in it.
 *
 *   fat binary wrapper    u32 magic 0x466243b1, u32 version, pointer to the container, and in version 2 a
 * pointer to an array of containers of objects that are still to be linked, ended by NULL fat binary
 * container  u32 magic 0xba55ed50, u16 version, u16 header size, u64 size of what follows the header cubin
 * 64-bit little-endian ELF for the machine EM_CUDA; its end is the furthest end of its headers, sections and
 * segments PTX                   text up to its NUL
 */
#ifndef RG_COMMON_CUDA_IMAGE_H
#define RG_COMMON_CUDA_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#define RG_CUDA_WRAPPER_MAGIC   0x466243b1u
#define RG_CUDA_CONTAINER_MAGIC 0xba55ed50u
#define RG_CUDA_CONTAINER_SIZE  16u /* bytes of the container's own header */

/** What programs have fat binaries in, as nvcc writes it: version 1, or 2 with objects that are linked already. */
struct rg_cuda_wrapper {
    uint32_t magic, version;
    const void *container;
    const void *const *prelinked;
};

enum rg_cuda_image_kind {
    RG_CUDA_IMAGE_UNKNOWN = 0, /* none of the others, or broken, or longer than RG_IMAGE_MAX */
    RG_CUDA_IMAGE_CONTAINER,
    RG_CUDA_IMAGE_ELF,
    RG_CUDA_IMAGE_PTX,
};

struct rg_cuda_image {
    enum rg_cuda_image_kind kind;
    const void *data;             /* the container (not its wrapper), the ELF header, or the text */
    uint64_t size;                /* bytes at `data`; of text, with its NUL */
    uint32_t wrapper_version;     /* 1 or 2; 0: there is no wrapper */
    const void *const *prelinked; /* wrapper version 2: containers, ended by NULL; otherwise NULL */
};

/**
 * Tells what is at `image` in this process's memory, following a wrapper to its container. The pointer is the
 * application's word: what its headers say is read. Returns image->kind; if that is UNKNOWN the rest is zero.
 */
enum rg_cuda_image_kind rg_cuda_image_identify(const void *pointer, struct rg_cuda_image *image);

/**
 * The same where the application says how long it is: what is at `image` lies in `size` bytes. Of a wrapper these are the
 * wrapper's, and its pointers are the application's word.
 */
enum rg_cuda_image_kind rg_cuda_image_identify_sized(const void *pointer, uint64_t size,
                                                     struct rg_cuda_image *image);

/**
 * The same for `size` bytes of unknown origin: reads nothing outside of them, and what would end outside of
 * them is UNKNOWN. So is a wrapper, whose pointers mean nothing here. Bytes that follow the image are not
 * counted.
 */
enum rg_cuda_image_kind rg_cuda_image_identify_bytes(const void *bytes, uint64_t size,
                                                     struct rg_cuda_image *image);

/**
 * Whether a driver that takes these bytes of unknown origin for what they seem to be would read outside of them: they begin
 * as a wrapper does, or as a container or cubin that does not end within them.
 */
bool rg_cuda_image_leads_outside(const void *bytes, uint64_t size);

/** Whether a wrapper with an address in it is anywhere in these bytes, as object files have wrappers without one. */
bool rg_cuda_image_holds_address(const void *bytes, uint64_t size);

#endif
