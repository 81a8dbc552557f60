/*
 * support.c - arena, text, maps and errors for the compiler's stages. No state of its own; any thread.
 */
#include "softgpu/compiler/base/support.h"
#include "common/base/align.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sg_slice_is(struct sg_slice slice, const char *text)
{
    size_t size = strlen(text);
    return slice.size == size && memcmp(slice.data, text, size) == 0;
}

static bool slice_equal(struct sg_slice a, struct sg_slice b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

void sg_text_fini(struct sg_text *text)
{
    if (text == NULL)
        return;
    free(text->data);
    text->data = NULL;
    text->size = 0;
}

static void text_append_list(struct sg_text *text, const char *format, va_list arguments)
{
    va_list copy;
    va_copy(copy, arguments);
    int size = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    if (size < 0)
        return;
    char *data = realloc(text->data, text->size + (size_t)size + 1);
    if (data == NULL)
        return;
    vsnprintf(data + text->size, (size_t)size + 1, format, arguments);
    text->data = data;
    text->size += (size_t)size;
}

void sg_text_append(struct sg_text *text, const char *format, ...)
{
    if (text == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    text_append_list(text, format, arguments);
    va_end(arguments);
}

void sg_fail(struct sg_diagnostics *diagnostics, enum sg_compile_status status, uint32_t line,
             const char *format, ...)
{
    diagnostics->status = status;
    if (diagnostics->log != NULL) {
        if (line != 0)
            sg_text_append(diagnostics->log, "ptx:%u: ", line);
        va_list arguments;
        va_start(arguments, format);
        text_append_list(diagnostics->log, format, arguments);
        va_end(arguments);
        sg_text_append(diagnostics->log, "\n");
    }
    longjmp(diagnostics->escape, 1);
}

struct sg_arena_chunk {
    struct sg_arena_chunk *next;
    size_t used, size;
    _Alignas(16) unsigned char data[];
};

void *sg_arena_alloc(struct sg_arena *arena, size_t size)
{
    size = rg_align_up(size, 16);
    struct sg_arena_chunk *chunk = arena->chunks;
    if (chunk == NULL || chunk->size - chunk->used < size) {
        size_t room = size > 65536 ? size : 65536;
        chunk = calloc(1, sizeof(*chunk) + room);
        if (chunk == NULL)
            sg_fail(arena->diagnostics, SG_COMPILE_NO_MEMORY, 0, "out of memory");
        chunk->size = room;
        chunk->next = arena->chunks;
        arena->chunks = chunk;
    }
    void *memory = chunk->data + chunk->used;
    chunk->used += size;
    return memory;
}

char *sg_arena_string(struct sg_arena *arena, struct sg_slice slice)
{
    char *copy = sg_arena_alloc(arena, slice.size + 1u);
    memcpy(copy, slice.data, slice.size);
    return copy;
}

void *sg_arena_grow(struct sg_arena *arena, void *array, uint32_t count, uint32_t *capacity, size_t element)
{
    if (count < *capacity)
        return array;
    uint32_t room = *capacity == 0 ? 8 : *capacity * 2;
    void *bigger = sg_arena_alloc(arena, room * element);
    if (count > 0)
        memcpy(bigger, array, count * element);
    *capacity = room;
    return bigger;
}

void sg_arena_fini(struct sg_arena *arena)
{
    struct sg_arena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct sg_arena_chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    arena->chunks = NULL;
}

static uint32_t hash(struct sg_slice key)
{
    uint32_t value = 2166136261u;
    for (uint32_t i = 0; i < key.size; i++)
        value = (value ^ (unsigned char)key.data[i]) * 16777619u;
    return value;
}

static struct sg_map_entry *map_find(const struct sg_map *map, struct sg_slice key)
{
    uint32_t mask = map->capacity - 1;
    for (uint32_t i = hash(key) & mask;; i = (i + 1) & mask) {
        struct sg_map_entry *entry = &map->entries[i];
        if (entry->key.data == NULL || slice_equal(entry->key, key))
            return entry;
    }
}

void *sg_map_get(const struct sg_map *map, struct sg_slice key)
{
    return map->capacity == 0 ? NULL : map_find(map, key)->value;
}

void sg_map_put(struct sg_map *map, struct sg_arena *arena, struct sg_slice key, void *value)
{
    if (map->count * 2 >= map->capacity) {
        struct sg_map old = *map;
        map->capacity = old.capacity == 0 ? 16 : old.capacity * 2;
        map->entries = SG_NEW_ARRAY(arena, struct sg_map_entry, map->capacity);
        for (uint32_t i = 0; i < old.capacity; i++)
            if (old.entries[i].key.data != NULL)
                *map_find(map, old.entries[i].key) = old.entries[i];
    }
    struct sg_map_entry *entry = map_find(map, key);
    if (entry->key.data == NULL)
        map->count++;
    entry->key = key;
    entry->value = value;
}
