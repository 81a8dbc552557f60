/*
 * known.c - see known.h. A file is a sequence of records, each checked by a digest of itself; what follows a bad one is
 * not believed, and the file begins anew. Everything in memory is only ever added to, under one lock.
 */
#include "client/known.h"

#include "client/device.h"
#include "client/optimisations.h"
#include "client/owner.h"
#include "client/session.h"
#include "common/log.h"
#include "common/shelf.h"
#include "proto/codec.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX   (4u << 20)
#define SHELF_SIZE (64u << 20)
#define BUCKETS    64u

enum record_type { RECORD_LOADS = 1, RECORD_FUNCTION, RECORD_TAKEN, RECORD_VARIABLE };

/* On disk; followed by `size` bytes: a name with its NUL, and for functions the answer. */
struct record {
    uint64_t check; /* of all that follows */
    uint32_t type;
    uint32_t flags;
    uint32_t name_size, size;
};
_Static_assert(sizeof(struct record) == 24, "as in files");

struct variable {
    struct variable *next;
    bool managed;
    char name[];
};

struct rg_known {
    struct rg_known *next;
    struct rg_digest name;
    const struct rg_session *session;
    CUdevice device;
    bool loads;
    size_t file_size;
    struct rg_known_function *functions[BUCKETS];
    struct variable *variables, **last_variable;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_known *all;
static struct rg_shelf *shelf;

static void open_shelf(void)
{
    const char *named = secure_getenv("REMOTE_GPU_CACHE");
    char folder[PATH_MAX];
    if (named && strcmp(named, "off") == 0)
        return;
    if (named && *named)
        snprintf(folder, sizeof folder, "%s/answers", named);
    else if (!rg_shelf_place("answers", folder, sizeof folder))
        return;
    shelf = rg_shelf_open(folder, SHELF_SIZE);
}

/* --- in memory: the lock is held ---------------------------------------------------------------------------- */

static unsigned bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return (hash >> 8) % BUCKETS;
}

static struct rg_known_function *find_function(struct rg_known *known, const char *name)
{
    struct rg_known_function *at = known->functions[bucket_of(name)];
    while (at && strcmp(at->name, name) != 0)
        at = at->next;
    return at;
}

/* False: it was there already, or there is no memory. */
static bool add_function(struct rg_known *known, const char *name, const void *answer, size_t size)
{
    const size_t length = strlen(name) + 1;
    if (find_function(known, name))
        return false;
    struct rg_known_function *function = malloc(sizeof *function + length + size);
    if (!function)
        return false;
    struct rg_known_function **bucket = &known->functions[bucket_of(name)];
    *function = (struct rg_known_function){
        .next = *bucket, .size = size, .answer = (unsigned char *)function->name + length};
    memcpy(function->name, name, length);
    memcpy(function->answer, answer, size);
    *bucket = function;
    return true;
}

static bool add_variable(struct rg_known *known, const char *name, bool managed)
{
    for (const struct variable *at = known->variables; at; at = at->next)
        if (at->managed == managed && strcmp(at->name, name) == 0)
            return false;
    const size_t length = strlen(name) + 1;
    struct variable *variable = malloc(sizeof *variable + length);
    if (!variable)
        return false;
    *variable = (struct variable){.managed = managed};
    memcpy(variable->name, name, length);
    *known->last_variable = variable;
    known->last_variable = &variable->next;
    return true;
}

static void forget(struct rg_known *known)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        while (known->functions[i]) {
            struct rg_known_function *function = known->functions[i];
            known->functions[i] = function->next;
            free(function);
        }
    while (known->variables) {
        struct variable *variable = known->variables;
        known->variables = variable->next;
        free(variable);
    }
    known->last_variable = &known->variables;
    known->loads = false;
    known->file_size = 0;
}

/* --- on disk: the lock is held ------------------------------------------------------------------------------- */

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

static void store(struct rg_known *known, enum record_type type, unsigned flags, const char *name,
                  const void *data, size_t size)
{
    const size_t name_size = name ? strlen(name) + 1 : 0, payload = name_size + size;
    if (!shelf || name_size > RG_NAME_MAX || known->file_size + sizeof(struct record) + payload > FILE_MAX)
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
    rg_shelf_append(shelf, known->name.bytes, memory, sizeof record + payload);
    known->file_size += sizeof record + payload;
    free(memory);
}

/* Takes in one record; false: it is not one. */
static bool take_record(struct rg_known *known, struct rg_reader *in)
{
    struct record record;
    rg_get_into(in, &record, sizeof record);
    if (in->bad || record.name_size > RG_NAME_MAX || record.size > FILE_MAX)
        return false;
    const unsigned char *payload = rg_get(in, (size_t)record.name_size + record.size);
    if (!payload || check_of(&record, payload) != record.check)
        return false;
    const char *name = (const char *)payload;
    if (record.type != RECORD_LOADS &&
        (record.name_size == 0 || name[record.name_size - 1] || strlen(name) + 1 != record.name_size))
        return false;
    struct rg_known_function *function;
    switch (record.type) {
    case RECORD_LOADS:
        known->loads = true;
        return true;
    case RECORD_FUNCTION:
        (void)add_function(known, name, payload + record.name_size, record.size);
        return true;
    case RECORD_TAKEN:
        function = find_function(known, name);
        if (function)
            function->taken = true;
        return true;
    case RECORD_VARIABLE:
        (void)add_variable(known, name, record.flags & 1);
        return true;
    default:
        return false;
    }
}

static void read_file(struct rg_known *known)
{
    size_t size;
    unsigned char *data = shelf ? rg_shelf_read(shelf, known->name.bytes, 0, FILE_MAX, 0, &size) : NULL;
    if (!data)
        return;
    struct rg_reader in = rg_reader_of(data, size);
    known->file_size = size;
    while (rg_left(&in))
        if (!take_record(known, &in)) {
            rg_shelf_remove(shelf, known->name.bytes);
            forget(known);
            break;
        }
    free(data);
}

/* --- the interface --------------------------------------------------------------------------------------------- */

struct rg_known *rg_known_of(enum rg_kind kind, struct rg_image_view *image, const struct rg_jit *jit)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const uint8_t none[RG_DIGEST_SIZE];
    const struct rg_session *session = rg_session_current();
    const CUdevice here = rg_device_current(), device = here < 0 ? 0 : rg_device_there(session, here);
    if (!rg_optimise[RG_OPT_KNOWN] || memcmp(session->hello.answers, none, sizeof none) == 0)
        return NULL;
    pthread_once(&once, open_shelf);
    const uint32_t numbers[] = {2 /* raised when records change */, (uint32_t)kind, (uint32_t)device};
    const struct rg_digest_part parts[] = {{session->hello.answers, sizeof session->hello.answers},
                                           {rg_api_digest, sizeof rg_api_digest},
                                           {numbers, sizeof numbers},
                                           {rg_image_digest(image), sizeof(struct rg_digest)},
                                           {image->offsets, image->n_parts * sizeof *image->offsets},
                                           {jit->options, jit->count * sizeof *jit->options},
                                           {jit->values, jit->count * sizeof *jit->values}};
    const struct rg_digest name = rg_digest_of(parts, sizeof parts / sizeof *parts);
    pthread_mutex_lock(&lock);
    struct rg_known *known = all;
    while (known && (known->session != session || memcmp(&known->name, &name, sizeof name) != 0))
        known = known->next;
    if (!known && (known = calloc(1, sizeof *known)) != NULL) {
        *known =
            (struct rg_known){.next = all, .name = name, .session = session, .device = here < 0 ? 0 : here};
        known->last_variable = &known->variables;
        read_file(known);
        all = known;
    }
    pthread_mutex_unlock(&lock);
    return known;
}

bool rg_known_here(const struct rg_known *known)
{
    const CUdevice here = rg_device_current();
    return rg_session_current() == known->session && (here < 0 ? 0 : here) == known->device;
}

void rg_known_drop(struct rg_known *known)
{
    pthread_mutex_lock(&lock);
    known->loads = false; /* the memory stays: answers have been handed out */
    for (unsigned i = 0; i < BUCKETS; i++)
        known->functions[i] = NULL;
    known->variables = NULL;
    known->last_variable = &known->variables;
    known->file_size = 0;
    if (shelf)
        rg_shelf_remove(shelf, known->name.bytes);
    pthread_mutex_unlock(&lock);
}

bool rg_known_loads(const struct rg_known *known)
{
    pthread_mutex_lock(&lock);
    const bool loads = known->loads;
    pthread_mutex_unlock(&lock);
    return loads;
}

void rg_known_note_load(struct rg_known *known)
{
    pthread_mutex_lock(&lock);
    if (!known->loads)
        store(known, RECORD_LOADS, 0, NULL, NULL, 0);
    known->loads = true;
    pthread_mutex_unlock(&lock);
}

const struct rg_known_function *rg_known_function(struct rg_known *known, const char *name)
{
    pthread_mutex_lock(&lock);
    const struct rg_known_function *function = find_function(known, name);
    pthread_mutex_unlock(&lock);
    return function;
}

void rg_known_note_function(struct rg_known *known, const char *name, const void *answer, size_t size)
{
    pthread_mutex_lock(&lock);
    if (add_function(known, name, answer, size))
        store(known, RECORD_FUNCTION, 0, name, answer, size);
    pthread_mutex_unlock(&lock);
}

void rg_known_note_taken(struct rg_known *known, const char *name)
{
    pthread_mutex_lock(&lock);
    struct rg_known_function *function = find_function(known, name);
    if (function && !function->taken) {
        function->taken = true;
        store(known, RECORD_TAKEN, 0, name, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
}

const char *rg_known_variable(struct rg_known *known, unsigned index, bool *managed)
{
    pthread_mutex_lock(&lock);
    const struct variable *variable = known->variables;
    while (variable && index--)
        variable = variable->next;
    if (variable)
        *managed = variable->managed;
    pthread_mutex_unlock(&lock);
    return variable ? variable->name : NULL;
}

void rg_known_note_variable(struct rg_known *known, const char *name, bool managed)
{
    pthread_mutex_lock(&lock);
    if (add_variable(known, name, managed))
        store(known, RECORD_VARIABLE, managed, name, NULL, 0);
    pthread_mutex_unlock(&lock);
}
