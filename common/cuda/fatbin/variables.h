/*
 * variables.h - the variables of a module image: names and sizes of what it defines in global and constant memory.
 *
 * No driver lists them, so they are read from the image itself: from the symbols of its ELF files and the declarations of
 * its PTX. That is enough to guess what a program is going to ask for; whether a variable can be found, and where, is the
 * driver's to say.
 */
#ifndef RG_COMMON_CUDA_FATBIN_VARIABLES_H
#define RG_COMMON_CUDA_FATBIN_VARIABLES_H

#include "common/base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RG_VARIABLE_UNSIZED UINT64_MAX /* the size is not said in a way that is understood */
#define RG_VARIABLE_WORK_MAX                                                                                 \
    (64u << 20) /* bytes that are looked at in all, those looked at twice counted twice */

/** One of them. The name is not NUL-terminated and lives for the call. */
struct rg_image_variable {
    const char *name;
    size_t length;
    uint64_t bytes; /* or RG_VARIABLE_UNSIZED */
    bool managed;
};

/**
 * Calls `each` for every variable in `size` bytes of any origin: of a fat binary, those of all of its entries one after
 * another, so that names come several times. False: there is something in the image that could not be looked into. Any
 * thread.
 */
bool rg_image_variables(const void *image, size_t size,
                        void (*each)(void *user, const struct rg_image_variable *variable), void *user);

#endif
