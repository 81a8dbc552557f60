/* pool_settings.c - whether what the settings say of a pool makes sense, before anything starts; see pool_process.h. */
#include "server/daemon/pool/pool_process.h"

#include "common/base/log.h"
#include "common/base/parse.h"
#include "server/daemon/pool/pool_internal.h"

#include <string.h>

#define PREEMPT_MOST_S (365 * 86400)

static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return *text && strlen(text) < sizeof((struct rg_agent_settings *)0)->pool &&
           strspn(text, letters) == strlen(text);
}

static bool is_url(const char *text)
{
    const char *host = strncmp(text, "https://", 8) == 0  ? text + 8
                       : strncmp(text, "http://", 7) == 0 ? text + 7
                                                          : "";
    return *host && strlen(text) < RG_AGENT_URL && !strpbrk(host, "/?#@ ");
}

static bool check_operators(const struct rg_text_list *operators)
{
    for (size_t i = 0; i < operators->n; i++)
        if (!*operators->items[i] || strlen(operators->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-operators '%s': that is no name of a certificate; remote-gpud users shows those "
                     "that there are",
                     operators->items[i]);
            return false;
        }
    return true;
}

static bool check_labels(const struct rg_text_list *labels, const struct rg_text_list *taints)
{
    if (labels->n > RG_AGENT_LABELS_MAX) {
        rg_error("--pool-label: more than %d labels", RG_AGENT_LABELS_MAX);
        return false;
    }
    for (size_t i = 0; i < taints->n; i++)
        if (taints->n > RG_AGENT_LABELS_MAX || !*taints->items[i] || *taints->items[i] == '=' ||
            strlen(taints->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-taint %s: a taint is NAME or NAME=VALUE, and there are %d at most",
                     taints->items[i], RG_AGENT_LABELS_MAX);
            return false;
        }
    for (size_t i = 0; i < labels->n; i++) {
        const char *equals = strchr(labels->items[i], '=');
        if (!equals || equals == labels->items[i] || strlen(labels->items[i]) >= RG_CONTROL_TEXT) {
            rg_error("--pool-label %s: a label is NAME=VALUE", labels->items[i]);
            return false;
        }
    }
    return true;
}

/* Seconds, or a time like 5min. */
static bool parse_preempt(const char *text, uint64_t *ns)
{
    int64_t seconds;
    if (rg_parse_integer(text, 0, PREEMPT_MOST_S, &seconds, NULL, 0) == RG_OK) {
        *ns = (uint64_t)seconds * 1000000000u;
        return true;
    }
    return rg_parse_duration(text, ns, NULL, 0) == RG_OK && *ns <= PREEMPT_MOST_S * 1000000000ull;
}

bool rg_pool_preempts(const struct rg_daemon_settings *settings, uint32_t *seconds)
{
    uint64_t ns;
    if (!settings->pool_preempt || !parse_preempt(settings->pool_preempt, &ns))
        return false;
    *seconds = (uint32_t)((ns + 999999999u) / 1000000000u);
    return true;
}

static bool check_preempt(const char *text)
{
    uint64_t ns;
    if (!text || parse_preempt(text, &ns))
        return true;
    rg_error("--pool-preempt '%s': that is no time up to a year, like 60 or 5min", text);
    return false;
}

/* What says nothing without a pool. What may be a credential of a service (etcd-ca …) may be there all the same. */
static bool check_lonely(const struct rg_daemon_settings *settings)
{
    const char *lonely = settings->etcd_user       ? "--etcd-user"
                         : settings->pool_labels.n ? "--pool-label"
                         : settings->pool_taints.n ? "--pool-taint"
                         : settings->pool_preempt  ? "--pool-preempt"
                                                   : NULL;
    if (lonely)
        rg_error("%s is of a server of a pool: say which pool, by --pool and --etcd", lonely);
    return !lonely;
}

bool rg_pool_check_settings(const struct rg_daemon_settings *settings, bool *wanted)
{
    *wanted = settings->pool != NULL;
    if (!settings->pool && !settings->http && settings->pool_operators.n) {
        rg_error(
            "--pool-operators is of a pool's servers (--pool and --etcd), and of a status page (--http)");
        return false;
    }
    if (!settings->pool && !settings->etcd.n)
        return check_lonely(settings) && check_operators(&settings->pool_operators);
    if (!settings->pool || !settings->etcd.n) {
        rg_error("--pool and --etcd go together: the pool's name, and where its etcd is");
        return false;
    }
    if (!is_name(settings->pool)) {
        rg_error("--pool %s: a pool's name has letters, digits and -_. and at most 63 of them",
                 settings->pool);
        return false;
    }
    if (settings->etcd.n > RG_AGENT_URLS_MAX) {
        rg_error("--etcd: more than %d members are named", RG_AGENT_URLS_MAX);
        return false;
    }
    for (size_t i = 0; i < settings->etcd.n; i++)
        if (!is_url(settings->etcd.items[i])) {
            rg_error("--etcd %s: that is no address of an etcd member (like https://etcd1.example:2379)",
                     settings->etcd.items[i]);
            return false;
        }
    if (!settings->etcd_cert != !settings->etcd_key) {
        rg_error("--etcd-cert and --etcd-key go together");
        return false;
    }
    if (!settings->etcd_user != !settings->etcd_password_file ||
        (settings->etcd_user &&
         strlen(settings->etcd_user) >= sizeof((struct rg_agent_settings *)0)->etcd_user)) {
        rg_error("--etcd-user and --etcd-password-file go together, and the name is shorter than 64 letters");
        return false;
    }
    return check_labels(&settings->pool_labels, &settings->pool_taints) &&
           check_operators(&settings->pool_operators) && check_preempt(settings->pool_preempt);
}
