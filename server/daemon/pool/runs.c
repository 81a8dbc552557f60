/* runs.c - see runs.h. */
#include "server/daemon/pool/runs.h"

#include "common/base/cleanup.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "server/identity/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "pool"

enum { NAME_SIZE = 17, TEXT_SIZE = 24, DIGITS = 16 };

/* A run that has died, and when it began. */
struct dead {
    uint64_t id;
    struct timespec began;
};

static void name_of(uint64_t id, char out[NAME_SIZE])
{
    snprintf(out, NAME_SIZE, "%016" PRIx64, id);
}

static void text_of(const struct stat *is, char out[TEXT_SIZE])
{
    snprintf(out, TEXT_SIZE, "%ju\n", (uintmax_t)is->st_ino);
}

/* Whether the run of a file has died. A file that is not what its run has written goes. */
static bool has_died(int folder, const char *name, struct timespec *began)
{
    RG_CLEANUP_FD const int file = openat(folder, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char expected[TEXT_SIZE], text[TEXT_SIZE] = "";
    struct stat is;
    if (file < 0 || fstat(file, &is) != 0 || !S_ISREG(is.st_mode) || flock(file, LOCK_EX | LOCK_NB) != 0)
        return false;
    text_of(&is, expected);
    *began = is.st_mtim;
    if (pread(file, text, sizeof text - 1, 0) == (ssize_t)strlen(expected) && strcmp(text, expected) == 0)
        return true;
    (void)unlinkat(folder, name, 0);
    return false;
}

static bool is_later(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec > other->tv_sec || (one->tv_sec == other->tv_sec && one->tv_nsec > other->tv_nsec);
}

/* The latest of them come first; one that has no room goes. */
static void insert(int folder, struct dead *list, uint32_t *n, uint32_t max, struct dead one)
{
    uint32_t place = *n;
    char name[NAME_SIZE];
    while (place > 0 && is_later(&one.began, &list[place - 1].began))
        place--;
    if (*n == max) {
        name_of(place < max ? list[max - 1].id : one.id, name);
        (void)unlinkat(folder, name, 0);
        if (place == max)
            return;
        --*n;
    }
    memmove(&list[place + 1], &list[place], (*n - place) * sizeof *list);
    list[place] = one;
    ++*n;
}

static enum rg_status find_dead(const struct rg_state *state, int folder, uint64_t *dead, uint32_t max,
                                uint32_t *found, char *why, size_t why_size)
{
    RG_CLEANUP_FREE struct dead *list = calloc(max, sizeof *list);
    char **names;
    size_t n;
    RG_TRY(rg_state_list(state, FOLDER, &names, &n, why, why_size));
    for (size_t i = 0; i < n && list; i++) {
        struct dead one;
        if (strlen(names[i]) != DIGITS || strspn(names[i], "0123456789abcdef") != DIGITS ||
            !has_died(folder, names[i], &one.began))
            continue;
        one.id = strtoull(names[i], NULL, 16);
        insert(folder, list, found, max, one);
    }
    rg_state_list_free(names, n);
    for (uint32_t i = 0; i < *found; i++)
        dead[i] = list[i].id;
    return list ? RG_OK : RG_ERR_NO_MEMORY;
}

/* Makes this run's file. Nobody else looks meanwhile, who would take it for a dead one's. -1: errno tells why. */
static int make_file(int folder, uint64_t id)
{
    char name[NAME_SIZE], text[TEXT_SIZE];
    struct stat is;
    name_of(id, name);
    const int file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return -1;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &is) == 0) {
        text_of(&is, text);
        if (rg_file_write(file, text, strlen(text)))
            return file;
    }
    const int error = errno;
    (void)unlinkat(folder, name, 0);
    close(file);
    errno = error;
    return -1;
}

static enum rg_status begin(struct rg_pool_runs *runs, struct rg_state *state, uint64_t id, uint64_t *dead,
                            uint32_t max, uint32_t *found, char *why, size_t why_size)
{
    RG_TRY(rg_state_lock(state, why, why_size));
    (void)mkdirat(state->folder, FOLDER, 0700); /* it may be there */
    runs->folder = openat(state->folder, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (runs->folder < 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "%s/" FOLDER " cannot be made or opened: %s", state->path,
                         strerror(errno));
    RG_TRY(find_dead(state, runs->folder, dead, max, found, why, why_size));
    runs->file = make_file(runs->folder, id);
    if (runs->file < 0)
        return RG_FAILED(RG_ERR_IO, why, why_size, "no file can be made in %s/" FOLDER ": %s", state->path,
                         strerror(errno));
    return RG_OK;
}

uint32_t rg_runs_begin(struct rg_pool_runs *runs, const char *state, uint64_t id, uint64_t *dead,
                       uint32_t max)
{
    struct rg_state open;
    char why[512] = "";
    uint32_t found = 0;
    *runs = (struct rg_pool_runs){.folder = -1, .file = -1};
    if (!state)
        return 0;
    enum rg_status status = rg_state_open(&open, state, true, why, sizeof why);
    if (status == RG_OK) {
        status = begin(runs, &open, id, dead, max, &found, why, sizeof why);
        rg_state_close(&open);
    }
    if (status != RG_OK)
        rg_warn("%s; a server that is started anew after a crash may be in its pool twice for some seconds",
                *why ? why : rg_status_string(status));
    return found;
}

void rg_runs_forget(const struct rg_pool_runs *runs, const uint64_t *dead, uint32_t n)
{
    for (uint32_t i = 0; i < n && runs->folder >= 0; i++) {
        char name[NAME_SIZE];
        name_of(dead[i], name);
        (void)unlinkat(runs->folder, name, 0);
    }
}

void rg_runs_end(struct rg_pool_runs *runs)
{
    if (runs->file >= 0)
        close(runs->file);
    if (runs->folder >= 0)
        close(runs->folder);
    runs->folder = runs->file = -1;
}
