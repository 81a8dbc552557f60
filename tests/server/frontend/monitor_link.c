/* monitor_link.c - many who ask the monitor at once: those who wait for the pool leave room for others. */
#include "server/frontend/monitor_link.h"
#include "common/base/packet.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>

static struct rg_monitor_link link_to_monitor;
static int monitor = -1; /* the monitor's end */

static void start(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    monitor = ends[0];
    rg_monitor_link_init(&link_to_monitor, ends[1]);
}

/* A thread that asks, and waits for the answer. */
static void *ask(void *kind)
{
    struct rg_monitor_question question;
    struct rg_monitor_answer answer;
    memset(&question, 0, sizeof question);
    question.kind = *(const enum rg_monitor_question_kind *)kind;
    cr_assert_eq(rg_monitor_ask(&link_to_monitor, &question, NULL, 0, -1, &answer, NULL), RG_OK);
    return NULL;
}

static pthread_t begin_asking(enum rg_monitor_question_kind *kind)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, ask, kind), 0);
    return thread;
}

/* What the monitor is asked next. */
static struct rg_monitor_question next_question(void)
{
    struct rg_monitor_question question;
    unsigned n_fds;
    cr_assert_eq(rg_packet_receive(monitor, 0, &question, sizeof question, NULL, 0, &n_fds), RG_OK);
    return question;
}

static void answer(uint64_t number)
{
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    memset(&word, 0, sizeof word);
    word.kind = RG_TELL_ANSWER;
    word.answer.number = number;
    cr_assert(rg_packet_send(monitor, &word, sizeof word, NULL, 0));
    cr_assert_eq(rg_monitor_link_receive(&link_to_monitor, MSG_DONTWAIT, &word, fds, &n_fds), RG_ERR_TIMEOUT);
}

Test(monitor_link, a_pool_that_answers_nothing, .init = start, .timeout = 120)
{
    static enum rg_monitor_question_kind lease = RG_ASK_LEASE, check = RG_ASK_CHECK;
    struct rg_monitor_question question;
    uint64_t first = 0;
    for (int i = 0; i < 2 * RG_MONITOR_QUESTIONS_AT_ONCE; i++)
        (void)begin_asking(&lease);
    for (int i = 0; i < RG_MONITOR_QUESTIONS_AT_ONCE / 2; i++) {
        question = next_question();
        cr_assert_eq(question.kind, RG_ASK_LEASE);
        first = first ? first : question.number;
    }
    for (int i = 0; i < 2 * RG_MONITOR_QUESTIONS_AT_ONCE; i++) {
        const pthread_t other = begin_asking(&check);
        question = next_question();
        cr_assert_eq(question.kind, RG_ASK_CHECK, "all places are those of who waits for the pool");
        answer(question.number);
        cr_assert_eq(pthread_join(other, NULL), 0);
    }
    answer(first); /* and the next one is asked */
    cr_assert_eq(next_question().kind, RG_ASK_LEASE);
}
