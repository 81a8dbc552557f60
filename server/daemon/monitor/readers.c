/* readers.c - see readers.h. */
#include "server/daemon/monitor/readers.h"

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "server/daemon/monitor/reply.h"
#include "server/daemon/monitor/requests.h"
#include "server/daemon/page/links.h"
#include "server/daemon/sessions/gauges.h"
#include "server/daemon/shared/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Somebody, as far as this question is concerned. */
struct reading {
    struct rg_who who;
    struct rg_snapshot_reader reader;
    const struct rg_login *login; /* NULL: not by a cookie */
};

bool rg_reader_is_operator(const struct rg_monitor *monitor, const struct rg_who *who)
{
    if (who->proof == RG_PROOF_USER)
        return rg_who_owns(who, monitor->policy.uid);
    return who->proof == RG_PROOF_CERTIFICATE && rg_pool_names_operator(&monitor->pool, who->name);
}

/* --- who it is ---------------------------------------------------------------------------------------------- */

static enum rg_status refuse(struct rg_monitor_answer *answered, enum rg_status status, const char *why)
{
    answered->status = status;
    answered->code = RG_REFUSAL_UNAUTHORISED;
    snprintf(answered->why, sizeof answered->why, "%s", why);
    return status;
}

static enum rg_status find_by_cookie(struct rg_monitor *monitor, const uint8_t *cookie, struct reading *out,
                                     struct rg_monitor_answer *answered)
{
    char why[RG_CONTROL_REASON] = "";
    out->login = rg_logins_find(&monitor->logins, cookie);
    if (!out->login)
        return refuse(
            answered, RG_ERR_REFUSED,
            "this login is over; remote-gpu page, or on the server remote-gpud page, prints a new link");
    out->who = out->login->who;
    out->reader.by_cookie = true;
    out->reader.seconds = (uint32_t)((out->login->until_ns - rg_now_ns()) / 1000000000u);
    if (!rg_who_may_stay(&monitor->policy, &out->who, why, sizeof why))
        return refuse(answered, RG_ERR_REFUSED, why);
    if (rg_who_has_expired(&out->who))
        return refuse(answered, RG_ERR_REFUSED, "the certificate by which this link was got has expired");
    out->reader.scope = rg_reader_is_operator(monitor, &out->who) ? RG_READER_OPERATOR : RG_READER_OWN;
    return RG_OK;
}

static enum rg_status find_by_certificate(struct rg_monitor *monitor, const struct rg_monitor_peer *peer,
                                          struct reading *out, struct rg_monitor_answer *answered)
{
    answered->status = rg_who_is(&monitor->policy, peer, -1, &out->who, answered);
    out->reader.scope = rg_reader_is_operator(monitor, &out->who) ? RG_READER_OPERATOR : RG_READER_OWN;
    return answered->status;
}

/* On anything but RG_OK `answered` says why not. */
static enum rg_status find_reader(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                  struct reading *out, struct rg_monitor_answer *answered)
{
    const struct rg_monitor_page *page = &question->page;
    enum rg_status status = RG_OK;
    memset(out, 0, sizeof *out);
    if (page->health && question->kind == RG_ASK_LOOK)
        out->reader.scope = RG_READER_FIGURES;
    else if (page->proof == RG_READER_BEARER && !rg_logins_bears(&monitor->logins, page->bearer))
        status = refuse(answered, RG_ERR_REFUSED, "this bearer token is not the one of --http-token-file");
    else if (page->proof == RG_READER_BEARER)
        out->reader.scope = RG_READER_FIGURES;
    else if (page->proof == RG_READER_COOKIE)
        status = find_by_cookie(monitor, page->secret, out, answered);
    else if (question->peer.proof == RG_PROOF_CERTIFICATE)
        status = find_by_certificate(monitor, &question->peer, out, answered);
    else if (rg_http_is_local(&monitor->http) || monitor->policy.allow_unauthenticated)
        out->reader.scope = RG_READER_PUBLIC;
    else
        status =
            refuse(answered, RG_ERR_REFUSED,
                   "who are you? Open the link that remote-gpu page prints, or show a certificate of this "
                   "server's users, or the bearer token of its operator");
    snprintf(out->reader.name, sizeof out->reader.name, "%s", out->who.name);
    return status;
}

/* Likewise, of what is no figure. */
static enum rg_status find_person(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                                  struct reading *out, struct rg_monitor_answer *answered)
{
    const enum rg_status status = find_reader(monitor, question, out, answered);
    if (status != RG_OK || out->reader.scope != RG_READER_FIGURES)
        return status;
    return refuse(answered, RG_ERR_REFUSED, "the bearer token is good for /metrics alone");
}

static bool is_own(const struct reading *reading, const struct rg_session_entry *entry)
{
    return reading->who.proof > RG_PROOF_NONE && rg_who_is_same(&entry->who, &reading->who);
}

/* --- looking ------------------------------------------------------------------------------------------------ */

/* What figures need of a session: nothing by which it could be told whose it is. */
static void make_nameless(struct rg_session_info *info)
{
    const bool by_unix = strncmp(info->peer, "unix", 4) == 0;
    memset(&info->identity, 0, sizeof info->identity);
    memset(info->peer, 0, sizeof info->peer);
    memset(info->identity_name, 0, sizeof info->identity_name);
    memset(info->project, 0, sizeof info->project);
    snprintf(info->peer, sizeof info->peer, "%s", by_unix ? "unix" : "");
}

/* Nobody sees addresses and command lines of others but operators. */
static void make_public(struct rg_session_info *info)
{
    const bool by_unix = strncmp(info->peer, "unix", 4) == 0;
    const size_t program = strcspn(info->identity.command, " ");
    memset(info->peer, 0, sizeof info->peer);
    snprintf(info->peer, sizeof info->peer, "%s", by_unix ? "unix" : "");
    memset(info->identity.command + program, 0, sizeof info->identity.command - program);
}

static void take_session(const struct rg_monitor *monitor, const struct reading *reading, bool names,
                         uint32_t i, struct rg_snapshot *out)
{
    const struct rg_session_entry *entry = monitor->sessions.entries[i];
    const bool own = is_own(reading, entry);
    struct rg_snapshot_session *to = &out->sessions[out->n_sessions];
    if (names && reading->reader.scope < RG_READER_PUBLIC && !own)
        return;
    to->info = entry->info;
    to->is_own = own;
    if (!names)
        make_nameless(&to->info);
    else if (!own && reading->reader.scope != RG_READER_OPERATOR)
        make_public(&to->info);
    else
        to->rtt_us = rg_link_rtt_us(&entry->link);
    out->n_sessions++;
}

static struct rg_snapshot *make_snapshot(struct rg_monitor *monitor, const struct reading *reading,
                                         bool names, bool health, size_t *size)
{
    const uint32_t n = monitor->sessions.n;
    struct rg_snapshot *out = calloc(1, sizeof *out + n * sizeof out->sessions[0]);
    if (!out)
        return NULL;
    rg_gauges_look(monitor);
    rg_sessions_show_usage(&monitor->sessions);
    out->reader = reading->reader;
    out->gauges = monitor->board->gauges;
    out->driver = monitor->board->driver;
    out->history = monitor->board->history;
    out->max_sessions = monitor->sessions.max;
    out->running = n;
    for (uint32_t i = 0; i < n && !health; i++)
        take_session(monitor, reading, names, i, out);
    *size = sizeof *out + out->n_sessions * sizeof out->sessions[0];
    return out;
}

void rg_reader_look(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                    struct rg_monitor_answer *answered)
{
    struct reading reading;
    size_t size = 0;
    const bool names = question->page.names == 1;
    if ((names ? find_person : find_reader)(monitor, question, &reading, answered) != RG_OK) {
        rg_reply(&monitor->http.process, answered, NULL, 0);
        return;
    }
    RG_CLEANUP_FREE struct rg_snapshot *snapshot =
        make_snapshot(monitor, &reading, names, question->page.health == 1, &size);
    const int file = snapshot ? rg_file_in_memory("remote-gpu-snapshot", snapshot, size) : -1;
    answered->status = file >= 0 ? RG_OK : RG_ERR_NO_MEMORY;
    rg_reply_with(&monitor->http.process, answered, file);
}

/* What the agent is asked for. Returns how long that is. */
static uint32_t write_question(const struct rg_monitor_question *question, char *out, size_t size)
{
    if (question->kind == RG_ASK_LINKS)
        return (uint32_t)snprintf(out, size, "{\"ask\":\"links\",\"after\":\"%016" PRIx64 "\"}",
                                  question->page.after);
    return (uint32_t)snprintf(out, size, "{\"ask\":\"list\",\"from\":%u}",
                              (unsigned)(question->page.first & UINT16_MAX));
}

/* As the reader: leases and requests of others, and what they have measured, are told to operators alone. */
void rg_reader_list(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                    struct rg_monitor_answer *answered)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    struct reading reading;
    char text[64];
    int ends[2];
    if (find_person(monitor, question, &reading, answered) != RG_OK) {
        rg_reply(&monitor->http.process, answered, NULL, 0);
        return;
    }
    word.ask.size = write_question(question, text, sizeof text);
    if (reading.who.proof > RG_PROOF_NONE)
        rg_who_key(&reading.who, question->peer.address, word.ask.key, sizeof word.ask.key);
    else /* somebody who has proved nothing and has nothing */
        snprintf(word.ask.key, sizeof word.ask.key, "the status page");
    word.ask.is_operator = reading.reader.scope == RG_READER_OPERATOR;
    RG_CLEANUP_FD int file = rg_file_in_memory("pool-question", text, word.ask.size);
    if (file < 0) {
        answered->status = RG_ERR_NO_MEMORY;
        rg_reply(&monitor->http.process, answered, NULL, 0);
    } else if (rg_reply_open(&monitor->http.process, answered, ends)) {
        rg_reply_by(&monitor->http.process, answered, ends, rg_pool_ask(&monitor->pool, &word, ends[1], file),
                    "the server cannot ask its pool now");
    }
}

/* --- coming and going --------------------------------------------------------------------------------------- */

static void note(enum rg_audit_event event, const struct rg_who *who, const char *from, uint64_t session,
                 const char *why)
{
    rg_audit(&(struct rg_audit){.event = event,
                                .user = who->name,
                                .serial = who->serial,
                                .serial_size = who->serial_size,
                                .from = from,
                                .session = session,
                                .encrypted = who->encrypted,
                                .why = why});
}

void rg_reader_login(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                     struct rg_monitor_answer *answered)
{
    const struct rg_login *login = rg_logins_exchange(&monitor->logins, question->page.secret);
    if (!login) {
        (void)refuse(
            answered, RG_ERR_REFUSED,
            "this link has been used, or its five minutes are over; remote-gpu page, or on the server "
            "remote-gpud page, prints a new one");
        rg_audit(&(struct rg_audit){.event = RG_AUDIT_REFUSE,
                                    .from = question->peer.address,
                                    .encrypted = question->peer.encrypted,
                                    .why = "a link to the status page that is not known"});
        rg_reply(&monitor->http.process, answered, NULL, 0);
        return;
    }
    struct rg_login_grant grant = {.seconds = RG_LOGIN_COOKIE_S};
    memcpy(grant.cookie, login->secret, sizeof grant.cookie);
    memcpy(grant.guard, login->guard, sizeof grant.guard);
    const int file = rg_file_in_memory("remote-gpu-login", &grant, sizeof grant);
    explicit_bzero(&grant, sizeof grant);
    answered->status = file >= 0 ? RG_OK : RG_ERR_NO_MEMORY;
    note(RG_AUDIT_LOGIN, &login->who, question->peer.address, 0, NULL);
    rg_reply_with(&monitor->http.process, answered, file);
}

void rg_reader_logout(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                      struct rg_monitor_answer *answered)
{
    if (question->page.proof == RG_READER_COOKIE)
        rg_logins_end(&monitor->logins, question->page.secret);
    rg_reply(&monitor->http.process, answered, NULL, 0);
}

bool rg_reader_make_link(struct rg_monitor *monitor, const struct rg_who *who, const char *from, char *out,
                         size_t size)
{
    uint8_t secret[RG_PAGE_SECRET];
    if (!monitor->http.listener) {
        snprintf(out, size, "this server has no status page: its --http gives it one (docs/metrics.md)");
        return false;
    }
    if (who->proof == RG_PROOF_NONE) {
        snprintf(out, size, "it is not known who you are, so there is nothing that could be shown as yours");
        return false;
    }
    const enum rg_status status = rg_logins_make_link(&monitor->logins, who, secret);
    if (status != RG_OK) {
        snprintf(out, size, "%s",
                 status == RG_ERR_LIMIT ? "too many people are logged in to the status page; try again later"
                                        : "the server has no randomness; try again");
        return false;
    }
    size_t used = rg_http_address(&monitor->http, out, size);
    used += (size_t)snprintf(out + used, used < size ? size - used : 0, "#login=");
    for (size_t i = 0; i < sizeof secret && used + 3 <= size; i++, used += 2)
        snprintf(out + used, size - used, "%02x", secret[i]);
    explicit_bzero(secret, sizeof secret);
    note(RG_AUDIT_LINK, who, from, 0, NULL);
    return true;
}

void rg_reader_link(struct rg_monitor *monitor, const struct rg_monitor_question *question, int connection,
                    struct rg_monitor_answer *answered)
{
    struct rg_who who;
    answered->status = rg_who_is(&monitor->policy, &question->peer, connection, &who, answered);
    if (answered->status == RG_OK &&
        !rg_reader_make_link(monitor, &who, question->peer.address, answered->why, sizeof answered->why)) {
        answered->status = RG_ERR_REFUSED;
        answered->code = monitor->http.listener ? RG_REFUSAL_UNAUTHORISED : RG_REFUSAL_UNSUPPORTED;
    }
    rg_reply(&monitor->frontend, answered, NULL, 0);
    explicit_bzero(answered->why, sizeof answered->why);
}

/* --- doing -------------------------------------------------------------------------------------------------- */

/* Whether the reader may have it done. */
static enum rg_status may_act(struct rg_monitor *monitor, const struct rg_monitor_page *page,
                              const struct reading *reading, struct rg_monitor_answer *answered)
{
    const bool is_operator = reading->reader.scope == RG_READER_OPERATOR;
    if (reading->login && !rg_logins_guards(reading->login, page->guard))
        return refuse(answered, RG_ERR_UNSUPPORTED,
                      "the request does not come from the page that was logged in to; load the page anew");
    if (!is_operator && reading->reader.scope != RG_READER_OWN)
        return refuse(
            answered, RG_ERR_UNSUPPORTED,
            "nothing can be done by somebody who is not known: open the link that remote-gpu page, or on the "
            "server remote-gpud page, prints");
    if (page->action == RG_PAGE_DRAIN || page->action == RG_PAGE_UNDRAIN)
        return is_operator ? RG_OK
                           : refuse(answered, RG_ERR_UNSUPPORTED, "only operators of the server drain it");
    for (uint32_t i = 0; i < monitor->sessions.n; i++)
        if (monitor->sessions.entries[i]->info.id == page->session &&
            (is_operator || is_own(reading, monitor->sessions.entries[i])))
            return RG_OK;
    return refuse(answered, RG_ERR_NOT_FOUND, "you have no such session here");
}

void rg_reader_act(struct rg_monitor *monitor, const struct rg_monitor_question *question,
                   struct rg_monitor_answer *answered)
{
    static const enum rg_audit_event events[] = {
        [RG_PAGE_DRAIN] = RG_AUDIT_DRAIN,     [RG_PAGE_UNDRAIN] = RG_AUDIT_UNDRAIN,
        [RG_PAGE_SUSPEND] = RG_AUDIT_SUSPEND, [RG_PAGE_HOLD] = RG_AUDIT_SUSPEND,
        [RG_PAGE_RESUME] = RG_AUDIT_RESUME,   [RG_PAGE_END] = RG_AUDIT_END};
    const struct rg_monitor_page *page = &question->page;
    struct reading reading;
    if (find_reader(monitor, question, &reading, answered) != RG_OK ||
        may_act(monitor, page, &reading, answered) != RG_OK) {
        rg_reply(&monitor->http.process, answered, NULL, 0);
        return;
    }
    note(events[page->action], &reading.who, question->peer.address, page->session,
         page->action == RG_PAGE_HOLD ? "until it is resumed" : NULL);
    rg_requests_act(monitor->requests, monitor, page, question->number);
}
