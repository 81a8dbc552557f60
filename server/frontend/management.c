/*
 * management.c - see management.h. The manager speaks over a socket that keeps messages apart: a question, an
 * answer.
 */
#include "server/frontend/management.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_TIMEOUT_MS 5000 /* the first includes the library's start */
#define CACHED_SIZE_MAX   1024 /* of question and answer each: larger ones are asked for every time */
/* NVML's results */
#define NOT_SUPPORTED 3
#define UNKNOWN       999

struct rg_management_cached {
    uint64_t until_ns;
    uint32_t question_size, answer_size;
    unsigned char question[CACHED_SIZE_MAX], answer[CACHED_SIZE_MAX];
};

void rg_management_init(struct rg_management *management, struct rg_monitor_link *link)
{
    *management = (struct rg_management){.link = link, .socket = -1};
    pthread_mutex_init(&management->lock, NULL);
    rg_cond_init(&management->turn);
}

/* One that does not answer is not waited for again. */
static void stop(struct rg_management *management)
{
    if (management->socket < 0)
        return;
    close(management->socket);
    management->socket = -1;
    rg_monitor_say(management->link, RG_ASK_STOP_MANAGER);
}

static bool start(struct rg_management *management)
{
    struct rg_monitor_question question = {.kind = RG_ASK_MANAGER};
    struct rg_monitor_answer answer;
    return rg_monitor_ask(management->link, &question, NULL, 0, -1, &answer, &management->socket) == RG_OK &&
           management->socket >= 0;
}

static bool ask(struct rg_management *management, const void *question, size_t question_size, void *answer,
                size_t *answer_size)
{
    if (send(management->socket, question, question_size, MSG_NOSIGNAL) != (ssize_t)question_size)
        return false;
    const uint64_t deadline = rg_now_ns() + ANSWER_TIMEOUT_MS * 1000000ull;
    for (;;) {
        const uint64_t now = rg_now_ns();
        struct pollfd wait = {.fd = management->socket, .events = POLLIN};
        const int ready = now < deadline ? poll(&wait, 1, (int)((deadline - now) / 1000000u) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            rg_warn("the driver's management library did not answer within %d s", ANSWER_TIMEOUT_MS / 1000);
            return false;
        }
        const ssize_t got = recv(management->socket, answer, RG_ANSWER_SIZE_MAX, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < (ssize_t)sizeof(uint32_t)) {
            rg_warn("the process that asks the driver's management library ended unexpectedly");
            return false;
        }
        *answer_size = (size_t)got;
        return true;
    }
}

/* Under lock: where the answer to a question is cached; NULL: nowhere. */
static struct rg_management_cached *find(struct rg_management *management, const void *question, size_t size)
{
    for (unsigned i = 0; i < RG_MANAGEMENT_KEPT && management->cached; i++)
        if (management->cached[i].question_size == size &&
            memcmp(management->cached[i].question, question, size) == 0)
            return &management->cached[i];
    return NULL;
}

/* Under lock. False: what is cached is too old, or there is nothing. */
static bool give_cached(struct rg_management *management, const void *question, size_t question_size,
                        void *answer, size_t *answer_size)
{
    const struct rg_management_cached *cached = find(management, question, question_size);
    if (!cached || rg_now_ns() >= cached->until_ns)
        return false;
    memcpy(answer, cached->answer, cached->answer_size);
    *answer_size = cached->answer_size;
    return true;
}

/* Under lock. Larger ones are not cached. */
static void put_cached(struct rg_management *management, const void *question, size_t question_size,
                       const void *answer, size_t answer_size)
{
    if (question_size > CACHED_SIZE_MAX || answer_size > CACHED_SIZE_MAX)
        return;
    if (!management->cached)
        management->cached = calloc(RG_MANAGEMENT_KEPT, sizeof *management->cached);
    if (!management->cached)
        return;
    struct rg_management_cached *cached = find(management, question, question_size);
    if (!cached)
        cached = &management->cached[management->next++ % RG_MANAGEMENT_KEPT];
    cached->question_size = (uint32_t)question_size;
    memcpy(cached->question, question, question_size);
    memcpy(cached->answer, answer, answer_size);
    cached->answer_size = (uint32_t)answer_size;
    cached->until_ns = rg_now_ns() + RG_MANAGEMENT_FRESH_NS;
}

static void say(int result, void *answer, size_t *answer_size)
{
    const uint32_t word = (uint32_t)result;
    memcpy(answer, &word, sizeof word);
    *answer_size = sizeof word;
}

/* Under lock: waits for the turn, but not for ever: each question before may take its time. */
static bool take_turn(struct rg_management *management)
{
    const struct timespec until = rg_timespec(rg_now_ns() + RG_MANAGEMENT_TURN_MS * 1000000ull);
    while (management->asks &&
           pthread_cond_timedwait(&management->turn, &management->lock, &until) != ETIMEDOUT)
        ;
    if (management->asks)
        return false;
    management->asks = true;
    return true;
}

/* By who has the turn. False: the answer is that nothing is known. */
static bool ask_manager(struct rg_management *management, const void *question, size_t question_size,
                        void *answer, size_t *answer_size)
{
    if (management->socket < 0 && !start(management)) {
        say(NOT_SUPPORTED, answer, answer_size);
        return false;
    }
    if (ask(management, question, question_size, answer, answer_size))
        return true;
    stop(management);
    say(UNKNOWN, answer, answer_size);
    return false;
}

void rg_management_ask(struct rg_management *management, const void *question, size_t question_size,
                       void *answer, size_t *answer_size)
{
    if (question_size == 0) {
        say(UNKNOWN, answer, answer_size);
        return;
    }
    pthread_mutex_lock(&management->lock);
    if (give_cached(management, question, question_size, answer, answer_size)) {
        pthread_mutex_unlock(&management->lock);
        return;
    }
    if (!take_turn(management)) {
        pthread_mutex_unlock(&management->lock);
        say(UNKNOWN, answer, answer_size);
        return;
    }
    /* who had the turn before may have asked the same */
    if (!give_cached(management, question, question_size, answer, answer_size)) {
        pthread_mutex_unlock(&management->lock);
        const bool good = ask_manager(management, question, question_size, answer, answer_size);
        pthread_mutex_lock(&management->lock);
        if (good)
            put_cached(management, question, question_size, answer, *answer_size);
    }
    management->asks = false;
    pthread_cond_signal(&management->turn);
    pthread_mutex_unlock(&management->lock);
}
