/* output_file.c - see output_file.h. */
#include "client/profile/output_file.h"

#include "common/base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Puts `wanted` with %p replaced into path, and `word` in front of the ending if it is not empty. */
static bool name_file(const char *wanted, const char *word, char path[PATH_MAX])
{
    const char *mark = strstr(wanted, "%p");
    char number[16], name[PATH_MAX];
    snprintf(number, sizeof number, "%d", (int)getpid());
    int size = mark ? snprintf(name, sizeof name, "%.*s%s%s", (int)(mark - wanted), wanted, number, mark + 2)
                    : snprintf(name, sizeof name, "%s", wanted);
    if (size < 0 || size >= (int)sizeof name)
        return false;
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    if (!dot || (slash && dot < slash))
        dot = name + size;
    size = snprintf(path, PATH_MAX, "%.*s%s%s%s", (int)(dot - name), name, *word ? "." : "", word, dot);
    return size > 0 && size < PATH_MAX;
}

static int create(const char *wanted, const char *word, char path[PATH_MAX])
{
    if (!name_file(wanted, word, path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}

int rg_profile_create_file(const char *wanted, char path[PATH_MAX])
{
    char word[32];
    int fd = create(wanted, "", path);
    struct stat there;
    if (fd < 0 && errno == EEXIST) {
        if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
            errno = ENOTBLK;
            return -1;
        }
        errno = EEXIST;
    }
    if (fd < 0 && errno == EEXIST && !strstr(wanted, "%p")) {
        snprintf(word, sizeof word, "%d", (int)getpid());
        fd = create(wanted, word, path);
    }
    for (int i = 2; fd < 0 && errno == EEXIST && i < 1000; i++) {
        if (strstr(wanted, "%p"))
            snprintf(word, sizeof word, "%d", i);
        else
            snprintf(word, sizeof word, "%d.%d", (int)getpid(), i);
        fd = create(wanted, word, path);
    }
    return rg_descriptor_move_up(fd);
}

const char *rg_profile_file_error(int error)
{
    return error == ENOTBLK ? "what is there is not a regular file" : strerror(error);
}
