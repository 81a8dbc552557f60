/* board.c - see board.h. */
#include "server/daemon/shared/board.h"

#include "common/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

static size_t size_of(uint32_t max_sessions)
{
    return sizeof(struct rg_board) + (size_t)max_sessions * sizeof(struct rg_session_info);
}

/* The descriptor to give away, by which nobody can write or change the size. */
static int seal(int file)
{
    char path[32];
    if (fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) == 0)
        return file;
    /* a kernel that has not the last of these: a descriptor for reading, which another user cannot open again for more */
    (void)fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    (void)fchmod(file, 0400);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const int readable = open(path, O_RDONLY | O_CLOEXEC);
    if (readable < 0)
        return file;
    close(file);
    return readable;
}

struct rg_board *rg_board_create(uint32_t max_sessions, int *fd)
{
    const size_t size = size_of(max_sessions);
    int file = memfd_create("remote-gpu-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct rg_board *board = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)size) == 0)
        board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (board == MAP_FAILED) {
        rg_error("no memory for the list of sessions: %s",
                 errno == EFBIG ? "it counts as a file, which may not be so large here (ulimit -f)"
                                : strerror(errno));
        if (file >= 0)
            close(file);
        return NULL;
    }
    board->max_sessions = max_sessions;
    *fd = seal(file);
    return board;
}

void rg_board_begin(struct rg_board *board)
{
    const uint32_t now = atomic_load_explicit(&board->sequence, memory_order_relaxed);
    atomic_store_explicit(&board->sequence, now + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

void rg_board_end(struct rg_board *board)
{
    const uint32_t now = atomic_load_explicit(&board->sequence, memory_order_relaxed);
    atomic_store_explicit(&board->sequence, now + 1, memory_order_release);
}

const struct rg_board *rg_board_open(int fd)
{
    struct stat state;
    if (fstat(fd, &state) != 0 || (size_t)state.st_size < sizeof(struct rg_board))
        return NULL;
    struct rg_board *board = mmap(NULL, (size_t)state.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED || size_of(board->max_sessions) > (size_t)state.st_size)
        return NULL;
    return board;
}

/* The number before a copy; waits for a writer, who is quick. */
static uint32_t begin_read(const struct rg_board *board)
{
    uint32_t now;
    while ((now = atomic_load_explicit(&board->sequence, memory_order_acquire)) & 1)
        sched_yield();
    return now;
}

/* Whether what was copied since is of one state. */
static bool is_whole(const struct rg_board *board, uint32_t began)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&board->sequence, memory_order_relaxed) == began;
}

uint32_t rg_board_running(const struct rg_board *board)
{
    return *(const volatile uint32_t *)&board->n_sessions;
}

uint32_t rg_board_sessions(const struct rg_board *board, struct rg_session_info *out, uint32_t max)
{
    for (;;) {
        const uint32_t began = begin_read(board);
        uint32_t n = rg_board_running(board);
        if (n > max)
            n = max;
        if (n <= board->max_sessions)
            memcpy(out, board->sessions, n * sizeof *out);
        if (is_whole(board, began))
            return n;
    }
}

uint64_t rg_board_driver(const struct rg_board *board, struct rg_driver *out)
{
    for (;;) {
        const uint32_t began = begin_read(board);
        const uint64_t looked = board->looked_ns;
        memcpy(out, &board->driver, sizeof *out);
        if (is_whole(board, began))
            return looked;
    }
}
