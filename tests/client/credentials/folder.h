/* folder.h - a folder of a test's own, and files in it. */
#ifndef RG_TESTS_CLIENT_CREDENTIALS_FOLDER_H
#define RG_TESTS_CLIENT_CREDENTIALS_FOLDER_H

#include "tests/temporary.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A path below the folder; valid until the fourth call after it. */
__attribute__((format(printf, 1, 2))) static inline const char *below(const char *format, ...)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    const int used = snprintf(path, PATH_MAX, "%s/", temporary_folder());
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path + used, (size_t)(PATH_MAX - used), format, arguments);
    va_end(arguments);
    return path;
}

static inline void write_file(const char *path, mode_t mode, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
    chmod(path, mode);
}

/* The three files, as join leaves them. */
static inline void write_three(const char *path)
{
    char name[PATH_MAX + 16];
    static const char *const names[] = {"ca.crt", "tls.crt", "tls.key"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%s", path, names[i]);
        write_file(name, 0600, "PEM\n");
    }
}

/* HOME, without credentials; nothing of the environment of whoever runs the tests. */
static inline void make_home(void)
{
    setenv("HOME", temporary_folder(), 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("REMOTE_GPU_CREDENTIALS");
    unsetenv("REMOTE_GPU_ALLOW_UNAUTHENTICATED");
    unsetenv("REMOTE_GPU_SERVER");
    mkdir(below(".config"), 0700);
    mkdir(below(".config/remote-gpu"), 0700);
    mkdir(below(".config/remote-gpu/servers"), 0700);
}

#endif
