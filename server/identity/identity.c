/* identity.c - the life of the store: open, the server's certificate, reload; see identity.h. Clients: join.c. */
#include "server/identity/identity.h"

#include "common/base/log.h"
#include "server/identity/names.h"
#include "server/identity/operator.h"
#include "server/identity/store.h"
#include "server/identity/x509.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A server that has one thread for everything waits no longer for a command that was stopped while it has the lock. */
#define PATIENCE_NS 400000000ull

int64_t rg_identity_now(const struct rg_identity_store *store)
{
    return store->settings.now ? store->settings.now : (int64_t)time(NULL);
}

enum rg_status rg_identity_state_dir(char *path, size_t size, char *why, size_t why_size)
{
    const char *service = getenv("STATE_DIRECTORY"), *state = getenv("XDG_STATE_HOME"),
               *home = getenv("HOME");
    int length;
    if (service &&
        *service) /* a service manager that was asked for several folders names them with colons between */
        length = snprintf(path, size, "%.*s", (int)strcspn(service, ":"), service);
    else if (geteuid() == 0)
        length = snprintf(path, size, "/var/lib/remote-gpu");
    else if (state && *state == '/')
        length = snprintf(path, size, "%s/remote-gpu", state);
    else if (home && *home == '/')
        length = snprintf(path, size, "%s/.local/state/remote-gpu", home);
    else {
        return RG_FAILED(
            RG_ERR_NOT_FOUND, why, why_size,
            "there is no place for the state folder, as HOME is not set: name one with --state-dir");
    }
    if (length >= 0 && (size_t)length < size)
        return RG_OK;
    return RG_FAILED(RG_ERR_INVALID, why, why_size,
                     "the name of the state folder is too long: name another one with --state-dir");
}

/* --- the server's certificate ------------------------------------------------------------------------------------------- */

/* What lies in the folder, as far as it can be read: it is made anew where it is not good. */
static bool load_pair(const struct rg_state *state, struct rg_key_pair *pair, char *why, size_t why_size)
{
    *pair = (struct rg_key_pair){0};
    const enum rg_status certificate = rg_state_read(state, "tls.crt", RG_STATE_PUBLIC, &pair->certificate,
                                                     &pair->certificate_size, why, why_size);
    const enum rg_status key =
        certificate != RG_OK
            ? certificate
            : rg_state_read(state, "tls.key", RG_STATE_SECRET, &pair->key, &pair->key_size, why, why_size);
    if (key == RG_ERR_NOT_FOUND)
        rg_explain(why, why_size, "there is none yet");
    return key == RG_OK;
}

static enum rg_status make_pair(struct rg_identity_store *store, const struct rg_names *names,
                                struct rg_key_pair *pair, char *why, size_t why_size)
{
    enum rg_status status = rg_authority_issue_server(&store->authority, names->items, names->n,
                                                      rg_identity_now(store), pair, why, why_size);
    if (status == RG_OK)
        status = rg_state_write(&store->state, "tls.key", pair->key, pair->key_size, why, why_size);
    if (status == RG_OK)
        status = rg_state_write(&store->state, "tls.crt", pair->certificate, pair->certificate_size, why,
                                why_size);
    if (status != RG_OK)
        rg_key_pair_fini(pair);
    return status;
}

/* Sees to it that there is a good certificate; with the lock. */
static enum rg_status ensure_pair(struct rg_identity_store *store, struct rg_key_pair *pair, char *why,
                                  size_t why_size)
{
    struct rg_names names;
    enum rg_status status = rg_names_collect(&names, store->settings.names, store->settings.n_names,
                                             store->canonical, why, why_size);
    if (status == RG_OK) {
        char reason[512] = "";
        const bool good = load_pair(&store->state, pair, reason, sizeof reason) &&
                          rg_authority_server_is_good(&store->authority, pair, names.items, names.n,
                                                      rg_identity_now(store), reason, sizeof reason);
        if (!good) {
            if (!store->is_new)
                rg_info("the server's certificate is made anew: %s", reason);
            rg_key_pair_fini(pair);
            status = make_pair(store, &names, pair, why, why_size);
        }
    }
    rg_names_fini(&names);
    return status;
}

/* --- our own authority -------------------------------------------------------------------------------------------------- */

/* Loads the authority, or makes it, and what the server needs of it. On failure nothing is left in either. */
static enum rg_status load_own(struct rg_identity_store *store, struct rg_authority *authority, bool create,
                               struct rg_key_pair *pair, char *why, size_t why_size)
{
    RG_TRY(rg_state_lock(&store->state, why, why_size));
    const int64_t now = rg_identity_now(store);
    enum rg_status status = rg_authority_load(authority, &store->state, now, why, why_size);
    if (status == RG_ERR_NOT_FOUND && create) {
        status = rg_authority_make(authority, &store->state, now, why, why_size);
        store->is_new = status == RG_OK;
    } else if (status == RG_ERR_NOT_FOUND) {
        rg_explain(why, why_size, "the authority is no longer in %s", store->state.path);
    }
    if (status == RG_OK) {
        const struct rg_authority before = store->authority;
        store->authority = *authority;
        status = ensure_pair(store, pair, why, why_size);
        store->authority = before;
        if (status != RG_OK)
            rg_authority_fini(authority);
    }
    rg_state_unlock(&store->state);
    return status;
}

static bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* Takes what was loaded in the place of what there was. */
static void replace_pair(struct rg_identity_store *store, struct rg_key_pair *pair, bool *changed)
{
    const bool other =
        !same_text(store->server.certificate, pair->certificate) || !same_text(store->server.key, pair->key);
    *changed = *changed || other;
    if (other)
        rg_identity_turn_key(store);
    rg_key_pair_fini(&store->server);
    store->server = *pair;
}

static enum rg_status reload_own(struct rg_identity_store *store, bool create, bool *changed, char *why,
                                 size_t why_size)
{
    struct rg_authority authority;
    struct rg_key_pair pair = {0};
    RG_TRY(load_own(store, &authority, create, &pair, why, why_size));
    *changed = !same_text(store->authority.pem, authority.pem);
    rg_authority_fini(&store->authority);
    store->authority = authority;
    replace_pair(store, &pair, changed);
    return RG_OK;
}

static enum rg_status reload_operator(struct rg_identity_store *store, bool *changed, char *why,
                                      size_t why_size)
{
    char *ca;
    size_t size;
    struct rg_key_pair pair;
    RG_TRY(rg_operator_load(&store->settings, rg_identity_now(store), &ca, &size, &pair, why, why_size));
    *changed = !same_text(store->operator_ca, ca);
    free(store->operator_ca);
    store->operator_ca = ca;
    store->operator_ca_size = size;
    replace_pair(store, &pair, changed);
    return RG_OK;
}

/* --- public ------------------------------------------------------------------------------------------------------------- */

static enum rg_status open_all(struct rg_identity_store *store, char *why, size_t why_size)
{
    char path[4096];
    bool changed;
    RG_TRY(rg_operator_check_settings(&store->settings, why, why_size));
    if (!store->settings.state_dir)
        RG_TRY(rg_identity_state_dir(path, sizeof path, why, why_size));
    RG_TRY(rg_state_open(&store->state, store->settings.state_dir ? store->settings.state_dir : path, true,
                         why, why_size));
    store->is_own = !store->settings.ca_file;
    if (store->is_own)
        rg_names_canonical(store->canonical, sizeof store->canonical);
    RG_TRY(store->is_own ? reload_own(store, true, &changed, why, why_size)
                         : reload_operator(store, &changed, why, why_size));
    if (!rg_watch_open(&store->watch, store->state.path))
        return RG_FAILED(RG_ERR_IO, why, why_size, "changes of %s cannot be watched: %s", store->state.path,
                         strerror(errno));
    return RG_OK;
}

enum rg_status rg_identity_open(const struct rg_identity_settings *settings, struct rg_identity_store **store,
                                char *why, size_t why_size)
{
    struct rg_identity_store *made = calloc(1, sizeof *made);
    if (!made)
        return RG_ERR_NO_MEMORY;
    rg_x509_start();
    made->settings = *settings;
    made->state.folder = made->state.lock = made->watch.fd = -1;
    if (!made->settings.certificate_days)
        made->settings.certificate_days = RG_IDENTITY_DAYS_DEFAULT;
    const enum rg_status status = open_all(made, why, why_size);
    if (status == RG_OK) {
        made->state.patience_ns = PATIENCE_NS;
        *store = made;
    } else {
        rg_identity_close(made);
    }
    return status;
}

void rg_identity_close(struct rg_identity_store *store)
{
    if (!store)
        return;
    rg_watch_close(&store->watch);
    rg_authority_fini(&store->authority);
    rg_identity_forget_keys(store);
    rg_key_pair_fini(&store->server);
    free(store->operator_ca);
    rg_state_close(&store->state);
    free(store);
}

enum rg_status rg_identity_reload(struct rg_identity_store *store, bool *changed, char *why, size_t why_size)
{
    *changed = false;
    return store->is_own ? reload_own(store, false, changed, why, why_size)
                         : reload_operator(store, changed, why, why_size);
}

void rg_identity_material(const struct rg_identity_store *store, struct rg_identity_material *material)
{
    *material = (struct rg_identity_material){
        .authority = store->is_own ? store->authority.pem : store->operator_ca,
        .authority_size = store->is_own ? store->authority.pem_size : store->operator_ca_size,
        .certificate = store->server.certificate,
        .certificate_size = store->server.certificate_size,
        .key = store->server.key,
        .key_size = store->server.key_size,
        .generation = store->generation,
    };
}

bool rg_identity_is_own(const struct rg_identity_store *store)
{
    return store->is_own;
}

bool rg_identity_is_new(const struct rg_identity_store *store)
{
    return store->is_new;
}

const char *rg_identity_folder(const struct rg_identity_store *store)
{
    return store->state.path;
}

void rg_identity_note_port(struct rg_identity_store *store, uint16_t port)
{
    char text[16], why[512] = "", *before = NULL;
    size_t size;
    snprintf(text, sizeof text, "%u\n", port);
    const bool same =
        rg_state_read(&store->state, "port", RG_STATE_PUBLIC, &before, &size, NULL, 0) == RG_OK &&
        strcmp(before, text) == 0;
    free(before);
    if (same)
        return;
    enum rg_status status = rg_state_lock(&store->state, why, sizeof why);
    if (status == RG_OK)
        status = rg_state_write(&store->state, "port", text, strlen(text), why, sizeof why);
    rg_state_unlock(&store->state);
    if (status != RG_OK)
        rg_warn("remote-gpud token will not know the port: %s", why);
}

int rg_identity_watch_fd(const struct rg_identity_store *store)
{
    return store->watch.fd;
}

bool rg_identity_changed(struct rg_identity_store *store)
{
    return rg_watch_changed(&store->watch);
}
