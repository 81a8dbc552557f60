/*
 * heap.c - malloc and free of kernels.
 *
 * The heap is one mapping of the limit's size, in pages of 4 KiB. Requests up to 1 KiB are slots of a page
 * that holds one size only; larger ones are runs of pages. What is in use is noted outside of the mapping, so
 * a kernel that writes past its memory spoils its own data but not the allocator. A full heap gives NULL;
 * freeing what is not the start of an allocation is an illegal address.
 *
 * Any thread, under one lock that no kernel's fault can leave taken: nothing in here reads the kernel's
 * memory.
 */
#include "common/sync/scoped_lock.h"
#include "softgpu/exec/device_runtime/children.h"
#include "softgpu/exec/fault/fault.h"
#include "softgpu/guest.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE          4096u
#define SMALL_MAX     1024u
#define LIMIT_DEFAULT (8u << 20)
#define N_CLASSES     16u

static const uint16_t class_size[N_CLASSES] = {16,  32,  48,  64,  80,  96,  128, 160,
                                               192, 256, 336, 400, 512, 672, 816, 1024};

enum page_kind { PAGE_FREE, PAGE_SMALL, PAGE_FIRST, PAGE_REST };

struct page {
    uint8_t kind, class_index;
    uint16_t n_used;
    uint32_t run;          /* of PAGE_FIRST: how many pages */
    uint32_t next, before; /* PAGE_SMALL with room: neighbours in the class's list, index + 1 */
    uint64_t used[4];      /* PAGE_SMALL: a bit a slot */
};

static struct {
    pthread_mutex_t lock;
    uint64_t limit;
    unsigned char *base;
    struct page *pages;
    uint32_t n_pages, hint; /* hint: where the search for free pages begins */
    uint64_t live;
    uint32_t with_room[N_CLASSES]; /* first page of the class with a free slot, index + 1 */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER, .limit = LIMIT_DEFAULT};

static void unmap(void)
{
    if (heap.base) {
        munmap(heap.base, (size_t)heap.n_pages * PAGE);
        munmap(heap.pages, (size_t)heap.n_pages * sizeof(*heap.pages));
    }
    heap.base = NULL;
    heap.pages = NULL;
    heap.n_pages = heap.hint = 0;
    memset(heap.with_room, 0, sizeof(heap.with_room));
}

static bool map(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t n_pages = (heap.limit + PAGE - 1) / PAGE;
    if (heap.base)
        return true;
    if (!n_pages || n_pages > UINT32_MAX - 1)
        return false;
    void *base = sg_guest_map(n_pages * PAGE, PROT_READ | PROT_WRITE);
    void *pages = mmap(NULL, n_pages * sizeof(struct page), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (!base || pages == MAP_FAILED) {
        sg_guest_unmap(base, n_pages * PAGE);
        if (pages != MAP_FAILED)
            munmap(pages, n_pages * sizeof(struct page));
        return false;
    }
    heap.base = base;
    heap.pages = pages;
    heap.n_pages = (uint32_t)n_pages;
    return true;
}

/** The index of `count` free pages in a row within [from, to); `to` if there are none. */
static uint32_t find_free(uint32_t from, uint32_t to, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = from; i < to; i++) {
        if (heap.pages[i].kind != PAGE_FREE) {
            found = 0;
            if (heap.pages[i].kind == PAGE_FIRST)
                i += heap.pages[i].run - 1;
        } else if (++found == count) {
            return i + 1 - count;
        }
    }
    return to;
}

/** Takes `count` pages in a row; n_pages if there are none. */
static uint32_t take_pages(uint32_t count)
{
    uint32_t first = find_free(heap.hint, heap.n_pages, count);
    if (first == heap.n_pages && heap.hint)
        first = find_free(0, heap.n_pages, count);
    if (first < heap.n_pages)
        heap.hint = first + count < heap.n_pages ? first + count : 0;
    return first;
}

static void link_page(uint32_t index)
{
    struct page *page = &heap.pages[index];
    uint32_t *head = &heap.with_room[page->class_index];
    page->before = 0;
    page->next = *head;
    if (page->next)
        heap.pages[page->next - 1].before = index + 1;
    *head = index + 1;
}

static void unlink_page(uint32_t index)
{
    struct page *page = &heap.pages[index];
    if (page->before)
        heap.pages[page->before - 1].next = page->next;
    else
        heap.with_room[page->class_index] = page->next;
    if (page->next)
        heap.pages[page->next - 1].before = page->before;
}

static void *allocate_small(uint64_t size)
{
    uint8_t class_index = 0;
    while (class_size[class_index] < size)
        class_index++;
    uint32_t n_slots = PAGE / class_size[class_index];

    if (!heap.with_room[class_index]) {
        uint32_t index = take_pages(1);
        if (index == heap.n_pages)
            return NULL;
        heap.pages[index] = (struct page){.kind = PAGE_SMALL, .class_index = class_index};
        link_page(index);
    }
    uint32_t index = heap.with_room[class_index] - 1;
    struct page *page = &heap.pages[index];
    uint32_t word = 0;
    while (page->used[word] == UINT64_MAX)
        word++;
    uint32_t slot = word * 64 + (uint32_t)__builtin_ctzll(~page->used[word]);
    page->used[word] |= 1ull << slot % 64;
    if (++page->n_used == n_slots)
        unlink_page(index);
    return heap.base + (size_t)index * PAGE + (size_t)slot * class_size[class_index];
}

static void *allocate_pages(uint64_t size)
{
    if (size > (uint64_t)heap.n_pages * PAGE)
        return NULL;
    uint32_t count = (uint32_t)((size + PAGE - 1) / PAGE);
    uint32_t first = take_pages(count);
    if (first == heap.n_pages)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        heap.pages[first + i].kind = PAGE_REST;
    heap.pages[first].kind = PAGE_FIRST;
    heap.pages[first].run = count;
    return heap.base + (size_t)first * PAGE;
}

/** Gives memory back; false if `offset` is not the start of an allocation. */
static bool release(uint64_t offset)
{
    uint32_t index = (uint32_t)(offset / PAGE), within = (uint32_t)(offset % PAGE);
    struct page *page = &heap.pages[index];
    if (page->kind == PAGE_FIRST && within == 0) {
        for (uint32_t i = index, end = index + page->run; i < end; i++)
            heap.pages[i].kind = PAGE_FREE;
        return true;
    }
    if (page->kind != PAGE_SMALL || within % class_size[page->class_index])
        return false;
    uint32_t slot = within / class_size[page->class_index], n_slots = PAGE / class_size[page->class_index];
    if (!(page->used[slot / 64] >> slot % 64 & 1))
        return false;
    page->used[slot / 64] &= ~(1ull << slot % 64);
    if (page->n_used-- == n_slots)
        link_page(index);
    if (!page->n_used) {
        unlink_page(index);
        page->kind = PAGE_FREE;
    }
    return true;
}

void *sg_rt_malloc(struct sg_thread *t, uint64_t size)
{
    void *memory = NULL;
    (void)t;
    if (!size)
        return NULL;
    RG_SCOPED_LOCK(&heap.lock);
    if (map())
        memory = size <= SMALL_MAX ? allocate_small(size) : allocate_pages(size);
    heap.live += memory != NULL;
    return memory;
}

void sg_rt_free(struct sg_thread *t, void *pointer)
{
    if (!pointer)
        return;
    pthread_mutex_lock(&heap.lock);
    uint64_t offset = (uint64_t)((uintptr_t)pointer - (uintptr_t)heap.base);
    bool known = heap.base && offset < (uint64_t)heap.n_pages * PAGE && release(offset);
    heap.live -= known;
    pthread_mutex_unlock(&heap.lock);
    if (!known) {
        sg_grid_fault(t->block->grid, SG_FAULT_ILLEGAL_ADDRESS, t->block->ctaid, t->tid, (uintptr_t)pointer);
        sg_rt_fault(t, SG_FAULT_ILLEGAL_ADDRESS);
    }
}

bool sg_heap_holds(uint64_t address, uint64_t size)
{
    RG_SCOPED_LOCK(&heap.lock);
    uint64_t total = (uint64_t)heap.n_pages * PAGE, offset = address - (uintptr_t)heap.base;
    bool holds = heap.base && offset < total && size <= total - offset;
    return holds;
}

void sg_exec_set_heap_limit(uint64_t bytes)
{
    RG_SCOPED_LOCK(&heap.lock);
    heap.limit = bytes;
    if (!heap.live)
        unmap(); /* made anew with the new size at the next use; memory in use keeps the old heap */
}
