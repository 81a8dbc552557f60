/* stream_word.c - see stream_word.h. */
#include "server/transfer/stream_word.h"

#include "common/sync/scoped_lock.h"
#include "generated/server/driver.h"
#include "server/modules.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u
#define FREE UINT32_MAX /* the word of a cell that nobody has */

/* As the device sees it, the word. */
struct rg_stream_cell {
    _Atomic uint32_t word;
    uint32_t passed; /* waits that host functions have ended; theirs, one after another */
};

#define CELLS (PAGE / sizeof(struct rg_stream_cell))

struct page {
    struct page *next;
    struct rg_stream_cell *cells;
    CUdeviceptr address;                     /* 0: the device cannot reach it */
    const struct rg_worker_context *context; /* NULL: it has ended */
    size_t last;                             /* the cell that was given out last */
};

struct words {
    pthread_mutex_t lock;
    struct page *pages;
};

static struct words *words_of(struct rg_worker *worker)
{
    return worker->state[RG_MODULE_STREAM_WORDS];
}

/* --- taking ----------------------------------------------------------------------------------------------- */

/* Where the device finds the memory; 0: nowhere. */
static CUdeviceptr map(void *memory)
{
    CUdeviceptr address = 0;
    if (!rg_driver_has(cuStreamWaitValue32_v2) || !rg_driver_has(cuStreamWriteValue32_v2) ||
        rg_driver.cuMemHostRegister_v2(memory, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS)
        return 0;
    if (rg_driver.cuMemHostGetDevicePointer_v2(&address, memory, 0) == CUDA_SUCCESS)
        return address;
    (void)rg_driver.cuMemHostUnregister(memory);
    return 0;
}

static struct page *make(const struct rg_worker_context *context)
{
    struct page *page = calloc(1, sizeof *page);
    if (!page)
        return NULL;
    void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        free(page);
        return NULL;
    }
    page->cells = memory;
    page->context = context;
    for (size_t i = 0; i < CELLS; i++)
        atomic_init(&page->cells[i].word, FREE);
    page->address = map(memory);
    return page;
}

static bool take_from(struct page *page, struct rg_stream_word *out)
{
    for (size_t i = 1; i <= CELLS; i++) {
        const size_t at = (page->last + i) % CELLS;
        struct rg_stream_cell *cell = &page->cells[at];
        if (atomic_load(&cell->word) != FREE)
            continue;
        cell->passed = 0;
        atomic_store(&cell->word, 0);
        page->last = at;
        out->cell = cell;
        out->address = page->address ? page->address + at * sizeof *cell : 0;
        return true;
    }
    return false;
}

CUresult rg_stream_word_take(struct rg_worker *worker, struct rg_worker_context *context,
                             struct rg_stream_word *out)
{
    struct words *words = words_of(worker);
    {
        RG_SCOPED_LOCK(&words->lock);
        for (struct page *page = words->pages; page; page = page->next)
            if (page->context == context && take_from(page, out))
                return CUDA_SUCCESS;
    }
    struct page *page = make(context);
    if (!page)
        return CUDA_ERROR_OUT_OF_MEMORY;
    RG_SCOPED_LOCK(&words->lock);
    page->next = words->pages;
    words->pages = page;
    return take_from(page, out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* --- waiting ---------------------------------------------------------------------------------------------- */

/* Whoever waits on the processor sleeps until the word changes: host functions, and devices that are none. */
static void futex(struct rg_stream_cell *cell, int operation, uint32_t value)
{
    (void)syscall(SYS_futex, (void *)&cell->word, operation, value, NULL, NULL, 0);
}

static void CUDA_CB wait_for_next(void *user)
{
    struct rg_stream_cell *cell = user;
    cell->passed++;
    for (uint32_t now; (int32_t)((now = atomic_load(&cell->word)) - cell->passed) < 0;)
        futex(cell, FUTEX_WAIT_PRIVATE, now);
}

static void CUDA_CB free_cell(void *user)
{
    struct rg_stream_cell *cell = user;
    atomic_store(&cell->word, FREE);
}

CUresult rg_stream_word_await(const struct rg_stream_word *word, uint32_t count, CUstream stream)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (word->address)
        result = rg_driver.cuStreamWaitValue32_v2(stream, word->address, count, CU_STREAM_WAIT_VALUE_GEQ);
    return result == CUDA_ERROR_NOT_SUPPORTED ? rg_driver.cuLaunchHostFunc(stream, wait_for_next, word->cell)
                                              : result;
}

void rg_stream_word_set(const struct rg_stream_word *word, uint32_t count)
{
    if (!word->cell)
        return;
    uint32_t before = atomic_load(&word->cell->word);
    while (before < count)
        if (atomic_compare_exchange_weak(&word->cell->word, &before, count)) {
            futex(word->cell, FUTEX_WAKE_PRIVATE, INT_MAX);
            return;
        }
}

void rg_stream_word_give(struct rg_stream_word *word)
{
    if (word->cell)
        free_cell(word->cell);
    word->cell = NULL;
}

CUresult rg_stream_word_return(const struct rg_stream_word *word, CUstream stream)
{
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (word->address)
        result = rg_driver.cuStreamWriteValue32_v2(stream, word->address, FREE, 0);
    return result == CUDA_ERROR_NOT_SUPPORTED ? rg_driver.cuLaunchHostFunc(stream, free_cell, word->cell)
                                              : result;
}

/* --- the end ---------------------------------------------------------------------------------------------- */

/* No stream of it waits any more. Words may still be set, of functions of the client that will never be waited for. */
static void drop_context(struct rg_worker *worker, struct rg_worker_context *context)
{
    struct words *words = words_of(worker);
    RG_SCOPED_LOCK(&words->lock);
    for (struct page *page = words->pages; page; page = page->next) {
        if (page->context != context)
            continue;
        page->context = NULL;
        if (page->address)
            (void)rg_driver.cuMemHostUnregister(page->cells);
    }
}

static void fini(struct rg_worker *worker)
{
    for (struct page *page = words_of(worker)->pages, *next; page; page = next) {
        next = page->next;
        munmap(page->cells, PAGE);
        free(page);
    }
}

const struct rg_server_module rg_stream_words_module = {
    .size = sizeof(struct words),
    .locked = true,
    .fini = fini,
    .drop_context = drop_context,
};
