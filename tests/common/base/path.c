/*
 * path.c - finding the installed tree from a program and from a library of it, wherever it lies and however
 * it was started.
 *
 *   common_path LIBRARY    LIBRARY: path of common_path_library.so
 *
 * The program puts copies of itself and of the library into trees in a temporary folder and runs them there;
 * a copy that is run as "find …" prints what it finds.
 */
#include "common/base/path.h"
#include "tests/temporary.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void shell(const char *command)
{
    if (system(command) != 0) {
        fprintf(stderr, "failed: %s\n", command);
        abort();
    }
}

static char root[PATH_MAX];

/* Runs `command` in the temporary folder and compares the one line it prints; $ in `expected` is the folder.
 */
static void expect_line(const char *command, const char *expected)
{
    char line[2 * PATH_MAX] = "", full[PATH_MAX + 256], wanted[2 * PATH_MAX];
    snprintf(full, sizeof full, "cd %s && %s", root, command);
    FILE *output = popen(full, "r");
    CHECK(output);
    CHECK(fgets(line, sizeof line, output));
    line[strcspn(line, "\n")] = '\0';
    CHECK(pclose(output) == 0);
    snprintf(wanted, sizeof wanted, "%s%s", expected[0] == '$' ? root : "", expected + (expected[0] == '$'));
    if (strcmp(line, wanted) != 0) {
        fprintf(stderr, "%s: got %s, expected %s\n", command, line, wanted);
        abort();
    }
}

typedef enum rg_status (*library_fn)(const char *, char *, size_t);

/* find-self | find-part NAME | find-program NAME | find-by LIBRARY NAME: from a library, after a change of
 * folder */
static int find(int argc, char **argv)
{
    char path[PATH_MAX] = "";
    enum rg_status status = RG_ERR_INVALID;
    if (strcmp(argv[1], "find-self") == 0) {
        status = rg_path_self(path, sizeof path);
    } else if (strcmp(argv[1], "find-part") == 0) {
        status = rg_path_library(argc > 2 ? argv[2] : "", path, sizeof path);
    } else if (strcmp(argv[1], "find-program") == 0) {
        status = rg_path_program(argv[2], path, sizeof path);
    } else if (strcmp(argv[1], "find-by") == 0) {
        void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        if (!library)
            fprintf(stderr, "%s\n", dlerror());
        CHECK(library);
        library_fn by_library = (library_fn)(uintptr_t)dlsym(library, "rg_test_path_library");
        CHECK(by_library && chdir("/") == 0);
        status = by_library(argv[3], path, sizeof path);
    }
    printf("%s\n", status == RG_OK ? path : rg_status_string(status));
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strncmp(argv[1], "find-", 5) == 0)
        return find(argc, argv);
    CHECK(argc == 2);
    unsetenv("REMOTE_GPU_LIBDIR");
    char self[PATH_MAX], command[8 * PATH_MAX];
    CHECK(rg_path_self(self, sizeof self) == RG_OK && self[0] == '/');
    CHECK(realpath(temporary_folder(), root));
    snprintf(command, sizeof command,
             "cd %s && mkdir -p p/bin p/lib/remote-gpu/soft other && cp %s p/bin/prog && cp %s "
             "p/lib/remote-gpu/worker && "
             "cp %s other/prog && cp %s p/lib/remote-gpu/core.so && cp %s p/lib/remote-gpu/soft/deep.so && "
             "cp %s other/stray.so && ln -s p/bin/prog link && ln -s p/lib/remote-gpu/core.so linked.so",
             root, self, self, self, argv[1], argv[1], argv[1]);
    shell(command);

    expect_line("p/bin/prog find-self", "$/p/bin/prog");
    expect_line("p/bin/prog find-part transport/tcp.so", "$/p/lib/remote-gpu/transport/tcp.so");
    expect_line("p/bin/prog find-part", "$/p/lib/remote-gpu");
    expect_line("./link find-part x", "$/p/lib/remote-gpu/x");
    expect_line("PATH=p/bin:$PATH prog find-part x", "$/p/lib/remote-gpu/x");
    expect_line("p/bin/prog find-program remote-gpud", "$/p/bin/remote-gpud");
    expect_line("p/lib/remote-gpu/worker find-part x", "$/p/lib/remote-gpu/x");
    expect_line("p/lib/remote-gpu/worker find-program y", "$/p/bin/y");
    expect_line("other/prog find-part x", "not found");
#ifndef RG_SANITIZED                                             /* the sanitizers need /proc */
    if (system("unshare -m umount -l /proc 2>/dev/null") == 0) { /* as root, and not in every container */
        expect_line("unshare -m sh -c 'umount -l /proc && p/bin/prog find-part x'", "$/p/lib/remote-gpu/x");
        expect_line("unshare -m sh -c 'umount -l /proc && PATH=p/bin:$PATH && prog find-part x'",
                    "$/p/lib/remote-gpu/x");
    }
#endif
    expect_line("REMOTE_GPU_LIBDIR=/some/where other/prog find-part x", "/some/where/x");

    /* from a library: the library's place counts, not the program's; also when it was named relatively */
    expect_line("other/prog find-by p/lib/remote-gpu/core.so x", "$/p/lib/remote-gpu/x");
    expect_line("other/prog find-by $PWD/p/lib/remote-gpu/core.so x", "$/p/lib/remote-gpu/x");
    expect_line("other/prog find-by ./linked.so x", "$/p/lib/remote-gpu/x");
    expect_line("other/prog find-by p/lib/remote-gpu/soft/deep.so x", "$/p/lib/remote-gpu/x");
    expect_line("p/bin/prog find-by other/stray.so x", "not found");

    char path[PATH_MAX];
    rg_path_set_library_dir("/named");
    CHECK(rg_path_library("x", path, sizeof path) == RG_OK && strcmp(path, "/named/x") == 0);
    CHECK(rg_path_library("x", path, 5) == RG_ERR_INVALID);
    CHECK(rg_path_program("y", path, sizeof path) == RG_ERR_NOT_FOUND);
    return 0;
}
