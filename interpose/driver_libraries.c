/*
 * driver_libraries.c - the driver's libraries, for programs that open them by a fixed path, and for libraries that have variables by
 * the names of the driver's functions.
 *
 * ld.so gives who asks for libcuda.so.1 by its name the stand-in, which is preloaded. A path leads past it: to nothing on a
 * machine without a GPU, to another driver on one that has it. So dlopen(3) of a path that ends in the name of one of the
 * driver's libraries opens what is loaded by that name. All else is opened as it was asked for, and so are remote-gpu's own
 * files: a server that is started here loads a software device by its path.
 *
 * A library that loads the driver by hand may keep its functions in variables of the same names. The stand-ins, which are preloaded,
 * come before every library, so that the variables would be the functions themselves. Such a library is bound to what is its own first
 * (RTLD_DEEPBIND).
 *
 * dlopen takes from its return address whose search path counts, so nothing may stand between it and its caller: the function
 * here ends in a jump (x86-64; other machines go without). REMOTE_GPU_DEVICE_FILES=0 leaves all as it is.
 */
#include "interpose/own_variables.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

typedef void *dlopen_fn(const char *file, int mode);

/* What the jump needs; two registers (System V ABI, x86-64: classes of structures). */
struct opening {
    const char *file;
    dlopen_fn *next;
};

__attribute__((used, visibility("hidden"))) struct opening rg_driver_libraries_open(const char *file,
                                                                                    int *mode);

static dlopen_fn *find_next(void)
{
    static dlopen_fn *next;
    dlopen_fn *function = __atomic_load_n(&next, __ATOMIC_RELAXED);
    if (!function) { /* threads that look at the same time find the same */
        function = (dlopen_fn *)dlsym(RTLD_NEXT, "dlopen");
        __atomic_store_n(&next, function, __ATOMIC_RELAXED);
    }
    return function;
}

/* The name by which the library at that path is known to programs; NULL: it is none of the driver's. */
static const char *driver_library(const char *file)
{
    static const char *const names[][2] = {{"libcuda.so.1", "libcuda.so.1"},
                                           {"libcuda.so", "libcuda.so.1"},
                                           {"libnvidia-ml.so.1", "libnvidia-ml.so.1"},
                                           {"libnvidia-ml.so", "libnvidia-ml.so.1"}};
    const char *slash = file ? strrchr(file, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(slash + 1, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

/* Whether the file, by whatever name, is in this library's folder or below. */
static bool is_ours(const char *file)
{
    Dl_info info;
    char real[PATH_MAX], here[PATH_MAX];
    if (!realpath(file, real) || !dladdr((const void *)(uintptr_t)&rg_driver_libraries_open, &info) ||
        !realpath(info.dli_fname, here))
        return false;
    return strncmp(real, here, (size_t)(strrchr(here, '/') + 1 - here)) == 0;
}

/* Whether functions of the driver's stand before all libraries. */
static bool are_preloaded(void)
{
    const bool found = dlsym(RTLD_DEFAULT, "cuInit") != NULL;
    if (!found)
        (void)dlerror(); /* which is not the program's */
    return found;
}

struct opening rg_driver_libraries_open(const char *file, int *mode)
{
    struct opening opening = {.file = file, .next = find_next()};
    const char *name = driver_library(file), *wanted = secure_getenv("REMOTE_GPU_DEVICE_FILES");
    const int before = errno;
    const bool off = wanted && strcmp(wanted, "0") == 0;
    if (name && !off && !is_ours(file)) {
        void *loaded = opening.next(name, RTLD_LAZY | RTLD_NOLOAD);
        if (loaded) {
            dlclose(loaded);
            opening.file = name;
        }
    } else if (file && strchr(file, '/') && !off && are_preloaded() && rg_has_own_variables(file)) {
        *mode |= RTLD_DEEPBIND;
    }
    errno = before;
    return opening;
}

__asm__(".pushsection .text\n"
        ".globl dlopen\n"
        ".type dlopen, @function\n"
        "dlopen:\n"
        ".cfi_startproc\n"
        "    endbr64\n"
        "    pushq %rsi\n" /* the mode; it also aligns the stack */
        "    .cfi_adjust_cfa_offset 8\n"
        "    movq %rsp, %rsi\n"
        "    call rg_driver_libraries_open\n"
        "    popq %rsi\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    movq %rax, %rdi\n"
        "    jmp *%rdx\n"
        ".cfi_endproc\n"
        ".size dlopen, . - dlopen\n"
        ".popsection\n");
#endif
