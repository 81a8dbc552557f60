/* journal.c - see journal.h. */
#include "client/cache/journal.h"

#include "common/base/limits.h"
#include "common/base/uncancelled.h"
#include "common/cache/digest.h"
#include "proto/codec.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_SIZE (64u << 20)

/* On disk; followed by `size` bytes behind a name with its NUL. */
struct record {
    uint64_t check; /* of all that follows */
    uint32_t type;
    uint32_t flags;
    uint32_t name_size, size;
};
_Static_assert(sizeof(struct record) == 24, "as in files");

static struct rg_disk_cache *cache;

static void open_cache(void)
{
    /* not on the stack, of which a program's thread may have little */
    static char all[PATH_MAX], folder[PATH_MAX + sizeof "/answers"];
    if (!rg_disk_cache_folder("REMOTE_GPU_CACHE", "", all, sizeof all))
        return;
    snprintf(folder, sizeof folder, "%s/answers", all);
    cache = rg_disk_cache_open(folder, CACHE_SIZE);
}

struct rg_disk_cache *rg_journal_disk_cache(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_cache);
    return cache;
}

static uint64_t check_of(const struct record *record, const void *payload)
{
    uint64_t check;
    const struct rg_digest_part parts[] = {
        {(const unsigned char *)record + sizeof record->check, sizeof *record - sizeof record->check},
        {payload, (size_t)record->name_size + record->size}};
    const struct rg_digest digest = rg_digest_of(parts, 2);
    memcpy(&check, digest.bytes, sizeof check);
    return check;
}

static bool next(struct rg_reader *in, struct rg_journal_record *out)
{
    struct record record;
    rg_get_into(in, &record, sizeof record);
    if (in->bad || record.name_size > RG_NAME_MAX || record.size > RG_JOURNAL_MAX)
        return false;
    const char *payload = rg_get(in, (size_t)record.name_size + record.size);
    if (!payload || check_of(&record, payload) != record.check)
        return false;
    if (record.name_size && (payload[record.name_size - 1] || strlen(payload) + 1 != record.name_size))
        return false;
    *out = (struct rg_journal_record){.type = record.type,
                                      .flags = record.flags,
                                      .name = record.name_size ? payload : "",
                                      .data = payload + record.name_size,
                                      .size = record.size};
    return true;
}

bool rg_journal_read(struct rg_journal *records,
                     bool (*take)(void *user, const struct rg_journal_record *record), void *user)
{
    RG_UNCANCELLED;
    size_t size = 0;
    unsigned char *data = records->cache
                              ? rg_disk_cache_read(records->cache, records->name, 0, RG_JOURNAL_MAX, 0, &size)
                              : NULL;
    if (!data)
        return true;
    struct rg_reader in = rg_reader_of(data, size);
    struct rg_journal_record record;
    records->size = size;
    bool good = true;
    while (good && rg_left(&in))
        good = next(&in, &record) && take(user, &record);
    if (!good)
        rg_journal_remove(records);
    free(data);
    return good;
}

void rg_journal_add(struct rg_journal *records, uint32_t type, uint32_t flags, const char *name,
                    const void *data, size_t size)
{
    RG_UNCANCELLED;
    const size_t name_size = name ? strlen(name) + 1 : 0, payload = name_size + size;
    if (!records->cache || name_size > RG_NAME_MAX ||
        records->size + sizeof(struct record) + payload > RG_JOURNAL_MAX)
        return;
    unsigned char *memory = malloc(sizeof(struct record) + payload);
    if (!memory)
        return;
    struct record record = {
        .type = type, .flags = flags, .name_size = (uint32_t)name_size, .size = (uint32_t)size};
    if (name_size)
        memcpy(memory + sizeof record, name, name_size);
    if (size)
        memcpy(memory + sizeof record + name_size, data, size);
    record.check = check_of(&record, memory + sizeof record);
    memcpy(memory, &record, sizeof record);
    rg_disk_cache_append(records->cache, records->name, memory, sizeof record + payload);
    records->size += sizeof record + payload;
    free(memory);
}

void rg_journal_remove(struct rg_journal *records)
{
    RG_UNCANCELLED;
    if (records->cache)
        rg_disk_cache_remove(records->cache, records->name);
    records->size = 0;
}
