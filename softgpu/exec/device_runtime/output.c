/*
 * output.c - the FIFO of device printf and assertion messages.
 *
 * Messages are kept as (length, text) records in a ring of limited size; where it is full the oldest are
 * dropped, as a GPU's FIFO overwrites them. A flush hands the text of printf to the writer in one piece, and then that of
 * assertions, which is for standard error (CUDA's programming guide), outside the FIFO's lock, so that kernels go on
 * printing meanwhile; flushes are one at a time, which keeps the order.
 *
 * Memory for the ring that cannot be had drops messages, with one warning. Any thread.
 */
#include "softgpu/exec/device_runtime/output.h"

#include "common/base/log.h"
#include "common/sync/scoped_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOR_ERRORS    (1u << 31) /* in a record's length */
#define LIMIT_DEFAULT (1u << 20) /* bytes, as CU_LIMIT_PRINTF_FIFO_SIZE */

static pthread_mutex_t flush_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before fifo.lock */
static struct {
    pthread_mutex_t lock;
    char *data;
    size_t capacity, limit; /* the ring is made with `limit` bytes when first used */
    size_t first, used;     /* of the oldest record; bytes of all records */
    void (*write)(void *user, const char *text, size_t size);
    void *user;
} fifo = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = LIMIT_DEFAULT};

static void write_stdout(void *user, const char *text, size_t size)
{
    (void)user;
    fwrite(text, 1, size, stdout);
    fflush(stdout);
}

static void write_stderr(void *user, const char *text, size_t size)
{
    (void)user;
    fwrite(text, 1, size, stderr);
}

/* The ring, byte-wise: at most two pieces each. */
static void ring_put(size_t position, const void *from, size_t size)
{
    size_t at = position % fifo.capacity, part = fifo.capacity - at < size ? fifo.capacity - at : size;
    memcpy(fifo.data + at, from, part);
    memcpy(fifo.data, (const char *)from + part, size - part);
}

static void ring_get(size_t position, void *to, size_t size)
{
    size_t at = position % fifo.capacity, part = fifo.capacity - at < size ? fifo.capacity - at : size;
    memcpy(to, fifo.data + at, part);
    memcpy((char *)to + part, fifo.data, size - part);
}

static uint32_t drop_oldest(void)
{
    uint32_t size;
    ring_get(fifo.first, &size, sizeof(size));
    size &= ~FOR_ERRORS;
    fifo.first = (fifo.first + sizeof(size) + size) % fifo.capacity;
    fifo.used -= sizeof(size) + size;
    return size;
}

void sg_output_append(const char *text, size_t size, bool error)
{
    static bool warned;
    const uint32_t length = (uint32_t)size | (error ? FOR_ERRORS : 0);

    if (!size)
        return;
    RG_SCOPED_LOCK(&fifo.lock);
    if (!fifo.data) {
        fifo.data = malloc(fifo.limit);
        fifo.capacity = fifo.data ? fifo.limit : 0;
        fifo.first = fifo.used = 0;
    }
    if (size + sizeof(length) <= fifo.capacity) {
        while (fifo.used + sizeof(length) + size > fifo.capacity)
            drop_oldest();
        ring_put(fifo.first + fifo.used, &length, sizeof(length));
        ring_put(fifo.first + fifo.used + sizeof(length), text, size);
        fifo.used += sizeof(length) + size;
    } else if (!warned) {
        warned = true;
        rg_warn("device printf: a message of %zu bytes does not fit into the FIFO of %zu and is dropped",
                size, fifo.capacity);
    }
}

/* Takes all records out, the text of each kind to its place. The lock is held. */
static void empty(char *text, size_t *size, char *errors, size_t *n_errors)
{
    while (fifo.used) {
        uint32_t length;
        ring_get(fifo.first, &length, sizeof(length));
        const bool error = length & FOR_ERRORS;
        length &= ~FOR_ERRORS;
        ring_get(fifo.first + sizeof(length), error ? errors + *n_errors : text + *size, length);
        *(error ? n_errors : size) += length;
        drop_oldest();
    }
}

void sg_exec_flush_output(void)
{
    char *text = NULL, *errors = NULL;
    size_t size = 0, n_errors = 0;

    pthread_mutex_lock(&flush_lock);
    pthread_mutex_lock(&fifo.lock);
    void (*const write)(void *, const char *, size_t) = fifo.write;
    void *user = fifo.user;
    if (fifo.used && (text = malloc(fifo.used)) && (errors = malloc(fifo.used)))
        empty(text, &size, errors, &n_errors);
    pthread_mutex_unlock(&fifo.lock);
    if (size)
        (write ? write : write_stdout)(user, text, size);
    if (n_errors)
        (write ? write : write_stderr)(user, errors, n_errors);
    free(text);
    free(errors);
    pthread_mutex_unlock(&flush_lock);
}

void sg_exec_set_output(void (*write)(void *user, const char *text, size_t size), void *user)
{
    sg_exec_flush_output(); /* what was printed so far belongs to the writer so far */
    pthread_mutex_lock(&flush_lock);
    pthread_mutex_lock(&fifo.lock);
    fifo.write = write;
    fifo.user = user;
    pthread_mutex_unlock(&fifo.lock);
    pthread_mutex_unlock(&flush_lock);
}

void sg_exec_set_output_limit(uint64_t bytes)
{
    if (bytes < 4096)
        bytes = 4096;
    pthread_mutex_lock(&fifo.lock);
    const bool same = fifo.limit == bytes;
    pthread_mutex_unlock(&fifo.lock);
    if (same)
        return;
    sg_exec_flush_output();
    pthread_mutex_lock(&fifo.lock);
    free(fifo.data);
    fifo.data = NULL;
    fifo.capacity = fifo.first = fifo.used = 0;
    fifo.limit = bytes;
    pthread_mutex_unlock(&fifo.lock);
}
