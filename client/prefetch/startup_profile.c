/*
 * startup_profile.c - what is remembered of a program, noted while it runs, and done ahead (startup_profile.h).
 *
 * The journal is read before the hello. From then on it gets a record whenever something new is noted, so that a process that is killed
 * loses nothing but what it did not want this time, which is noted at its end. A journal that makes no sense counts as empty, and an
 * image is only loaded ahead if the image cache knows that it loads. One lock guards the lists; it is not held while anything is
 * sent or waited for.
 */
#include "client/prefetch/startup_profile.h"

#include "client/cache/journal.h"
#include "client/cache/variables.h"
#include "client/core/call.h"
#include "client/core/context_scope.h"
#include "client/core/device_list.h"
#include "client/core/future.h"
#include "client/core/home.h"
#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "client/core/thread.h"
#include "client/prealloc/prealloc.h"
#include "client/prefetch/loaded_images.h"
#include "common/base/cleanup.h"
#include "common/sync/scoped_lock.h"
#include "generated/client/operations.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGES_MAX 4096u /* of one program */
#define STATES_MAX 64u
#define HINTS_MAX  RG_PREALLOC_HINTS /* kinds of memory, of one program */
#define HINT_MAX   8u                /* of one kind; beyond, client/prealloc/prealloc.h sees to it */
#define NOTED_MAX  1024u             /* allocations of a start; those that follow cost nothing */

enum record_type { RECORD_CONTEXT = 1, RECORD_IMAGE, RECORD_STARTED, RECORD_MEMORY };

/* On disk, and here: an image whose variables were asked for. */
struct remembered_image {
    uint8_t answers[RG_DIGEST_SIZE]; /* the state of the server that this is about (session.h: hello) */
    uint32_t device;
    uint32_t reserved;
    struct rg_cached_image_name image;
};

/* On disk; of several about the same memory the last one holds. */
struct memory {
    uint64_t size, height;
    uint32_t kind, element, device;
    uint32_t count; /* that the program had at a time; 0: it did not want it any more */
};

/* Memory in a primary context that the program had, or has now. */
struct hint {
    struct memory memory;
    uint64_t bytes;     /* of each, as far as this process knows */
    unsigned now, most; /* of this process */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_journal records;
static atomic_bool active;
static uint8_t states[STATES_MAX][RG_DIGEST_SIZE]; /* of servers with which it has started */
static unsigned n_states;
static uint64_t contexts, begun; /* devices, a bit each: of records, and of this process */
static struct remembered_image *images;
static unsigned n_images, capacity;
static struct hint hints[HINTS_MAX];
static unsigned n_hints;
static atomic_uint noted;
static pid_t owner;

/* --- what is remembered: the lock is held --------------------------------------------------------------- */

static bool known_already(const struct remembered_image *image)
{
    for (unsigned i = 0; i < n_images; i++)
        if (memcmp(&images[i], image, sizeof *image) == 0)
            return true;
    return false;
}

static bool add(const struct remembered_image *image)
{
    if (n_images == IMAGES_MAX || known_already(image))
        return false;
    if (n_images == capacity) {
        const unsigned more = capacity ? capacity * 2 : 64;
        struct remembered_image *bigger = realloc(images, more * sizeof *bigger);
        if (!bigger)
            return false;
        images = bigger;
        capacity = more;
    }
    images[n_images++] = *image;
    return true;
}

/* The entry of this memory; NULL: there is none, and no room for one more. */
static struct hint *hint_of(const struct memory *memory)
{
    for (unsigned i = 0; i < n_hints; i++) {
        const struct memory *have = &hints[i].memory;
        if (have->size == memory->size && have->height == memory->height && have->kind == memory->kind &&
            have->element == memory->element && have->device == memory->device)
            return &hints[i];
    }
    if (n_hints == HINTS_MAX)
        return NULL;
    hints[n_hints] = (struct hint){.memory = *memory};
    return &hints[n_hints++];
}

static bool take_memory(const struct rg_journal_record *record)
{
    struct memory memory;
    if (record->size != sizeof memory)
        return false;
    memcpy(&memory, record->data, sizeof memory);
    struct hint *hint = hint_of(&memory);
    if (hint)
        hint->memory.count = memory.count < HINT_MAX ? memory.count : HINT_MAX;
    return true;
}

static bool take_record(void *user, const struct rg_journal_record *record)
{
    struct remembered_image image;
    (void)user;
    if (record->type == RECORD_STARTED && record->size == RG_DIGEST_SIZE) {
        if (n_states < STATES_MAX)
            memcpy(states[n_states++], record->data, RG_DIGEST_SIZE);
        return true;
    }
    if (record->type == RECORD_CONTEXT) {
        contexts |= 1ull << (record->flags % RG_DEVICES_MAX);
        return true;
    }
    if (record->type == RECORD_MEMORY)
        return take_memory(record);
    if (record->type != RECORD_IMAGE || record->size != sizeof image)
        return false;
    memcpy(&image, record->data, sizeof image);
    (void)add(&image);
    return true;
}

/* What is not wanted any more makes room. */
static void forget_unwanted(void)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < n_hints; i++)
        if (hints[i].memory.count)
            hints[kept++] = hints[i];
    n_hints = kept;
}

/* The program's file and command line; false: nobody knows. */
static bool describe(struct rg_digest *out)
{
    char path[PATH_MAX];
    RG_CLEANUP_FREE char *command = malloc(65536);
    ssize_t length = readlink("/proc/self/exe", path, sizeof path), size = -1;
    RG_CLEANUP_FD int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (command && fd >= 0)
        size = read(fd, command, 65536);
    if (length <= 0 || size < 0)
        return false;
    static const char what[] = "program 3";
    const struct rg_digest_part parts[] = {
        {what, sizeof what}, {path, (size_t)length}, {command, (size_t)size}};
    *out = rg_digest_of(parts, sizeof parts / sizeof *parts);
    return true;
}

uint64_t rg_startup_profile_contexts(void)
{
    struct rg_digest name;
    RG_SCOPED_LOCK(&lock);
    active = rg_optimise[RG_OPT_STARTUP_PREFETCH] && rg_journal_disk_cache() && describe(&name);
    if (active) {
        records.cache = rg_journal_disk_cache();
        memcpy(records.name, name.bytes, sizeof records.name);
        contexts = n_images = n_states = n_hints = 0;
        if (!rg_journal_read(&records, take_record, NULL))
            contexts = n_images = n_states = n_hints = 0;
        forget_unwanted();
        owner = getpid();
    }
    return active ? contexts : 0;
}

bool rg_startup_profile_is_new(void)
{
    const uint8_t *state = rg_session_current()->hello.answers;
    bool is_new = true;
    RG_SCOPED_LOCK(&lock);
    for (unsigned i = 0; i < n_states; i++)
        is_new &= memcmp(states[i], state, RG_DIGEST_SIZE) != 0;
    if (is_new && active && n_states < STATES_MAX) {
        memcpy(states[n_states++], state, RG_DIGEST_SIZE);
        rg_journal_add(&records, RECORD_STARTED, 0, NULL, state, RG_DIGEST_SIZE);
    }
    return is_new;
}

/* The device of which that is the primary context; -1: it is of none. */
static int primary_of(uint64_t context)
{
    const struct rg_shadow *shadow = rg_handle_shadow(RG_KIND_CONTEXT, context);
    return shadow && shadow->context.primary ? shadow->context.device : -1;
}

void rg_startup_profile_note_image(const struct rg_cached_image *cached)
{
    const struct rg_session *session = rg_session_current();
    struct remembered_image image = {.device = (uint32_t)rg_device_current(),
                                     .image = *rg_image_cache_name(cached)};
    memcpy(image.answers, session->hello.answers, sizeof image.answers);
    if (primary_of(rg_context_current_owner()) < 0)
        return; /* it will not be asked for where it would be loaded */
    RG_SCOPED_LOCK(&lock);
    if (active && image.image.plain && add(&image))
        rg_journal_add(&records, RECORD_IMAGE, 0, NULL, &image, sizeof image);
}

/* --- memory --------------------------------------------------------------------------------------------- */

/* Whether what is allocated and freed still belongs to the start. */
static bool is_noted(void)
{
    return atomic_load_explicit(&active, memory_order_relaxed) &&
           atomic_load_explicit(&noted, memory_order_relaxed) < NOTED_MAX;
}

void rg_startup_profile_note_memory(const struct rg_prealloc_key *key, size_t bytes)
{
    const int device =
        is_noted() && key->kind != RG_PREALLOC_ORDERED ? primary_of(rg_context_current_owner()) : -1;
    if (device < 0)
        return;
    atomic_fetch_add_explicit(&noted, 1, memory_order_relaxed);
    const struct memory memory = {.size = key->size,
                                  .height = key->height,
                                  .kind = key->kind,
                                  .element = key->element,
                                  .device = (uint32_t)device};
    RG_SCOPED_LOCK(&lock);
    struct hint *hint = hint_of(&memory);
    if (hint) {
        hint->bytes = bytes;
        if (++hint->now > hint->most)
            hint->most = hint->now;
        if (hint->most > hint->memory.count && hint->memory.count < HINT_MAX) {
            hint->memory.count++;
            rg_journal_add(&records, RECORD_MEMORY, 0, NULL, &hint->memory, sizeof hint->memory);
        }
    }
}

void rg_startup_profile_note_free(uint64_t context, size_t bytes)
{
    const int device = is_noted() ? primary_of(context) : -1;
    if (device < 0)
        return;
    RG_SCOPED_LOCK(&lock);
    for (unsigned i = 0; i < n_hints; i++)
        if (hints[i].now && hints[i].bytes == bytes && hints[i].memory.device == (uint32_t)device) {
            hints[i].now--;
            break;
        }
}

/* Has made ready what the program had in that context, which is current. */
static void prefetch_memory(CUdevice device)
{
    struct rg_prealloc_key keys[HINTS_MAX];
    unsigned counts[HINTS_MAX], n = 0;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n_hints; i++) {
        const struct memory *memory = &hints[i].memory;
        if (memory->device != (uint32_t)device || !memory->count)
            continue;
        keys[n] = (struct rg_prealloc_key){.kind = (enum rg_prealloc_kind)memory->kind,
                                           .element = memory->element,
                                           .size = memory->size,
                                           .height = memory->height};
        counts[n++] = memory->count;
    }
    pthread_mutex_unlock(&lock);
    rg_prealloc_hint(keys, counts, n);
}

/* At the end of the process: what it had less of than it did before is wanted less the next time. */
__attribute__((destructor(102))) static void note_unwanted(void)
{
    if (!atomic_load(&active) || owner != getpid() || pthread_mutex_trylock(&lock) != 0)
        return;
    for (unsigned i = 0; i < n_hints; i++) {
        struct memory *memory = &hints[i].memory;
        if (hints[i].most < memory->count && begun >> memory->device & 1) {
            memory->count = hints[i].most;
            rg_journal_add(&records, RECORD_MEMORY, 0, NULL, memory, sizeof *memory);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* --- what is done ahead --------------------------------------------------------------------------------- */

/* Loads an image in the current context, if that is known to succeed. */
static void load(const struct remembered_image *remembered)
{
    const struct rg_cached_image_name *image = &remembered->image;
    const bool library = image->kind == RG_KIND_LIBRARY;
    struct rg_cached_image *cached = rg_image_cache_find_named(image);
    uint64_t id, handle = 0;
    if (!cached || !rg_image_cache_loads(cached) ||
        rg_image_name(&image->digest, image->size, &id) != CUDA_SUCCESS)
        return;
    struct rg_loaded_image *loaded = calloc(1, sizeof *loaded);
    struct rg_future *future = loaded ? rg_loaded_image_begin(cached) : NULL;
    if (future)
        handle = rg_handle_create(library ? RG_KIND_LIBRARY : RG_KIND_MODULE);
    CUresult status = CUDA_ERROR_OUT_OF_MEMORY;
    struct rg_call reply;
    if (handle && library) {
        rg_handle_shadow(RG_KIND_LIBRARY, handle)->library.cached = cached;
        status = rg_op_rgLibraryLoad(&(CUlibrary){(CUlibrary)handle}, id, 0, NULL, NULL, 0, NULL, NULL, 0, 0,
                                     0, future, &reply);
    } else if (handle) {
        struct rg_module *made = &rg_handle_shadow(RG_KIND_MODULE, handle)->module;
        made->context = rg_context_current_owner();
        made->cached = cached;
        status = rg_op_rgModuleLoad(&(CUmodule){(CUmodule)handle}, id, 0, NULL, NULL, 0, 0, future, &reply);
    }
    if (future && rg_loaded_image_end(future, status) == CUDA_SUCCESS) {
        rg_variables_ask((enum rg_kind)image->kind, handle, cached);
        loaded->context = rg_context_current_owner();
        loaded->as[library ? RG_LOADED_LIBRARY : RG_LOADED_MODULE].cached = cached;
        loaded->as[library ? RG_LOADED_LIBRARY : RG_LOADED_MODULE].handle = handle;
        loaded->future = future;
        rg_loaded_images_add(loaded);
        return;
    }
    if (handle)
        rg_handle_delete((enum rg_kind)image->kind, handle);
    free(loaded);
}

void rg_startup_profile_context(CUdevice device, uint64_t context)
{
    pthread_mutex_lock(&lock);
    const bool fresh = active && !(contexts >> device & 1);
    contexts |= active ? 1ull << device : 0;
    if (fresh)
        rg_journal_add(&records, RECORD_CONTEXT, (uint32_t)device, NULL, NULL, 0);
    const bool again = begun >> device & 1;
    begun |= 1ull << device;
    const bool prefetches = active && !again;
    const unsigned n = rg_optimise[RG_OPT_IMAGE_DEDUP] ? n_images : 0;
    pthread_mutex_unlock(&lock);
    if (!prefetches || rg_context_scope_enter(context) != CUDA_SUCCESS)
        return;
    for (unsigned i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        const struct remembered_image image = images[i];
        pthread_mutex_unlock(&lock);
        if (image.device == (uint32_t)device &&
            memcmp(image.answers, rg_session_current()->hello.answers, sizeof image.answers) == 0)
            load(&image);
    }
    prefetch_memory(device); /* whoever waits for that finds the images there */
    rg_context_scope_leave();
}
