/*
 * capability.c - see capability.h.
 *
 * What compiles for exactly what it finds (looked at in 2026): numba, whose linker refuses a capability that it does not
 * know; NVIDIA Warp, whose compiler does; cuVS, which links some of its kernels with nvJitLink; Triton; programs that hand
 * the device's capability to NVRTC, themselves or through cuda-python; PyTorch, whose own compiler writes Triton. CuPy does
 * not: it takes the nearest one that NVRTC knows. A program that has libraries loaded whose code is chosen without the driver
 * (cuBLAS, and what stands on it) is better off with their needs met, unless it uses numba, Warp or PyTorch, which do nothing at
 * all otherwise, or cuVS. cuFFT runs with any capability, and cuRAND with 12.1.
 * What such a library itself asks it is told what it needs: then both can be had.
 *
 * A program whose own kernels are for certain architectures alone (compute_90a) does nothing at all elsewhere: it gets the lowest one
 * for which each of its images has PTX, whatever is loaded.
 *
 * A compiler's own list says what it knows, if it is NVRTC and has been loaded; else it is taken to be new.
 */
#include "common/cuda/program/capability.h"

#include "common/cuda/fatbin/fatbin.h"
#include "common/cuda/image.h"
#include "common/cuda/program/own_images.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCHS_MAX  64
#define IMAGES_MAX 128

__thread const void *rg_capability_asker;
static atomic_uint chosen; /* by what is loaded; 0: nothing was, or the user has */

struct seen {
    bool must, compiler, libraries, curand;
    char nvrtc[PATH_MAX]; /* path of the first one that is loaded; "": none is */
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
    static const char *const must[] = {"/numba_cuda/",   "/numba/cuda/", "/warp/bin/warp.so",
                                       "/libtorch_cuda", "/libcuvs.so",  NULL};
    static const char *const compilers[] = {"/libtriton.", "/cuda/bindings/_internal/nvrtc.",
                                            "/cuda/bindings/_bindings/cynvrtc.", NULL};
    static const char *const libraries[] = {"/libcublas", "/libcusolver", "/libcusparse", "/cupy/", NULL};
    static const char *const nvrtc[] = {"/libnvrtc.so", "/libnvrtc.alt.so", NULL};
    static const char *const curand[] = {"/libcurand", NULL};
    seen->must |= in(path, must);
    seen->compiler |= in(path, compilers);
    seen->libraries |= in(path, libraries);
    seen->curand |= in(path, curand);
    if (!seen->nvrtc[0] && in(path, nvrtc))
        snprintf(seen->nvrtc, sizeof seen->nvrtc, "%s", path);
}

/* The newest that an NVRTC says that it knows, of those that a device has; NEWEST where it does not say. */
static unsigned ask_newest(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    int (*count)(int *) = library ? (int (*)(int *))dlsym(library, "nvrtcGetNumSupportedArchs") : NULL;
    int (*list)(int *) = library ? (int (*)(int *))dlsym(library, "nvrtcGetSupportedArchs") : NULL;
    int n = 0, archs[ARCHS_MAX];
    unsigned newest = 0;
    if (count && list && count(&n) == 0 && n > 0 && n <= ARCHS_MAX && list(archs) == 0)
        for (int i = 0; i < n; i++)
            if (archs[i] > (int)newest && archs[i] <= RG_CAPABILITY_NEWEST)
                newest = (unsigned)archs[i];
    if (library)
        dlclose(library);
    return newest ? newest : RG_CAPABILITY_NEWEST;
}

/* Likewise; the loader, which has a lock of its own, is called the first time that it is asked about this one. */
static unsigned newest_of(const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* a forked child may find it held for ever */
    static char known_path[PATH_MAX];
    static unsigned known;
    unsigned newest = 0;
    if (pthread_mutex_trylock(&lock) == 0) {
        newest = strcmp(known_path, path) == 0 ? known : 0;
        pthread_mutex_unlock(&lock);
    }
    if (newest)
        return newest;
    newest = ask_newest(path);
    if (pthread_mutex_trylock(&lock) == 0) {
        snprintf(known_path, sizeof known_path, "%s", path);
        known = newest;
        pthread_mutex_unlock(&lock);
    }
    return newest;
}

static unsigned wanted_of(const struct seen *seen)
{
    const bool compiles = seen->compiler || seen->nvrtc[0];
    if (!seen->must && (!compiles || seen->libraries))
        return 0;
    const unsigned newest = seen->nvrtc[0] ? newest_of(seen->nvrtc) : RG_CAPABILITY_NEWEST;
    return seen->curand && !seen->must && newest < RG_CAPABILITY_NEWEST ? 0 : newest;
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

/* --- the program's own kernels --- */

/* Whether a device of this capability finds PTX in an image, or there is none for any. */
static bool serves(const void *pointer, unsigned capability)
{
    struct rg_cuda_image image;
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    bool any = false;
    if (rg_cuda_image_identify(pointer, &image) != RG_CUDA_IMAGE_CONTAINER ||
        rg_fatbin_open(&fatbin, image.data, image.size) != RG_FATBIN_OK)
        return true;
    while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK) {
        if (rg_fatbin_fits(&entry, capability))
            return true;
        any |= entry.kind == RG_FATBIN_PTX;
    }
    return !any;
}

static bool serves_all(const void *const *images, size_t n, unsigned capability)
{
    for (size_t i = 0; i < n; i++)
        if (!serves(images[i], capability))
            return false;
    return true;
}

/* The lowest architecture above `above` that PTX in an image is for alone, or with its family; 0: there is none. */
static unsigned next_target(const void *pointer, unsigned above)
{
    struct rg_cuda_image image;
    struct rg_fatbin fatbin;
    struct rg_fatbin_entry entry;
    unsigned lowest = 0;
    if (rg_cuda_image_identify(pointer, &image) != RG_CUDA_IMAGE_CONTAINER ||
        rg_fatbin_open(&fatbin, image.data, image.size) != RG_FATBIN_OK)
        return 0;
    while (rg_fatbin_next(&fatbin, &entry) == RG_FATBIN_OK)
        if (entry.kind == RG_FATBIN_PTX && entry.flags & (RG_FATBIN_FLAG_ARCH | RG_FATBIN_FLAG_FAMILY) &&
            entry.architecture > above && (!lowest || entry.architecture < lowest))
            lowest = entry.architecture;
    return lowest;
}

unsigned rg_capability_of_images(const void *const *images, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (serves(images[i], RG_CAPABILITY_ABOVE_ALL))
            continue;
        unsigned target = 0;
        while ((target = next_target(images[i], target)) != 0)
            if (serves_all(images, n, target))
                return target;
        return 0;
    }
    return 0;
}

struct own_images {
    size_t n;
    const void *at[IMAGES_MAX]; /* of the program itself, which stays loaded */
};

static void take_image(void *user, const void *wrapper)
{
    struct own_images *images = user;
    if (images->n < IMAGES_MAX)
        images->at[images->n++] = wrapper;
}

/* That of the program's own kernels, looked for once; 0: they run anywhere, or there are none. */
static unsigned own_capability(void)
{
    static const struct rg_own_images_limits limits = {
        .images = IMAGES_MAX, .image_bytes = UINT64_MAX, .bytes = UINT64_MAX, .program = true};
    static atomic_uint known; /* and 1 more; 0: not yet */
    unsigned wanted = atomic_load(&known);
    if (wanted)
        return wanted - 1;
    struct own_images images = {0};
    rg_own_images(&limits, take_image, &images);
    wanted = rg_capability_of_images(images.at, images.n);
    atomic_store(&known, wanted + 1);
    return wanted;
}

unsigned rg_capability_told(const void *asker, unsigned capability)
{
    static const char *const choosers[] = {"/libcublas", "/libcusolver", "/libcusparse", "/libcurand", NULL};
    Dl_info info;
    if (!capability || capability != atomic_load(&chosen) || capability > RG_CAPABILITY_NEWEST ||
        !dladdr(asker, &info) || !info.dli_fname || !in(info.dli_fname, choosers))
        return capability;
    return RG_CAPABILITY_ABOVE_ALL;
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
    unsigned wanted = own_capability();
    if (!wanted) {
        dl_iterate_phdr(look_at_object, &seen);
        wanted = wanted_of(&seen);
    }
    atomic_store(&chosen, wanted);
    return wanted;
}
