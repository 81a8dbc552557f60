/* question.c - see question.h. */
#include "server/daemon/monitor/question.h"

#include "common/base/addresses.h"
#include "common/base/printable.h"
#include "server/identity/identity.h"

static void end_text(char *text, size_t size)
{
    text[size - 1] = 0;
    rg_printable_clean(text);
}

/* Whether the question may come with so many descriptors. */
static bool check_fds(const struct rg_monitor_question *question, unsigned n_fds)
{
    switch (question->kind) {
    case RG_ASK_USAGE:
    case RG_ASK_QUOTA:
    case RG_ASK_CONNECT:
    case RG_ASK_LINK:
    case RG_ASK_OWNS:
        return n_fds == 1;
    case RG_ASK_POOL:
        return n_fds == 2;
    case RG_ASK_START:
    case RG_ASK_HAND_OVER:
        return n_fds == (question->peer.encrypted ? 3 : 2);
    case RG_ASK_READY:
    case RG_ASK_ALIVE:
    case RG_ASK_PROBE:
    case RG_ASK_MANAGER:
    case RG_ASK_STOP_MANAGER:
    case RG_ASK_CHECK:
    case RG_ASK_STAY:
    case RG_ASK_JOIN:
    case RG_ASK_RENEW:
    case RG_ASK_LEASE:
    case RG_ASK_LOOK:
    case RG_ASK_SIGN:
    case RG_ASK_LIST:
    case RG_ASK_LINKS:
    case RG_ASK_LOGIN:
    case RG_ASK_LOGOUT:
    case RG_ASK_ACT:
        return n_fds == 0;
    }
    return false;
}

static bool check_peer(struct rg_monitor_peer *peer)
{
    end_text(peer->address, sizeof peer->address);
    end_text(peer->name, sizeof peer->name);
    if (peer->serial_size > sizeof peer->serial || peer->encrypted > 1)
        return false;
    return peer->proof == RG_PROOF_NONE || peer->proof == RG_PROOF_USER ||
           (peer->proof == RG_PROOF_CERTIFICATE && peer->encrypted && peer->name[0]);
}

static bool check_share(const struct rg_share_wish *share)
{
    return share->memory_millionths <= 1000000 && share->compute_millionths <= 1000000 &&
           share->weight <= RG_SHARE_WEIGHT_MAX && (unsigned)share->priority <= RG_SHARE_PRIORITY_HIGH &&
           share->exclusive <= 1;
}

/* Numbers that a worker's command line may have; that they are those of the hello the worker finds out itself. */
static bool check_shape(const struct rg_shape *shape)
{
    return shape->window_start <= RG_ADDRESS_END &&
           shape->window_size <= RG_ADDRESS_END - shape->window_start &&
           (shape->window_start | shape->window_size) % RG_ADDRESS_PAGE == 0 && shape->capability < 1000;
}

static bool check_start(struct rg_monitor_start *start)
{
    end_text(start->claimed.host, sizeof start->claimed.host);
    end_text(start->claimed.user, sizeof start->claimed.user);
    end_text(start->claimed.command, sizeof start->claimed.command);
    end_text(start->share.project, sizeof start->share.project);
    return start->n_gpu_indices <= RG_DEVICES_MAX && check_share(&start->share) &&
           check_shape(&start->shape) &&
           (start->purpose == RG_PURPOSE_SESSION || start->purpose == RG_PURPOSE_NETPERF);
}

static bool check_usage(struct rg_usage_question *usage)
{
    end_text(usage->user, sizeof usage->user);
    end_text(usage->project, sizeof usage->project);
    return usage->by >= RG_USAGE_BY_USER && usage->by <= RG_USAGE_BY_LAST && usage->skip <= INT64_MAX &&
           usage->has_project <= 1;
}

static bool check_hand_over(const struct rg_monitor_hand_over *hand_over)
{
    return hand_over->purpose == RG_PURPOSE_BULK || hand_over->purpose == RG_PURPOSE_RESUME ||
           hand_over->purpose == RG_PURPOSE_PEER || hand_over->purpose == RG_PURPOSE_INTRODUCE ||
           hand_over->purpose == RG_PURPOSE_INVITE;
}

/* Hashes of handshakes are SHA-256's and SHA-384's. */
static bool check_sign(const struct rg_monitor_sign *sign)
{
    return sign->digest < RG_IDENTITY_DIGESTS && (sign->hash_size == 32 || sign->hash_size == 48);
}

static bool check_page(struct rg_monitor_page *page, bool acts)
{
    if (page->proof == RG_READER_BEARER)
        page->bearer[sizeof page->bearer - 1] = 0;
    return page->proof >= RG_READER_NONE && page->proof <= RG_READER_BEARER && page->names <= 1 &&
           page->health <= 1 && (!acts || (page->action >= RG_PAGE_DRAIN && page->action <= RG_PAGE_END));
}

bool rg_question_check(struct rg_monitor_question *question, unsigned n_fds)
{
    if (!check_fds(question, n_fds))
        return false;
    switch (question->kind) {
    case RG_ASK_START:
        return check_peer(&question->peer) && check_start(&question->start);
    case RG_ASK_HAND_OVER:
        return check_peer(&question->peer) && check_hand_over(&question->hand_over);
    case RG_ASK_CONNECT:
        return check_peer(&question->peer) && question->connect.is_ipv6 <= 1 && question->connect.port;
    case RG_ASK_USAGE:
        return check_peer(&question->peer) && check_usage(&question->usage);
    case RG_ASK_QUOTA:
        end_text(question->usage.project, sizeof question->usage.project);
        return check_peer(&question->peer);
    case RG_ASK_POOL:
        return check_peer(&question->peer) && question->pool.size <= RG_QUESTION_SIZE_MAX;
    case RG_ASK_LINK:
    case RG_ASK_OWNS:
        return check_peer(&question->peer);
    case RG_ASK_LOOK:
    case RG_ASK_LIST:
    case RG_ASK_LINKS:
    case RG_ASK_LOGIN:
    case RG_ASK_LOGOUT:
    case RG_ASK_ACT:
        /* the frontend's look has nothing in it */
        return question->peer.proof == 0 ||
               (check_peer(&question->peer) && question->peer.proof != RG_PROOF_USER &&
                check_page(&question->page, question->kind == RG_ASK_ACT));
    case RG_ASK_CHECK:
    case RG_ASK_STAY:
    case RG_ASK_RENEW:
        return check_peer(&question->peer) && question->peer.proof == RG_PROOF_CERTIFICATE;
    case RG_ASK_JOIN:
        return check_peer(&question->peer) && question->peer.encrypted;
    case RG_ASK_SIGN:
        return check_sign(&question->sign);
    default:
        return true;
    }
}
