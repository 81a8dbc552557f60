/* certificate_renewal.c - see certificate_renewal.h. */
#include "client/connect/certificate_renewal.h"

#include "client/core/session.h"
#include "client/credentials/connect.h"
#include "client/credentials/enrol.h"
#include "common/base/log.h"
#include "common/base/poll.h"
#include "common/base/thread.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { ANSWER_MS = 10000, RENEWAL_MS = 5000, PAUSE_MIN_S = 1, PAUSE_LATE_S = 60, PAUSE_MAX_S = 3600 };

#define PAUSES 4 /* in what is left of the certificate's life, of which each is a part of the rest */

/* A session's, and the thread's that looks after it. Seconds since 1970. */
struct standing {
    int64_t began, until; /* the server lets it stay until then; 0: there is no certificate */
    bool told;
};
static struct standing standings[RG_SERVERS_MAX];

/* Sessions that began together, by the first one's number. */
struct group {
    unsigned first, n;
};
static struct group groups[RG_SERVERS_MAX];

static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER; /* one thread at a time */

/* Shows the certificate to the server of the session. */
static enum rg_status show(const struct rg_session *session, const struct rg_credentials *credentials,
                           char *why, size_t why_size)
{
    static struct rg_control hello; /* who looks has it; large */
    rg_client_hello_init(&hello, RG_PURPOSE_STAY);
    hello.client_hello.resume_session = session->hello.session;
    return rg_client_ask(session->peer, session->server, credentials, &hello, ANSWER_MS, why, why_size);
}

static void look(const struct rg_session *session, struct standing *standing, int64_t now)
{
    static struct rg_credentials found;
    char why[RG_CONTROL_REASON] = "its files are as they were";
    enum rg_status status = rg_credentials_find(session->server, &found, why, sizeof why);
    if (status == RG_OK && found.found) {
        rg_enrol_renew(session->server, &found, RENEWAL_MS);
        if (found.not_after > standing->until && (status = show(session, &found, why, sizeof why)) == RG_OK) {
            rg_debug("%s lets the session stay by the renewed certificate", session->server);
            *standing = (struct standing){.began = now, .until = found.not_after};
            return;
        }
    }
    const int64_t left = standing->until - now;
    if (standing->told || left < 0 || left > (standing->until - standing->began) / 10)
        return;
    standing->told = true;
    rg_warn("the session on %s ends in %lld s, when its certificate expires, which was not renewed: %s",
            session->server, (long long)left, why);
}

static void look_at_all(const struct group *group, int64_t now)
{
    RG_SCOPED_LOCK(&looking);
    for (unsigned i = group->first; i < group->first + group->n; i++)
        if (standings[i].until && rg_session_goes_on(&rg_sessions[i]))
            look(&rg_sessions[i], &standings[i], now);
}

static void *watch(void *argument)
{
    const struct group *group = argument;
    rg_thread_expect_little();
    for (;;) {
        const int64_t now = (int64_t)time(NULL);
        int64_t pause = PAUSE_MAX_S;
        bool any = false;
        for (unsigned i = group->first; i < group->first + group->n; i++) {
            const int64_t left = standings[i].until - now;
            const int64_t part =
                left > 0 ? left / PAUSES : PAUSE_LATE_S; /* a server may let it stay all the same */
            if (!standings[i].until || !rg_session_goes_on(&rg_sessions[i]))
                continue;
            any = true;
            pause = part < pause ? part : pause;
        }
        if (!any)
            return NULL;
        /* by a clock that goes on while the machine sleeps */
        const struct timespec wait = {.tv_sec = pause < PAUSE_MIN_S ? PAUSE_MIN_S : pause};
        const int refused = clock_nanosleep(CLOCK_BOOTTIME, 0, &wait, NULL);
        if (refused && refused != EINTR)
            rg_pause((uint64_t)wait.tv_sec * 1000000000u);
        look_at_all(group, (int64_t)time(NULL));
    }
}

enum rg_status rg_certificate_renewal_start(unsigned first, unsigned n)
{
    struct group *group = &groups[first];
    const int64_t now = (int64_t)time(NULL);
    bool needed = false;
    *group = (struct group){first, n};
    for (unsigned i = first; i < first + n; i++) {
        const struct rg_credentials *credentials = &rg_sessions[i].credentials;
        standings[i] =
            (struct standing){.began = now, .until = credentials->found ? credentials->not_after : 0};
        needed |= standings[i].until != 0;
    }
    return needed ? rg_thread_create_detached("rg-stay", watch, group) : RG_OK;
}
