/*
 * own_images.h - the fat binaries in the files of this process: the program and the shared libraries that are
 * loaded. The compiler puts a wrapper for each into a section of its own, by which they are found before any
 * of them is registered.
 */
#ifndef RG_COMMON_CUDA_PROGRAM_OWN_IMAGES_H
#define RG_COMMON_CUDA_PROGRAM_OWN_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * How much is looked at: of a file that has more, nothing is taken, since a program of many images uses a
 * few.
 */
struct rg_own_images_limits {
    unsigned images;
    uint64_t image_bytes, bytes; /* of one, of all */
    bool program;                /* the program's own file alone */
};

/**
 * Calls `take` with each wrapper, as cuLibraryLoadData takes it. Its file stays loaded for the call. Images
 * that are still to be linked are left out. Any thread.
 */
void rg_own_images(const struct rg_own_images_limits *limits, void (*take)(void *user, const void *wrapper),
                   void *user);

#endif
