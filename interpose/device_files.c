/*
 * device_files.c - the driver's device files, for programs that look for them before they touch CUDA.
 *
 * JAX takes it that there is no GPU where neither /dev/nvidiactl nor /dev/nvidia0 is there, and says nothing. This library is
 * preloaded beside the driver's stand-in and has stat(2), access(2) and their like find the two where they are missing. Only
 * that they are there: who opens them is told by the kernel that they are not.
 *
 * It is in every process of a job, so it does as little as possible: each function calls the one that it stands before
 * (dlsym(3), RTLD_NEXT: another preloaded library's, or libc's), and only an answer of "no such file" is looked at.
 * REMOTE_GPU_DEVICE_FILES=0 leaves that answer as it is.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    DRIVER_MAJOR =
        195, /* what Linux has assigned to NVIDIA's driver (Documentation/admin-guide/devices.txt) */
    CONTROL_MINOR = 255,
    DEVICE_MODE = S_IFCHR | 0666,
};

static const struct device_file {
    const char *path;
    unsigned minor;
} device_files[] = {{"/dev/nvidiactl", CONTROL_MINOR}, {"/dev/nvidia0", 0}};

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "the two are one on 64-bit machines");

/* --- the functions behind these --- */

/* Names that glibc since 2.33 keeps for old programs alone have no default version. */
#if defined(__x86_64__)
static const char oldest_version[] = "GLIBC_2.2.5";
#else
static const char oldest_version[] = "GLIBC_2.17";
#endif

typedef int stat_fn(const char *, struct stat *);
typedef int fstatat_fn(int, const char *, struct stat *, int);
typedef int xstat_fn(int, const char *, struct stat *);
typedef int fxstatat_fn(int, int, const char *, struct stat *, int);
typedef int statx_fn(int, const char *, int, unsigned, struct statx *);
typedef int access_fn(const char *, int);
typedef int faccessat_fn(int, const char *, int, int);

static void *look_up(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    return found ? found : dlvsym(RTLD_NEXT, name, oldest_version);
}

/*
 * `next` of type T: the function `name` behind this library. Looked up once; threads that do so at the same time find the
 * same. A libc that lacks it has no program that calls it, but for one that asks dlsym for it: that gets ENOSYS.
 */
#define NEXT(T, name)                                                                                        \
    static T *next;                                                                                          \
    T *function = __atomic_load_n(&next, __ATOMIC_RELAXED);                                                  \
    if (!function) {                                                                                         \
        function = (T *)look_up(name);                                                                       \
        __atomic_store_n(&next, function, __ATOMIC_RELAXED);                                                 \
    }                                                                                                        \
    if (!function) {                                                                                         \
        errno = ENOSYS;                                                                                      \
        return -1;                                                                                           \
    }

/* --- what is shown --- */

/* The device file of that path, if a call for it has just failed because it is not there; else NULL. */
static const struct device_file *missing(int result, const char *path)
{
    if (result == 0 || errno != ENOENT || !path)
        return NULL;
    for (size_t i = 0; i < sizeof device_files / sizeof device_files[0]; i++)
        if (strcmp(path, device_files[i].path) == 0) {
            const char *wanted = secure_getenv("REMOTE_GPU_DEVICE_FILES");
            return wanted && strcmp(wanted, "0") == 0 ? NULL : &device_files[i];
        }
    return NULL;
}

/* What stat and its like say. `before`: errno before the call, which success leaves alone. */
static int describe(int result, int before, const char *path, struct stat *out)
{
    const struct device_file *file = missing(result, path);
    if (!file || !out)
        return result;
    memset(out, 0, sizeof *out);
    out->st_mode = DEVICE_MODE;
    out->st_nlink = 1;
    out->st_rdev = makedev(DRIVER_MAJOR, file->minor);
    out->st_blksize = 4096;
    errno = before;
    return 0;
}

static int describe_extended(int result, int before, const char *path, struct statx *out)
{
    const struct device_file *file = missing(result, path);
    if (!file || !out)
        return result;
    memset(out, 0, sizeof *out);
    out->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_GID;
    out->stx_mode = DEVICE_MODE;
    out->stx_nlink = 1;
    out->stx_rdev_major = DRIVER_MAJOR;
    out->stx_rdev_minor = file->minor;
    out->stx_blksize = 4096;
    errno = before;
    return 0;
}

/* What access and its like say: everybody may read and write it, nobody execute it. */
static int permit(int result, int before, const char *path, int mode)
{
    if (!missing(result, path))
        return result;
    errno = mode & X_OK ? EACCES : before;
    return mode & X_OK ? -1 : 0;
}

/* --- the functions --- */

#define DEFINE_STAT(name)                                                                                    \
    EXPORT int name(const char *restrict path, struct stat *restrict out);                                   \
    EXPORT int name(const char *restrict path, struct stat *restrict out)                                    \
    {                                                                                                        \
        NEXT(stat_fn, #name)                                                                                 \
        const int before = errno;                                                                            \
        return describe(function(path, out), before, path, out);                                             \
    }
#define DEFINE_FSTATAT(name)                                                                                 \
    EXPORT int name(int folder, const char *restrict path, struct stat *restrict out, int flags);            \
    EXPORT int name(int folder, const char *restrict path, struct stat *restrict out, int flags)             \
    {                                                                                                        \
        NEXT(fstatat_fn, #name)                                                                              \
        const int before = errno;                                                                            \
        return describe(function(folder, path, out, flags), before, path, out);                              \
    }
/* What programs call that were built with a glibc before 2.33. */
#define DEFINE_XSTAT(name)                                                                                   \
    EXPORT int name(int version, const char *path, struct stat *out);                                        \
    EXPORT int name(int version, const char *path, struct stat *out)                                         \
    {                                                                                                        \
        NEXT(xstat_fn, #name)                                                                                \
        const int before = errno;                                                                            \
        return describe(function(version, path, out), before, path, out);                                    \
    }
#define DEFINE_FXSTATAT(name)                                                                                \
    EXPORT int name(int version, int folder, const char *path, struct stat *out, int flags);                 \
    EXPORT int name(int version, int folder, const char *path, struct stat *out, int flags)                  \
    {                                                                                                        \
        NEXT(fxstatat_fn, #name)                                                                             \
        const int before = errno;                                                                            \
        return describe(function(version, folder, path, out, flags), before, path, out);                     \
    }
#define DEFINE_ACCESS(name)                                                                                  \
    EXPORT int name(const char *path, int mode);                                                             \
    EXPORT int name(const char *path, int mode)                                                              \
    {                                                                                                        \
        NEXT(access_fn, #name)                                                                               \
        const int before = errno;                                                                            \
        return permit(function(path, mode), before, path, mode);                                             \
    }

DEFINE_STAT(stat)
DEFINE_STAT(lstat)
DEFINE_FSTATAT(fstatat)
DEFINE_XSTAT(__xstat)
DEFINE_XSTAT(__lxstat)
DEFINE_XSTAT(__xstat64)
DEFINE_XSTAT(__lxstat64)
DEFINE_FXSTATAT(__fxstatat)
DEFINE_FXSTATAT(__fxstatat64)
DEFINE_ACCESS(access)
DEFINE_ACCESS(euidaccess)
DEFINE_ACCESS(eaccess)

/* The headers declare these with struct stat64. */
EXPORT int stat64(const char *restrict path, struct stat64 *restrict out)
{
    NEXT(stat_fn, "stat64")
    const int before = errno;
    return describe(function(path, (struct stat *)out), before, path, (struct stat *)out);
}

EXPORT int lstat64(const char *restrict path, struct stat64 *restrict out)
{
    NEXT(stat_fn, "lstat64")
    const int before = errno;
    return describe(function(path, (struct stat *)out), before, path, (struct stat *)out);
}

EXPORT int fstatat64(int folder, const char *restrict path, struct stat64 *restrict out, int flags)
{
    NEXT(fstatat_fn, "fstatat64")
    const int before = errno;
    return describe(function(folder, path, (struct stat *)out, flags), before, path, (struct stat *)out);
}

EXPORT int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict out)
{
    NEXT(statx_fn, "statx")
    const int before = errno;
    return describe_extended(function(folder, path, flags, mask, out), before, path, out);
}

EXPORT int faccessat(int folder, const char *path, int mode, int flags)
{
    NEXT(faccessat_fn, "faccessat")
    const int before = errno;
    return permit(function(folder, path, mode, flags), before, path, mode);
}
