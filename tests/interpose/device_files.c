/*
 * device_files.c - asks for files by every function that device-files.so stands before: the driver's device files are there
 * or not, as the command line says (shown, hidden), and all else is as ever.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static unsigned wrong;

static void expect(bool condition, const char *function, const char *path)
{
    if (!condition) {
        printf("%s(%s): WRONG (errno %d)\n", function, path, errno);
        wrong++;
    }
}

typedef int xstat_fn(int version, const char *path, struct stat *out);
typedef int fxstatat_fn(int version, int folder, const char *path, struct stat *out, int flags);

/* What programs of an older libc call; the version is x86-64's, or that of all newer machines. */
#if defined(__x86_64__)
enum { STAT_VERSION = 1 };
#else
enum { STAT_VERSION = 0 };
#endif

/* The call number `which` for the file; false if there is no such call any more. */
static bool ask(unsigned which, const char *path, struct stat *out, int *result, const char **function)
{
    struct stat64 large;
    struct statx extended;
    switch (which) {
    case 0:
        *function = "stat", *result = stat(path, out);
        return true;
    case 1:
        *function = "lstat", *result = lstat(path, out);
        return true;
    case 2:
        *function = "fstatat", *result = fstatat(AT_FDCWD, path, out, 0);
        return true;
    case 3:
        *function = "stat64", *result = stat64(path, &large);
        break;
    case 4:
        *function = "lstat64", *result = lstat64(path, &large);
        break;
    case 5:
        *function = "fstatat64", *result = fstatat64(AT_FDCWD, path, &large, 0);
        break;
    case 6:
        *function = "statx", *result = statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended);
        out->st_mode = extended.stx_mode;
        out->st_rdev = makedev(extended.stx_rdev_major, extended.stx_rdev_minor);
        return true;
    default:
        return false;
    }
    memcpy(out, &large, sizeof *out);
    return true;
}

static bool ask_as_before(unsigned which, const char *path, struct stat *out, int *result,
                          const char **function)
{
    static const char *const names[] = {"__xstat",    "__lxstat",   "__xstat64",
                                        "__lxstat64", "__fxstatat", "__fxstatat64"};
    if (which >= sizeof names / sizeof names[0])
        return false;
    *function = names[which];
    void *found = dlsym(RTLD_DEFAULT, names[which]); /* only device-files.so has them for new programs */
    if (!found)
        *result = stat(path, out);
    else if (which < 4)
        *result = ((xstat_fn *)found)(STAT_VERSION, path, out);
    else
        *result = ((fxstatat_fn *)found)(STAT_VERSION, AT_FDCWD, path, out, 0);
    return true;
}

typedef bool ask_fn(unsigned which, const char *path, struct stat *out, int *result, const char **function);

static void device_file(ask_fn *call, const char *path, unsigned minor_number, bool shown)
{
    struct stat found;
    const char *function;
    int result;
    for (unsigned i = 0;; i++) {
        errno = E2BIG;
        memset(&found, 0xff, sizeof found);
        if (!call(i, path, &found, &result, &function))
            return;
        if (shown)
            expect(result == 0 && errno == E2BIG && S_ISCHR(found.st_mode) &&
                       (found.st_mode & 0777) == 0666 && major(found.st_rdev) == 195 &&
                       minor(found.st_rdev) == minor_number,
                   function, path);
        else
            expect(result == -1 && errno == ENOENT, function, path);
    }
}

static void permissions(const char *path, bool shown)
{
    expect(access(path, F_OK) == (shown ? 0 : -1), "access", path);
    expect(access(path, R_OK | W_OK) == (shown ? 0 : -1), "access", path);
    expect(euidaccess(path, R_OK) == (shown ? 0 : -1), "euidaccess", path);
    expect(eaccess(path, R_OK) == (shown ? 0 : -1), "eaccess", path);
    expect(faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == (shown ? 0 : -1), "faccessat", path);
    expect(access(path, X_OK) == -1 && errno == (shown ? EACCES : ENOENT), "access to execute", path);
    expect(open(path, O_RDWR) == -1 && errno == ENOENT, "open", path);
}

/* What has nothing to do with NVIDIA is as it was. */
static void others(ask_fn *call)
{
    static const char *const missing[] = {"/dev/nvidiactl2", "/dev/nvidia1", "/dev/no-such-file",
                                          "dev/nvidiactl", ""};
    struct stat found;
    const char *function;
    int result;
    for (unsigned i = 0; call(i, "/dev/null", &found, &result, &function); i++)
        expect(result == 0 && S_ISCHR(found.st_mode) && found.st_rdev == makedev(1, 3), function,
               "/dev/null");
    for (size_t k = 0; k < sizeof missing / sizeof missing[0]; k++)
        for (unsigned i = 0; call(i, missing[k], &found, &result, &function); i++)
            expect(result == -1 && errno == ENOENT, function, missing[k]);
    for (unsigned i = 0; call(i, "/dev/null/nvidiactl", &found, &result, &function); i++)
        expect(result == -1 && errno == ENOTDIR, function, "/dev/null/nvidiactl");
    expect(access("/dev/null", R_OK | W_OK) == 0, "access", "/dev/null");
    expect(access("/dev/no-such-file", F_OK) == -1 && errno == ENOENT, "access", "/dev/no-such-file");
}

int main(int argc, char **argv)
{
    const bool shown = argc == 2 && strcmp(argv[1], "shown") == 0;
    if (open("/dev/nvidiactl", O_RDONLY) >= 0 || errno != ENOENT) {
        printf("this machine has NVIDIA's device files\n");
        return 77;
    }
    ask_fn *const calls[] = {ask, ask_as_before};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        device_file(calls[i], "/dev/nvidiactl", 255, shown);
        device_file(calls[i], "/dev/nvidia0", 0, shown);
        others(calls[i]);
    }
    permissions("/dev/nvidiactl", shown);
    permissions("/dev/nvidia0", shown);
    printf("%s: %s\n", argc == 2 ? argv[1] : "", wrong ? "WRONG" : "ok");
    return wrong ? 1 : 0;
}
