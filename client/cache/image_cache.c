/*
 * image_cache.c - see image_cache.h. Everything in memory is only ever added to, under one lock; files are
 * journal.h's.
 */
#include "client/cache/image_cache.h"

#include "client/cache/journal.h"
#include "client/core/device_list.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "common/base/hash_table.h"
#include "common/sync/scoped_lock.h"
#include "proto/memory_level.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum record_type { RECORD_LOADS = 1, RECORD_FUNCTION, RECORD_TAKEN, RECORD_VARIABLE, RECORD_MEMORY };

struct variable {
    struct variable *next;
    bool managed;
    char name[];
};

struct rg_cached_image {
    struct rg_cached_image *next;
    struct rg_journal records;
    const struct rg_session *session;
    struct rg_cached_image_name image;
    CUdevice device;
    bool loads;
    uint8_t memory;                 /* a level */
    struct rg_hash_table functions; /* by name */
    struct variable *variables, **last_variable;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_cached_image *all;

/* --- in memory: the lock is held ------------------------------------------------------------------------ */

static struct rg_cached_function *find_function(struct rg_cached_image *cached, const char *name)
{
    struct rg_hash_link *at = rg_hash_table_first(&cached->functions, rg_hash_text(name));
    while (at && strcmp(((struct rg_cached_function *)at)->name, name) != 0)
        at = rg_hash_table_next(at);
    return (struct rg_cached_function *)at;
}

/* False: it was there already, or there is no memory. */
static bool add_function(struct rg_cached_image *cached, const char *name, const void *answer, size_t size)
{
    const size_t length = strlen(name) + 1;
    if (find_function(cached, name))
        return false;
    struct rg_cached_function *function = malloc(sizeof *function + length + size);
    if (!function)
        return false;
    *function = (struct rg_cached_function){.size = size, .answer = (unsigned char *)function->name + length};
    memcpy(function->name, name, length);
    memcpy(function->answer, answer, size);
    rg_hash_table_add(&cached->functions, &function->link, rg_hash_text(name));
    return true;
}

static bool add_variable(struct rg_cached_image *cached, const char *name, bool managed)
{
    for (const struct variable *at = cached->variables; at; at = at->next)
        if (at->managed == managed && strcmp(at->name, name) == 0)
            return false;
    const size_t length = strlen(name) + 1;
    struct variable *variable = malloc(sizeof *variable + length);
    if (!variable)
        return false;
    *variable = (struct variable){.managed = managed};
    memcpy(variable->name, name, length);
    *cached->last_variable = variable;
    cached->last_variable = &variable->next;
    return true;
}

/* Whether an answer has attributes: the driver may have been not to load the function for them. */
static bool has_attributes(const void *answer, size_t size)
{
    struct rg_function_info info = {0};
    if (size >= sizeof info)
        memcpy(&info, answer, sizeof info);
    return info.known & ~RG_FUNCTION_UNLOADED;
}

/* What is read of a function that was read before, without attributes. */
static void improve_function(struct rg_cached_image *cached, const char *name, const void *answer,
                             size_t size)
{
    struct rg_cached_function *function = find_function(cached, name);
    if (function && function->size == size && !has_attributes(function->answer, size))
        memcpy(function->answer, answer, size);
}

static void drop_function(struct rg_hash_link *function)
{
    free(function);
}

static void forget(struct rg_cached_image *cached)
{
    rg_hash_table_clear(&cached->functions, drop_function);
    while (cached->variables) {
        struct variable *variable = cached->variables;
        cached->variables = variable->next;
        free(variable);
    }
    cached->last_variable = &cached->variables;
    cached->loads = false;
    cached->memory = 0;
}

static bool take_record(void *user, const struct rg_journal_record *record)
{
    struct rg_cached_image *cached = user;
    struct rg_cached_function *function;
    switch (record->type) {
    case RECORD_LOADS:
        cached->loads = true;
        return true;
    case RECORD_FUNCTION:
        if (add_function(cached, record->name, record->data, record->size))
            find_function(cached, record->name)->kept = true;
        else
            improve_function(cached, record->name, record->data, record->size);
        return true;
    case RECORD_TAKEN:
        function = find_function(cached, record->name);
        if (function)
            function->taken = function->taken_kept = true;
        return true;
    case RECORD_VARIABLE:
        (void)add_variable(cached, record->name, record->flags & 1);
        return true;
    case RECORD_MEMORY:
        if (record->flags > cached->memory && record->flags <= RG_MEMORY_LEVEL_MASK)
            cached->memory = (uint8_t)record->flags;
        return true;
    default:
        return false;
    }
}

/* Adds the function's answer to the file, as it will be when it is asked for again. The lock is held. */
static void write_function(struct rg_cached_image *cached, const struct rg_cached_function *function,
                           const void *answer)
{
    struct rg_function_info info;
    unsigned char *copy = function->size >= sizeof info ? malloc(function->size) : NULL;
    if (!copy)
        return;
    memcpy(copy, answer, function->size);
    memcpy(&info, copy, sizeof info);
    info.known &= ~RG_FUNCTION_UNLOADED;
    memcpy(copy, &info, sizeof info);
    rg_journal_add(&cached->records, RECORD_FUNCTION, 0, function->name, copy, function->size);
    free(copy);
}

/* Puts what is known of a function into the file, as far as that is not there. The lock is held. */
static void keep_function(struct rg_cached_image *cached, struct rg_cached_function *function, bool taken)
{
    if (!function->kept)
        write_function(cached, function, function->answer);
    function->kept = true;
    if (taken && !function->taken_kept)
        rg_journal_add(&cached->records, RECORD_TAKEN, 0, function->name, NULL, 0);
    function->taken_kept |= taken;
}

/* --- the interface -------------------------------------------------------------------------------------- */

/* The entry with that name, read if it is new. */
static struct rg_cached_image *entry_of(const struct rg_session *session, CUdevice device,
                                        const uint8_t name[RG_DIGEST_BYTES],
                                        const struct rg_cached_image_name *image)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_cached_image *cached = all;
    while (cached && (cached->session != session || memcmp(cached->records.name, name, RG_DIGEST_BYTES) != 0))
        cached = cached->next;
    if (!cached && (cached = calloc(1, sizeof *cached)) != NULL) {
        *cached =
            (struct rg_cached_image){.next = all, .session = session, .device = device, .image = *image};
        cached->records.cache = rg_journal_disk_cache();
        memcpy(cached->records.name, name, RG_DIGEST_BYTES);
        cached->last_variable = &cached->variables;
        if (!rg_journal_read(&cached->records, take_record, cached))
            forget(cached);
        all = cached;
    }
    return cached;
}

static bool usable(const struct rg_session *session)
{
    static const uint8_t none[RG_DIGEST_SIZE];
    return rg_optimise[RG_OPT_IMAGE_CACHE] && memcmp(session->hello.answers, none, sizeof none) != 0;
}

struct rg_cached_image *rg_image_cache_find(enum rg_kind kind, struct rg_image_view *image,
                                            const struct rg_jit *jit)
{
    const struct rg_session *session = rg_session_current();
    const CUdevice here = rg_device_current_or_first();
    if (!usable(session))
        return NULL;
    const uint32_t numbers[] = {3 /* raised when records change */, (uint32_t)kind,
                                (uint32_t)rg_device_there(session, here)};
    const struct rg_digest_part parts[] = {{session->hello.answers, sizeof session->hello.answers},
                                           {rg_api_digest, sizeof rg_api_digest},
                                           {numbers, sizeof numbers},
                                           {rg_image_digest(image), sizeof(struct rg_digest)},
                                           {image->offsets, image->n_parts * sizeof *image->offsets},
                                           {jit->options, jit->count * sizeof *jit->options},
                                           {jit->values, jit->count * sizeof *jit->values}};
    const struct rg_digest name = rg_digest_of(parts, sizeof parts / sizeof *parts);
    struct rg_cached_image_name of = {.kind = (uint32_t)kind,
                                      .plain = !image->n_parts && !jit->count,
                                      .digest = *rg_image_digest(image),
                                      .size = image->size};
    memcpy(of.name, name.bytes, sizeof of.name);
    return entry_of(session, here, name.bytes, &of);
}

struct rg_cached_image *rg_image_cache_find_named(const struct rg_cached_image_name *image)
{
    const struct rg_session *session = rg_session_current();
    return usable(session) ? entry_of(session, rg_device_current_or_first(), image->name, image) : NULL;
}

const struct rg_cached_image_name *rg_image_cache_name(const struct rg_cached_image *cached)
{
    return &cached->image;
}

bool rg_image_cache_here(const struct rg_cached_image *cached)
{
    return rg_session_current() == cached->session && rg_device_current_or_first() == cached->device;
}

void rg_image_cache_drop(struct rg_cached_image *cached)
{
    RG_SCOPED_LOCK(&lock);
    cached->loads = false; /* the memory stays: answers have been handed out */
    free(cached->functions.buckets);
    cached->functions = (struct rg_hash_table){0};
    cached->variables = NULL;
    cached->last_variable = &cached->variables;
    rg_journal_remove(&cached->records);
}

bool rg_image_cache_loads(const struct rg_cached_image *cached)
{
    RG_SCOPED_LOCK(&lock);
    return cached->loads;
}

void rg_image_cache_note_load(struct rg_cached_image *cached)
{
    RG_SCOPED_LOCK(&lock);
    if (!cached->loads)
        rg_journal_add(&cached->records, RECORD_LOADS, 0, NULL, NULL, 0);
    cached->loads = true;
}

unsigned rg_image_cache_memory(const struct rg_cached_image *cached)
{
    RG_SCOPED_LOCK(&lock);
    return cached->memory;
}

void rg_image_cache_note_memory(struct rg_cached_image *cached, unsigned level)
{
    RG_SCOPED_LOCK(&lock);
    if (level <= cached->memory)
        return;
    rg_journal_add(&cached->records, RECORD_MEMORY, level, NULL, NULL, 0);
    cached->memory = (uint8_t)level;
}

const struct rg_cached_function *rg_image_cache_function(struct rg_cached_image *cached, const char *name)
{
    RG_SCOPED_LOCK(&lock);
    return find_function(cached, name);
}

void rg_image_cache_note_function(struct rg_cached_image *cached, const char *name, const void *answer,
                                  size_t size)
{
    RG_SCOPED_LOCK(&lock);
    if (add_function(cached, name, answer, size))
        keep_function(cached, find_function(cached, name), false);
}

void rg_image_cache_note_attributes(struct rg_cached_image *cached, const struct rg_cached_function *known,
                                    const void *answer)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_cached_function *function = find_function(cached, known->name);
    if (function != known || function->improved || !function->kept ||
        has_attributes(known->answer, known->size) || !has_attributes(answer, known->size))
        return;
    function->improved = true;
    write_function(cached, function, answer);
}

void rg_image_cache_note_taken(struct rg_cached_image *cached, const char *name)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_cached_function *function = find_function(cached, name);
    if (function) {
        function->taken = true;
        keep_function(cached, function, true);
    }
}

void rg_image_cache_learn_function(struct rg_cached_image *cached, const char *name, bool taken,
                                   const void *answer, size_t size)
{
    RG_SCOPED_LOCK(&lock);
    (void)add_function(cached, name, answer, size);
    struct rg_cached_function *function = find_function(cached, name);
    if (function && taken)
        function->taken = true;
}

void rg_image_cache_used(struct rg_cached_image *cached, const char *name, bool taken)
{
    RG_SCOPED_LOCK(&lock);
    struct rg_cached_function *function = find_function(cached, name);
    if (function)
        keep_function(cached, function, taken);
}

const char *rg_image_cache_variable(struct rg_cached_image *cached, unsigned index, bool *managed)
{
    RG_SCOPED_LOCK(&lock);
    const struct variable *variable = cached->variables;
    while (variable && index--)
        variable = variable->next;
    if (variable)
        *managed = variable->managed;
    return variable ? variable->name : NULL;
}

void rg_image_cache_note_variable(struct rg_cached_image *cached, const char *name, bool managed)
{
    RG_SCOPED_LOCK(&lock);
    if (add_variable(cached, name, managed))
        rg_journal_add(&cached->records, RECORD_VARIABLE, managed, name, NULL, 0);
}
