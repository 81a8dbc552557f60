/*
 * store.c - objects of one kind, listed and then watched by a thread; see kube.h.
 *
 * A watch is a request that is answered by one JSON object a line for as long as it lasts. The API server ends it after the time
 * that was asked for, and it is begun again at the version that was seen last; bookmarks move that version on while nothing
 * happens. One that is silent for longer than it should be was cut off: libcurl's limit ends it.
 */
#include "common/base/clock.h"
#include "common/base/json_value.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "places/kubernetes/api/internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WATCH_SECONDS 300
#define SLACK_SECONDS 30
#define PAGE          500
#define PAUSE_LEAST   100000000u /* nanoseconds between tries where the API server fails */
#define PAUSE_MOST    10000000000u

struct rg_kube_store {
    const struct rg_kube_cluster *cluster;
    char *path;
    void (*changed)(void *context);
    void *context;
    pthread_t thread;
    atomic_bool stopping;
    atomic_bool is_true;
    /* of the thread alone */
    struct rg_kube *kube;
    char version[64];
    char *line;
    size_t line_size, line_room;
    bool gone;         /* the version is out of the history: list */
    bool has_told_why; /* one line for each outage */
    pthread_mutex_t lock;
    json_t *objects; /* under the lock: "namespace/name" to object; NULL: not listed yet */
};

/* --- what is known ----------------------------------------------------------------------------------------------- */

static void key_of(const json_t *object, char *out, size_t size)
{
    const json_t *meta = json_object_get(object, "metadata");
    snprintf(out, size, "%s/%s", rg_json_get_text(meta, "namespace"), rg_json_get_text(meta, "name"));
}

/* Versions of one kind of object grow, as is documented since 1.35 and was true of every etcd before. */
static uint64_t version_of(const json_t *object)
{
    return strtoull(rg_json_get_text(json_object_get(object, "metadata"), "resourceVersion"), NULL, 10);
}

enum change {
    EVENT,   /* of the watch, which may come after an answer that was put there */
    ANSWER,  /* which may come after the watch has told that the object is gone */
    REMOVAL, /* of the watch */
};

/* A copy with the change, in the place of what others may be reading. */
static void change(struct rg_kube_store *store, const json_t *object, enum change what)
{
    char key[600];
    key_of(object, key, sizeof key);
    pthread_mutex_lock(&store->lock);
    const json_t *known = json_object_get(store->objects, key);
    const bool good = what == REMOVAL || (known ? version_of(known) < version_of(object) : what == EVENT);
    json_t *copy = good ? json_copy(store->objects) : NULL;
    if (copy) {
        if (what == REMOVAL)
            (void)json_object_del(copy, key);
        else
            (void)json_object_set(copy, key, (json_t *)(uintptr_t)object);
        json_decref(store->objects);
        store->objects = copy;
    }
    pthread_mutex_unlock(&store->lock);
}

json_t *rg_kube_store_read(struct rg_kube_store *store)
{
    pthread_mutex_lock(&store->lock);
    json_t *objects = json_incref(store->objects);
    pthread_mutex_unlock(&store->lock);
    return objects;
}

void rg_kube_store_put(struct rg_kube_store *store, json_t *object)
{
    change(store, object, ANSWER);
}

bool rg_kube_store_is_true(struct rg_kube_store *store)
{
    return atomic_load(&store->is_true);
}

/* --- listing ------------------------------------------------------------------------------------------------------- */

static bool add_items(json_t *objects, const json_t *items)
{
    json_t *item;
    size_t i;
    bool good = true;
    json_array_foreach(items, i, item)
    {
        char key[600];
        key_of(item, key, sizeof key);
        good = good && json_object_set(objects, key, item) == 0;
    }
    return good;
}

/* One page; the next one's address is in `path` until there is none. */
static enum rg_status list_page(struct rg_kube_store *store, char *path, size_t room, json_t *objects,
                                struct rg_kube_failure *failure)
{
    struct rg_kube *kube = store->kube;
    json_t *page;
    RG_TRY(rg_kube_call(kube, "GET", path, NULL, &page, failure));
    const json_t *meta = json_object_get(page, "metadata");
    enum rg_status status = add_items(objects, json_object_get(page, "items")) ? RG_OK : RG_ERR_NO_MEMORY;
    char *next = *rg_json_get_text(meta, "continue")
                     ? curl_easy_escape(kube->curl, rg_json_get_text(meta, "continue"), 0)
                     : NULL;
    snprintf(store->version, sizeof store->version, "%s", rg_json_get_text(meta, "resourceVersion"));
    *path = '\0';
    if (next && snprintf(path, room, "%s%climit=%d&continue=%s", store->path,
                         strchr(store->path, '?') ? '&' : '?', PAGE, next) >= (int)room)
        status = RG_ERR_LIMIT;
    curl_free(next);
    json_decref(page);
    return status;
}

static enum rg_status list(struct rg_kube_store *store, struct rg_kube_failure *failure)
{
    char path[8192];
    json_t *objects = json_object();
    enum rg_status status = objects ? RG_OK : RG_ERR_NO_MEMORY;
    snprintf(path, sizeof path, "%s%climit=%d", store->path, strchr(store->path, '?') ? '&' : '?', PAGE);
    while (status == RG_OK && *path)
        status = list_page(store, path, sizeof path, objects, failure);
    if (status != RG_OK) {
        json_decref(objects);
        return status;
    }
    pthread_mutex_lock(&store->lock);
    json_decref(store->objects);
    store->objects = objects;
    pthread_mutex_unlock(&store->lock);
    store->gone = false;
    atomic_store(&store->is_true, true);
    store->changed(store->context);
    return RG_OK;
}

/* --- watching ------------------------------------------------------------------------------------------------------ */

/* One line of a watch. False: the watch is of no further use. */
static bool hear(struct rg_kube_store *store, const char *line, size_t size)
{
    json_t *event = json_loadb(line, size, 0, NULL);
    const char *type = rg_json_get_text(event, "type");
    const json_t *object = json_object_get(event, "object");
    const bool error = !*type || strcmp(type, "ERROR") == 0;
    if (error) { /* mostly 410: the version is out of the history */
        store->gone = true;
    } else {
        const char *version = rg_json_get_text(json_object_get(object, "metadata"), "resourceVersion");
        if (strcmp(type, "BOOKMARK") != 0) {
            change(store, object, strcmp(type, "DELETED") == 0 ? REMOVAL : EVENT);
            store->changed(store->context);
        }
        if (*version)
            snprintf(store->version, sizeof store->version, "%s", version);
    }
    json_decref(event);
    return !error;
}

/* Takes the lines apart; what does not end yet stays for the next piece. */
static size_t take(char *data, size_t one, size_t n, void *context)
{
    struct rg_kube_store *store = context;
    const size_t size = one * n;
    if (size > RG_KUBE_ANSWER_MAX - store->line_size)
        return 0;
    if (store->line_size + size > store->line_room) {
        char *grown = realloc(store->line, 2 * (store->line_size + size));
        if (!grown)
            return 0;
        store->line = grown;
        store->line_room = 2 * (store->line_size + size);
    }
    memcpy(store->line + store->line_size, data, size);
    store->line_size += size;
    size_t begin = 0;
    for (char *end; (end = memchr(store->line + begin, '\n', store->line_size - begin));) {
        const size_t length = (size_t)(end - (store->line + begin));
        if (length && !hear(store, store->line + begin, length))
            return 0;
        begin += length + 1;
    }
    memmove(store->line, store->line + begin, store->line_size - begin);
    store->line_size -= begin;
    return size;
}

static int look(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    struct rg_kube_store *store = context;
    long code = 0;
    if (!atomic_load(&store->is_true) &&
        curl_easy_getinfo(store->kube->curl, CURLINFO_RESPONSE_CODE, &code) == CURLE_OK && code == 200)
        atomic_store(&store->is_true, true); /* the watch has begun */
    return atomic_load(&store->stopping);
}

static enum rg_status watch(struct rg_kube_store *store, struct rg_kube_failure *failure)
{
    struct rg_kube *kube = store->kube;
    char path[1024];
    long code = 0;
    snprintf(path, sizeof path,
             "%s%cwatch=true&allowWatchBookmarks=true&timeoutSeconds=%d&resourceVersion=%s", store->path,
             strchr(store->path, '?') ? '&' : '?', WATCH_SECONDS, store->version);
    RG_TRY(rg_kube_prepare(kube, path, "", failure->why, sizeof failure->why));
    store->line_size = 0;
    curl_easy_setopt(kube->curl, CURLOPT_TIMEOUT, (long)WATCH_SECONDS + SLACK_SECONDS);
    curl_easy_setopt(kube->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(kube->curl, CURLOPT_WRITEDATA, store);
    curl_easy_setopt(kube->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(kube->curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(kube->curl, CURLOPT_XFERINFODATA, store);
    curl_easy_setopt(kube->curl, CURLOPT_TCP_KEEPALIVE, 1L); /* a machine that vanishes sends no end */
    curl_easy_setopt(kube->curl, CURLOPT_TCP_KEEPIDLE, 20L);
    curl_easy_setopt(kube->curl, CURLOPT_TCP_KEEPINTVL, 10L);
    const CURLcode went = curl_easy_perform(kube->curl);
    curl_easy_getinfo(kube->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code == 410)
        store->gone = true;
    if (store->gone || (went == CURLE_OK && code == 200))
        return RG_OK;
    if (code && code != 200)
        rg_explain(failure->why, sizeof failure->why, "the API server says %ld", code);
    else
        rg_explain(failure->why, sizeof failure->why, "cannot ask the API server at %s: %s",
                   kube->cluster->url, kube->error[0] ? kube->error : curl_easy_strerror(went));
    if (code == 200)
        return RG_ERR_LOST; /* while it watched: it is begun again */
    return code ? rg_kube_status_of(code) : RG_ERR_UNREACHABLE;
}

/* --- the thread ------------------------------------------------------------------------------------------------------ */

static void sleep_for(struct rg_kube_store *store, uint64_t ns)
{
    for (; ns && !atomic_load(&store->stopping); ns = ns > 50000000u ? ns - 50000000u : 0)
        nanosleep(&(struct timespec){.tv_nsec = ns > 50000000u ? 50000000 : (long)ns}, NULL);
}

static void *run(void *context)
{
    struct rg_kube_store *store = context;
    uint64_t pause = PAUSE_LEAST;
    store->kube = rg_kube_open(store->cluster);
    store->gone = true;
    while (store->kube && !atomic_load(&store->stopping)) {
        struct rg_kube_failure failure = {0};
        const bool lists = store->gone;
        const uint64_t begun = rg_now_ns();
        const enum rg_status status = lists ? list(store, &failure) : watch(store, &failure);
        if (status == RG_OK) {
            if (!lists)
                sleep_for(
                    store,
                    PAUSE_LEAST); /* an API server that ends each watch at once is not to be busy with that */
            if (store->has_told_why)
                rg_info("the API server answers again");
            store->has_told_why = false;
            pause = PAUSE_LEAST;
            continue;
        }
        if (atomic_load(&store->stopping))
            break;
        atomic_store(&store->is_true, false);
        if (!store->has_told_why && status != RG_ERR_LOST)
            rg_warn("%s: %s; trying again", store->path, failure.why);
        store->has_told_why |= status != RG_ERR_LOST;
        store->gone |= status != RG_ERR_LOST && status != RG_ERR_UNREACHABLE;
        /* a balancer may cut every watch after a while: only those that break at once are worth a longer pause */
        const bool lasted = status == RG_ERR_LOST && rg_now_ns() - begun >= pause;
        pause = lasted ? PAUSE_LEAST : pause;
        sleep_for(store, pause);
        if (!lasted)
            pause = pause * 2 < PAUSE_MOST ? pause * 2 : PAUSE_MOST;
    }
    if (!store->kube)
        rg_error("out of memory");
    rg_kube_close(store->kube);
    return NULL;
}

struct rg_kube_store *rg_kube_store_start(const struct rg_kube_cluster *cluster, const char *path,
                                          void (*changed)(void *context), void *context)
{
    struct rg_kube_store *store = calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->cluster = cluster;
    store->changed = changed;
    store->context = context;
    store->path = strdup(path);
    pthread_mutex_init(&store->lock, NULL);
    if (store->path && rg_thread_create(&store->thread, "kube-store", run, store) == RG_OK)
        return store;
    pthread_mutex_destroy(&store->lock);
    free(store->path);
    free(store);
    return NULL;
}

void rg_kube_store_stop(struct rg_kube_store *store)
{
    if (!store)
        return;
    atomic_store(&store->stopping, true);
    pthread_join(store->thread, NULL);
    json_decref(store->objects);
    pthread_mutex_destroy(&store->lock);
    free(store->line);
    free(store->path);
    free(store);
}
