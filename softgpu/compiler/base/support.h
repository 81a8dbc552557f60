/*
 * support.h - what every stage of the compiler uses: an arena, string slices, and errors that end a
 * compilation.
 *
 * A compilation is one call of sg_program_create or sg_program_code on the caller's thread. Everything it
 * builds lies in an arena. An error writes one message to the log and jumps back to the entry point, which
 * destroys the arena: stages therefore hold nothing outside of arenas (code generation, which holds LLVM
 * objects, reports them to its caller in the same way and lets it dispose of them).
 */
#ifndef SG_COMPILER_BASE_SUPPORT_H
#define SG_COMPILER_BASE_SUPPORT_H

#include "softgpu/compiler/base/status.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

/** A piece of text that is not NUL-terminated. */
struct sg_slice {
    const char *data;
    uint32_t size;
};

/** Whether it is exactly `text`. */
bool sg_slice_is(struct sg_slice slice, const char *text);

/** Where errors of one compilation go. */
struct sg_diagnostics {
    struct sg_text *log; /* may be NULL */
    enum sg_compile_status status;
    jmp_buf escape;
};

/** Appends to a text; out of memory leaves the text as it is. */
void sg_text_append(struct sg_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Writes "ptx:LINE: message" (without the place if line is 0) and jumps to diagnostics->escape. */
_Noreturn void sg_fail(struct sg_diagnostics *diagnostics, enum sg_compile_status status, uint32_t line,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

struct sg_arena_chunk;
struct sg_arena {
    struct sg_arena_chunk *chunks;
    struct sg_diagnostics *diagnostics; /* told when memory runs out */
};

/** Zeroed memory, 16-byte aligned, that lives as long as the arena. */
void *sg_arena_alloc(struct sg_arena *arena, size_t size);
char *sg_arena_string(struct sg_arena *arena, struct sg_slice slice);
void sg_arena_fini(struct sg_arena *arena);

#define SG_NEW(arena, type)              ((type *)sg_arena_alloc((arena), sizeof(type)))
#define SG_NEW_ARRAY(arena, type, count) ((type *)sg_arena_alloc((arena), sizeof(type) * (size_t)(count)))

/** Makes room for one more element in an array that lives in the arena; doubles, keeps the old elements. */
void *sg_arena_grow(struct sg_arena *arena, void *array, uint32_t count, uint32_t *capacity, size_t element);

#define SG_PUSH(arena, array, count, capacity)                                                               \
    ((array) = sg_arena_grow((arena), (array), (count), &(capacity), sizeof(*(array))), &(array)[(count)++])

/** Names to pointers. */
struct sg_map_entry {
    struct sg_slice key;
    void *value;
};
struct sg_map {
    struct sg_map_entry *entries;
    uint32_t count, capacity; /* a power of two */
};
/** NULL: there is none, also of a zeroed map. */
void *sg_map_get(const struct sg_map *map, struct sg_slice key);
/** Adds or replaces. */
void sg_map_put(struct sg_map *map, struct sg_arena *arena, struct sg_slice key, void *value);

#endif
