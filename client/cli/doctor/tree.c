/* tree.c - see tree.h. */
#include "client/cli/doctor/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* `full` becomes root and path; "" if that is too long. */
#define MAKE_PATH(full)                                                                                      \
    char full[PATH_MAX];                                                                                     \
    do {                                                                                                     \
        va_list arguments;                                                                                   \
        va_start(arguments, path);                                                                           \
        make_path(doctor, full, path, arguments);                                                            \
        va_end(arguments);                                                                                   \
    } while (0)

static void __attribute__((format(printf, 3, 0)))
make_path(const struct rg_doctor *doctor, char *full, const char *path, va_list arguments)
{
    size_t used = (size_t)snprintf(full, PATH_MAX, "%s", doctor->root);
    if (used >= PATH_MAX ||
        vsnprintf(full + used, PATH_MAX - used, path, arguments) >= (int)(PATH_MAX - used))
        full[0] = '\0';
}

static size_t read_file(const char *full, char *out, size_t size)
{
    size_t used = 0;
    ssize_t got = 0;
    int fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd >= 0 && used + 1 < size && (got = read(fd, out + used, size - 1 - used)) > 0)
        used += (size_t)got;
    if (fd >= 0)
        close(fd);
    out[used] = '\0';
    return used;
}

size_t rg_tree_read(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
{
    MAKE_PATH(full);
    return read_file(full, out, size);
}

bool rg_tree_line(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
{
    MAKE_PATH(full);
    size_t got = read_file(full, out, size);
    out[strcspn(out, "\n")] = '\0';
    for (size_t end = strlen(out); end > 0 && out[end - 1] == ' '; end--)
        out[end - 1] = '\0';
    return got > 0;
}

long rg_tree_number(const struct rg_doctor *doctor, long other, const char *path, ...)
{
    char text[64], *end;
    MAKE_PATH(full);
    if (read_file(full, text, sizeof text) == 0)
        return other;
    long number = strtol(text, &end, 0);
    return end == text ? other : number;
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(a, b);
}

bool rg_tree_list(const struct rg_doctor *doctor, struct rg_tree_names *out, const char *path, ...)
{
    MAKE_PATH(full);
    out->n = 0;
    DIR *folder = *full ? opendir(full) : NULL;
    if (!folder)
        return false;
    for (const struct dirent *entry; out->n < RG_TREE_NAMES && (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < sizeof out->names[0])
            strcpy(out->names[out->n++], entry->d_name);
    closedir(folder);
    qsort(out->names, out->n, sizeof out->names[0], by_version);
    return true;
}

bool rg_tree_stat(const struct rg_doctor *doctor, struct stat *out, const char *path, ...)
{
    MAKE_PATH(full);
    return *full && stat(full, out) == 0;
}

bool rg_tree_exists(const struct rg_doctor *doctor, const char *path, ...)
{
    struct stat about;
    MAKE_PATH(full);
    return *full && lstat(full, &about) == 0;
}

bool rg_tree_link(const struct rg_doctor *doctor, char *out, size_t size, const char *path, ...)
{
    char target[PATH_MAX];
    MAKE_PATH(full);
    ssize_t got = readlink(full, target, sizeof target - 1);
    target[got > 0 ? got : 0] = '\0';
    const char *last = strrchr(target, '/');
    snprintf(out, size, "%s", last ? last + 1 : target);
    return got > 0;
}
