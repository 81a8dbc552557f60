/*
 * rails.c - the ways of each session, and what goes by which of them (rails.h).
 *
 * A session's ways are found once, when a connection for bulk data is first wanted: the address that it began at, then those that the
 * server has told. Which of them are rails is looked at each time (plan), as links come and go. A channel gets the rail that has
 * the fewest; one that cannot be had, or is lost, is left alone for a while. The first connection is made anew by the way in use, then by
 * the others in their order. Nothing here ends a session: what fails is logged and tried again.
 */
#include "client/connect/rails.h"

#include "client/core/session.h"
#include "client/credentials/connect.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/sync/adaptive.h"
#include "common/sync/scoped_lock.h"
#include "transport/address.h"
#include "transport/liveness.h"
#include "transport/multipath/join.h"
#include "transport/multipath/multipath.h"
#include "transport/resumable/resumable.h"
#include "transport/state.h"
#include "transport/topology/choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAYS = RG_CONN_RAILS, FIRST_PASS_MS = 1500, LINKS = 16, NO_RAIL = -1 };

static const struct rg_adaptive_range pause_ns = {
    .least = RG_RAILS_AGAIN_NS, .first = RG_RAILS_AGAIN_NS, .most = 60000000000u};
static const uint64_t holds_ns = 30000000000u;

/* An address of the server's; the first is the one that the session began at. */
struct way {
    char host[RG_CONTROL_NUMBER];
    char address[RG_CONTROL_NUMBER + 16];
    uint32_t there; /* the server's link */
    bool lost;
    uint64_t not_before_ns, opened_ns;
    struct rg_adaptive pause;
};

/* One a session. */
static struct ways {
    pthread_mutex_t lock;
    bool known, told;
    unsigned n;
    struct way items[WAYS];
    unsigned now;                               /* by which the first connection goes, or is to go */
    bool returning;                             /* it is to go back to the one that the session began at */
    unsigned of_channel[RG_MULTIPATH_CHANNELS]; /* which way each goes */
} all_ways[RG_SERVERS_MAX] = {[0 ... RG_SERVERS_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

static struct ways *ways_of(const struct rg_session *session)
{
    return &all_ways[session - rg_sessions];
}

static void add_way(struct ways *ways, const char *host, uint16_t port, uint32_t there)
{
    if (ways->n == WAYS)
        return;
    struct way *way = &ways->items[ways->n++];
    const bool brackets = strchr(host, ':') != NULL;
    snprintf(way->host, sizeof way->host, "%s", host);
    snprintf(way->address, sizeof way->address, "%s%s%s:%u", brackets ? "[" : "", host, brackets ? "]" : "",
             port);
    way->there = there;
}

/* What the session began at, then what the server has told; the lock is held. */
static void find_ways(const struct rg_session *session, struct ways *ways)
{
    const struct rg_server_hello *hello = &session->hello;
    struct rg_address peer;
    if (ways->known || !*session->peer || rg_address_parse(session->peer, &peer, NULL, 0) != RG_OK ||
        strlen(peer.host) >= RG_CONTROL_NUMBER)
        return;
    ways->known = true;
    uint32_t there =
        UINT32_MAX; /* a number that the server's interfaces do not have: it is translated on the way */
    for (uint32_t i = 0; i < hello->n_tcp_addresses; i++)
        if (strcmp(hello->tcp_addresses[i], peer.host) == 0)
            there = hello->tcp_rails[i];
    add_way(ways, peer.host, peer.port, there);
    for (uint32_t i = 0; i < hello->n_tcp_addresses; i++)
        if (rg_rail_is_candidate(hello->tcp_addresses[i]) && strcmp(hello->tcp_addresses[i], peer.host) != 0)
            add_way(ways, hello->tcp_addresses[i], peer.port, hello->tcp_rails[i]);
}

bool rg_rails_possible(const struct rg_session *session)
{
    const struct rg_server_hello *hello = &session->hello;
    return hello->n_tcp_addresses && session->credentials.found &&
           (hello->capabilities & RG_CONTROL_CAP_RESUME) && hello->bulk_connections &&
           rg_rails_wanted() > 1 && strncmp(session->peer, "127.", 4) != 0 &&
           strncmp(session->peer, "[::1]", 5) != 0;
}

/* --- which ways are rails now --- */

/* The ways that are rails as things are, the first connection's first; the lock is held. Returns how many. */
static unsigned plan(const struct ways *ways, unsigned out[WAYS], enum rg_rail_verdict verdicts[WAYS])
{
    struct rg_rail links[LINKS];
    struct rg_rail_way looked[WAYS];
    const unsigned n_links = rg_rails_links(links, LINKS);
    for (unsigned i = 0; i < ways->n; i++)
        looked[i] = rg_rail_look(ways->items[i].host, ways->items[i].there, links, n_links);
    return rg_rail_choose(looked, ways->n, ways->now, rg_rails_wanted(), rg_rails_named(), out, verdicts);
}

/* Once: which of the server's addresses carry nothing, and why; the lock is held. */
static void tell_unused(struct rg_session *session, struct ways *ways)
{
    unsigned rails[WAYS];
    enum rg_rail_verdict verdicts[WAYS];
    if (!ways->known || ways->told)
        return;
    ways->told = true;
    (void)plan(ways, rails, verdicts);
    for (unsigned i = 0; i < ways->n; i++) {
        if (verdicts[i] == RG_RAIL_USED)
            continue;
        snprintf(session->stats.unused[i].address, sizeof session->stats.unused[i].address, "%s",
                 ways->items[i].host);
        session->stats.unused[i].why = rg_rail_words(verdicts[i]);
        rg_info("%s: no bulk data goes by %s: %s", session->server, ways->items[i].host,
                rg_rail_words(verdicts[i]));
    }
}

/* --- channels --- */

/* Of the rails that may be tried now, that with the fewest of the first `index` channels; the lock is held. */
static int choose(const struct ways *ways, unsigned index, bool one_each, const bool tried[WAYS])
{
    unsigned rails[WAYS], least = UINT32_MAX;
    const unsigned n = plan(ways, rails, NULL);
    const uint64_t now = rg_now_ns();
    int best = NO_RAIL;
    for (unsigned i = 0; i < n; i++) {
        unsigned has = 0;
        for (unsigned k = 0; k < index; k++)
            has += ways->of_channel[k] == rails[i];
        if (tried[rails[i]] || now < ways->items[rails[i]].not_before_ns || has >= least)
            continue;
        least = has;
        best = (int)rails[i];
    }
    return one_each && least > 0 ? NO_RAIL : best;
}

/* It could not be had, or is lost; the lock is held. */
static void leave_alone(struct rg_session *session, unsigned number)
{
    struct way *way = &ways_of(session)->items[number];
    struct rg_stats_rail *told = &session->stats.rails[number];
    if (way->opened_ns && rg_now_ns() - way->opened_ns >= holds_ns)
        rg_adaptive_reset(&way->pause);
    if (!way->lost && *told->address)
        told->lost++;
    way->lost = true;
    way->not_before_ns = rg_now_ns() + rg_adaptive_raise(&way->pause, &pause_ns);
}

static void opened(struct rg_session *session, struct ways *ways, unsigned index, unsigned number)
{
    RG_SCOPED_LOCK(&ways->lock);
    struct way *way = &ways->items[number];
    struct rg_stats_rail *told = &session->stats.rails[number];
    ways->of_channel[index] = number;
    if (*told->address && way->lost) {
        rg_info("%s: the rail to %s is there again", session->server, way->host);
        told->returned++;
    } else if (!*told->address) {
        rg_info("%s: bulk data goes by %s", session->server, way->host);
    }
    snprintf(told->address, sizeof told->address, "%s", way->host);
    way->lost = false;
    way->opened_ns = rg_now_ns();
}

/* The address that the session began at is there again: calls go back to it, as after a loss. */
static void go_back(struct rg_session *session, struct ways *ways)
{
    pthread_mutex_lock(&ways->lock);
    const bool back = ways->now != 0;
    if (back) {
        ways->now = 0;
        ways->returning = true;
    }
    pthread_mutex_unlock(&ways->lock);
    if (back)
        rg_resumable_drop(session->conn);
}

struct rg_conn *rg_rails_open(struct rg_session *session, unsigned index, bool one_each)
{
    struct ways *ways = ways_of(session);
    struct rg_tls_client tls;
    bool tried[WAYS] = {false};
    for (;;) {
        char address[sizeof ways->items[0].address], why[768] = "";
        struct rg_conn *conn = NULL;
        pthread_mutex_lock(&ways->lock);
        find_ways(session, ways);
        tell_unused(session, ways);
        const int number =
            ways->known && index < RG_MULTIPATH_CHANNELS ? choose(ways, index, one_each, tried) : NO_RAIL;
        if (number != NO_RAIL)
            snprintf(address, sizeof address, "%s", ways->items[number].address);
        pthread_mutex_unlock(&ways->lock);
        if (number == NO_RAIL)
            return NULL;
        if (rg_multipath_join(address, rg_credentials_tls(&session->credentials, &tls), &session->hello,
                              &conn, why, sizeof why) == RG_OK) {
            rg_liveness_watch_closely(conn);
            opened(session, ways, index, (unsigned)number);
            if (number == 0)
                go_back(session, ways);
            return conn;
        }
        rg_info("no further connection to %s at %s for bulk data: %s", session->server, address, why);
        tried[number] = true;
        RG_SCOPED_LOCK(&ways->lock);
        leave_alone(session, (unsigned)number);
    }
}

unsigned rg_rails_of(void *user, unsigned place)
{
    const struct rg_session *session = user;
    struct ways *ways = ways_of(session);
    RG_SCOPED_LOCK(&ways->lock);
    return place == 0 || place > RG_MULTIPATH_CHANNELS ? ways->now : ways->of_channel[place - 1];
}

void rg_rails_lost(void *user, unsigned index)
{
    struct rg_session *session = user;
    struct ways *ways = ways_of(session);
    RG_SCOPED_LOCK(&ways->lock);
    if (index < RG_MULTIPATH_CHANNELS && ways->known)
        leave_alone(session, ways->of_channel[index]);
}

/* --- the first connection --- */

enum rg_status rg_rails_renew(struct rg_session *session, int timeout_ms, char *why, size_t why_size,
                              unsigned *number, struct rg_conn **out)
{
    struct ways *ways = ways_of(session);
    struct rg_transport_options options = {.connect_timeout_ms = timeout_ms};
    bool may_go[WAYS] = {true};
    unsigned n = 1, first = 0;
    if (rg_rails_possible(session)) {
        struct rg_rail links[LINKS];
        const unsigned n_links = rg_rails_links(links, LINKS);
        RG_SCOPED_LOCK(&ways->lock);
        find_ways(session, ways);
        n = ways->known ? ways->n : 1;
        first = ways->now;
        for (unsigned i = 1; i < n; i++) {
            const struct rg_rail_way way =
                rg_rail_look(ways->items[i].host, ways->items[i].there, links, n_links);
            may_go[i] = i == first || rg_rail_judge(&way, rg_rails_named()) == RG_RAIL_USED;
        }
    }
    enum rg_status status = RG_ERR_UNREACHABLE;
    for (unsigned turn = 0; turn < n; turn++) { /* the one in use, then the others in their order */
        const unsigned i = turn == 0 ? first : turn <= first ? turn - 1 : turn;
        char reason[512] = "";
        if (!may_go[i])
            continue;
        if (n > 1 && timeout_ms > FIRST_PASS_MS)
            options.connect_timeout_ms = FIRST_PASS_MS;
        const enum rg_status one =
            rg_client_connect_again(i == 0 ? session->server : ways->items[i].address, &options,
                                    &session->credentials, reason, sizeof reason, out);
        *number = i;
        if (one == RG_OK) {
            rg_liveness_watch_closely(*out);
            return RG_OK;
        }
        if (n > 1) {
            RG_SCOPED_LOCK(&ways->lock);
            leave_alone(session, i);
        }
        if (i == 0 || turn == 0) { /* what the address that the user has named says is told */
            rg_explain(why, why_size, "%s", reason);
            status = one;
        }
    }
    return status;
}

void rg_rails_use(struct rg_session *session, unsigned number)
{
    struct ways *ways = ways_of(session);
    RG_SCOPED_LOCK(&ways->lock);
    if (number != ways->now && number < ways->n)
        rg_warn("%s: calls go by %s now", session->server, ways->items[number].host);
    ways->now = number;
    ways->returning = ways->returning && number == 0;
}

bool rg_rails_returned(struct rg_session *session)
{
    struct ways *ways = ways_of(session);
    RG_SCOPED_LOCK(&ways->lock);
    const bool returned = ways->returning;
    ways->returning = false;
    return returned;
}

const char *rg_rails_address(const struct rg_session *session)
{
    struct ways *ways = ways_of(session);
    RG_SCOPED_LOCK(&ways->lock);
    return ways->now ? ways->items[ways->now].address : session->server;
}
