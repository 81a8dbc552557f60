/* monitor_link.c - see monitor_link.h. */
#include "server/frontend/monitor_link.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "common/sync/scoped_lock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Somebody who waits for an answer; on the stack of its thread. */
struct rg_monitor_waiter {
    struct rg_monitor_waiter *next;
    uint64_t number;
    struct rg_monitor_answer *answer;
    int fd;
    bool answered;
    pthread_cond_t changed;
};

void rg_monitor_link_init(struct rg_monitor_link *link, int socket)
{
    *link = (struct rg_monitor_link){.socket = socket, .next_number = 1};
    pthread_mutex_init(&link->lock, NULL);
    rg_cond_init(&link->room);
}

/* Under lock. The monitor reads all the time, but may be about to start a worker. */
static bool send_question(struct rg_monitor_link *link, const struct rg_monitor_question *question,
                          const int *fds, unsigned n_fds)
{
    while (!rg_packet_send(link->socket, question, sizeof *question, fds, n_fds)) {
        struct pollfd wait = {.fd = link->socket, .events = POLLOUT};
        if (errno != EAGAIN && errno != ENOBUFS && errno != ETOOMANYREFS)
            return false;
        (void)poll(&wait, 1, errno == EAGAIN ? 1000 : 1);
    }
    return true;
}

static void remove_waiter(struct rg_monitor_link *link, const struct rg_monitor_waiter *waiter)
{
    struct rg_monitor_waiter **at = &link->waiters;
    while (*at && *at != waiter)
        at = &(*at)->next;
    if (*at)
        *at = waiter->next;
}

/* Under lock. The place of a question about a lease; of number 0 one that is free; NULL: there is none. */
static uint64_t *lease_of(struct rg_monitor_link *link, uint64_t number)
{
    for (unsigned i = 0; i < RG_MONITOR_LEASES_AT_ONCE; i++)
        if (link->leases[i] == number)
            return &link->leases[i];
    return NULL;
}

/* Under lock. */
static bool has_room(struct rg_monitor_link *link, enum rg_monitor_question_kind kind)
{
    return link->asked < RG_MONITOR_QUESTIONS_AT_ONCE && (kind != RG_ASK_LEASE || lease_of(link, 0));
}

/* Under lock. A monitor that answers nothing leaves none. False: the time is over. */
static bool wait_for_room(struct rg_monitor_link *link, enum rg_monitor_question_kind kind,
                          const struct timespec *until)
{
    while (!has_room(link, kind))
        if (!until)
            pthread_cond_wait(&link->room, &link->lock);
        else if (pthread_cond_timedwait(&link->room, &link->lock, until) == ETIMEDOUT)
            return has_room(link, kind);
    return true;
}

/* Under lock. The question is counted until it is answered, also if nobody waits for that any more. */
static void begin_question(struct rg_monitor_link *link, struct rg_monitor_question *question)
{
    question->number = link->next_number++;
    link->asked++;
    if (question->kind == RG_ASK_LEASE)
        *lease_of(link, 0) = question->number;
}

/* Under lock. All who wait look: not every one of them may ask now. */
static void end_question(struct rg_monitor_link *link, uint64_t number)
{
    uint64_t *lease = lease_of(link, number);
    if (lease)
        *lease = 0;
    link->asked--;
    pthread_cond_broadcast(&link->room);
}

enum rg_status rg_monitor_ask(struct rg_monitor_link *link, struct rg_monitor_question *question,
                              const int *fds, unsigned n_fds, int timeout_ms,
                              struct rg_monitor_answer *answer, int *fd)
{
    struct rg_monitor_waiter waiter = {.answer = answer, .fd = -1};
    const struct timespec until =
        rg_timespec(rg_now_ns() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * 1000000u);
    pthread_mutex_lock(&link->lock);
    if (!wait_for_room(link, question->kind, timeout_ms < 0 ? NULL : &until)) {
        pthread_mutex_unlock(&link->lock);
        if (fd)
            *fd = -1;
        return RG_ERR_TIMEOUT;
    }
    rg_cond_init(&waiter.changed);
    begin_question(link, question);
    waiter.number = question->number;
    waiter.next = link->waiters;
    link->waiters = &waiter;
    enum rg_status status = send_question(link, question, fds, n_fds) ? RG_OK : RG_ERR_LOST;
    if (status != RG_OK) /* no answer will come that makes room for another */
        end_question(link, question->number);
    while (status == RG_OK && !waiter.answered)
        if (timeout_ms < 0)
            pthread_cond_wait(&waiter.changed, &link->lock);
        else if (pthread_cond_timedwait(&waiter.changed, &link->lock, &until) == ETIMEDOUT &&
                 !waiter.answered)
            status = RG_ERR_TIMEOUT;
    remove_waiter(link, &waiter);
    pthread_mutex_unlock(&link->lock);
    pthread_cond_destroy(&waiter.changed);
    if (fd)
        *fd = waiter.fd;
    else if (waiter.fd >= 0)
        close(waiter.fd);
    return status;
}

void rg_monitor_say(struct rg_monitor_link *link, enum rg_monitor_question_kind kind)
{
    struct rg_monitor_question question;
    memset(&question, 0, sizeof question);
    question.kind = kind;
    RG_SCOPED_LOCK(&link->lock);
    if (kind == RG_ASK_ALIVE) {
        question.refused = link->refused;
        memset(&link->refused, 0, sizeof link->refused);
    }
    if (!send_question(link, &question, NULL, 0))
        rg_debug("the monitor could not be told: %s", strerror(errno));
}

void rg_monitor_count_refused(struct rg_monitor_link *link, enum rg_refusal_code code)
{
    RG_SCOPED_LOCK(&link->lock);
    uint32_t *n = &link->refused.n[rg_refusal_place(code)];
    *n += *n < UINT32_MAX;
}

static void give(struct rg_monitor_link *link, const struct rg_monitor_answer *answer, const int *fds,
                 unsigned n_fds)
{
    RG_SCOPED_LOCK(&link->lock);
    end_question(link, answer->number);
    struct rg_monitor_waiter *waiter = link->waiters;
    while (waiter && waiter->number != answer->number)
        waiter = waiter->next;
    if (!waiter) { /* it waits no more */
        rg_packet_close(fds, n_fds);
        return;
    }
    *waiter->answer = *answer;
    waiter->fd = n_fds > 0 ? fds[0] : -1;
    waiter->answered = true;
    remove_waiter(link, waiter);
    pthread_cond_signal(&waiter->changed);
}

bool rg_monitor_link_settings(struct rg_monitor_link *link, struct rg_monitor_settings *settings, int *fds,
                              unsigned *n_fds)
{
    return rg_packet_receive(link->socket, 0, settings, sizeof *settings, fds, RG_PACKET_FDS_MAX, n_fds) ==
               RG_OK &&
           settings->n_listeners <= RG_LISTENERS_MAX;
}

enum rg_status rg_monitor_link_receive(struct rg_monitor_link *link, int flags, struct rg_monitor_word *word,
                                       int *fds, unsigned *n_fds)
{
    for (;;) {
        const enum rg_status status =
            rg_packet_receive(link->socket, flags, word, sizeof *word, fds, RG_PACKET_FDS_MAX, n_fds);
        if (status == RG_ERR_LIMIT && word->kind != RG_TELL_ANSWER)
            return RG_OK; /* without its descriptors */
        if ((status != RG_OK && status != RG_ERR_LIMIT) || word->kind != RG_TELL_ANSWER)
            return status == RG_ERR_PROTOCOL ? RG_ERR_CLOSED : status;
        give(link, &word->answer, fds, *n_fds);
    }
}

char *rg_monitor_link_read_pem(int file, const struct rg_monitor_tls *tls, struct rg_tls_pem *out)
{
    enum { MOST = 1 << 20 };
    const size_t size = (size_t)tls->authority_size + tls->certificate_size;
    char *pem = size <= MOST ? malloc(size + 1) : NULL;
    if (!pem || pread(file, pem, size, 0) != (ssize_t)size) {
        rg_error("the server's certificate could not be received");
        free(pem);
        return NULL;
    }
    *out = (struct rg_tls_pem){.ca = pem,
                               .ca_size = tls->authority_size,
                               .certificate = pem + tls->authority_size,
                               .certificate_size = tls->certificate_size};
    return pem;
}

enum rg_status rg_monitor_sign(void *link, const struct rg_tls_to_sign *what,
                               uint8_t signature[RG_TLS_SERVER_SIGNATURE_SIZE], size_t *size)
{
    _Static_assert((int)RG_MONITOR_SIGNATURE == (int)RG_TLS_SERVER_SIGNATURE_SIZE,
                   "an answer is a signature");
    _Static_assert((int)RG_MONITOR_HANDSHAKE == (int)RG_TLS_SECRET_SIZE, "a question holds a hash");
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    memset(&question, 0, sizeof question);
    question.kind = RG_ASK_SIGN;
    question.peer.proof = RG_PROOF_NONE;
    question.sign.generation = what->generation;
    question.sign.digest = what->digest;
    question.sign.hash_size = what->hash_size;
    memcpy(question.sign.hash, what->hash, what->hash_size);
    RG_TRY(rg_monitor_ask(link, &question, NULL, 0, RG_HELLO_TIMEOUT_MS, &answer, NULL));
    if (answer.status != RG_OK || answer.signature_size > RG_TLS_SERVER_SIGNATURE_SIZE)
        return RG_ERR_REFUSED;
    memcpy(signature, answer.signature, answer.signature_size);
    *size = answer.signature_size;
    return RG_OK;
}
