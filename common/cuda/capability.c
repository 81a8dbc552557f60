/*
 * capability.c - see capability.h.
 *
 * What compiles for exactly what it finds (looked at in 2026): numba, whose linker refuses a capability that it does not
 * know; NVIDIA Warp, whose compiler does; Triton; programs that hand the device's capability to NVRTC through cuda-python.
 * CuPy does not: it takes the nearest one that NVRTC knows. A program that has NVIDIA's libraries or PyTorch loaded as well
 * is better off with their needs met, unless it uses numba or Warp, which do nothing at all otherwise.
 */
#include "common/cuda/capability.h"

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEWEST 121 /* that compilers of today know */

struct seen {
    bool must, compiler, libraries;
};

static bool in(const char *path, const char *const *words)
{
    for (; *words; words++)
        if (strstr(path, *words))
            return true;
    return false;
}

static void look_at(struct seen *seen, const char *path)
{
    static const char *const must[] = {"/numba_cuda/", "/numba/cuda/", "/warp/bin/warp.so", NULL};
    static const char *const compilers[] = {"/libtriton.", "/cuda/bindings/_internal/nvrtc.",
                                            "/cuda/bindings/_bindings/cynvrtc.", NULL};
    static const char *const libraries[] = {"/libcublas",   "/libcufft",      "/libcurand", "/libcusolver",
                                            "/libcusparse", "/libtorch_cuda", "/cupy/",     NULL};
    seen->must |= in(path, must);
    seen->compiler |= in(path, compilers);
    seen->libraries |= in(path, libraries);
}

static unsigned wanted_of(const struct seen *seen)
{
    return seen->must || (seen->compiler && !seen->libraries) ? NEWEST : 0;
}

static int look_at_object(struct dl_phdr_info *info, size_t size, void *seen)
{
    (void)size;
    if (info->dlpi_name)
        look_at(seen, info->dlpi_name);
    return 0;
}

unsigned rg_capability_of_objects(const char *const *paths)
{
    struct seen seen = {0};
    for (; *paths; paths++)
        look_at(&seen, *paths);
    return wanted_of(&seen);
}

unsigned rg_capability_parse(const char *text)
{
    unsigned major, minor;
    int length = 0;
    if (text && sscanf(text, "%2u.%1u%n", &major, &minor, &length) == 2 && text[length] == '\0')
        return major * 10 + minor;
    return 0;
}

unsigned rg_capability_wanted(void)
{
    unsigned named = rg_capability_parse(secure_getenv("SOFTGPU_CC"));
    if (named)
        return named;
    struct seen seen = {0};
    dl_iterate_phdr(look_at_object, &seen);
    return wanted_of(&seen);
}
