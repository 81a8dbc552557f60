/* management.c - several who ask the driver's management library at once, on a machine whose time of day changes. */
#include "server/frontend/management.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EARLIER_S 5000

/* In the place of libc's: by it the time of day is another than by the kernel, as if it had been set between two looks at it. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int result = (int)syscall(SYS_clock_gettime, clock, out);
    if (result == 0 && clock == CLOCK_REALTIME)
        out->tv_sec -= EARLIER_S;
    return result;
}

static struct rg_management management;
static int manager = -1; /* the manager's end */

static void start(void)
{
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    rg_management_init(&management, NULL);
    management.socket = ends[0];
    manager = ends[1];
}

struct asker {
    uint32_t question, answer;
    size_t answer_size;
};

/* A thread that asks, and waits for the answer. */
static void *ask(void *argument)
{
    static _Thread_local unsigned char answer[RG_ANSWER_SIZE_MAX];
    struct asker *asker = argument;
    rg_management_ask(&management, &asker->question, sizeof asker->question, answer, &asker->answer_size);
    memcpy(&asker->answer, answer, sizeof asker->answer);
    return NULL;
}

static uint32_t next_question(void)
{
    uint32_t question = 0;
    cr_assert_eq(recv(manager, &question, sizeof question, 0), (ssize_t)sizeof question);
    return question;
}

static void answer(uint32_t with)
{
    cr_assert_eq(send(manager, &with, sizeof with, MSG_NOSIGNAL), (ssize_t)sizeof with);
}

Test(management, who_waits_for_a_turn_waits_by_no_time_of_day, .init = start)
{
    struct asker first = {.question = 1}, second = {.question = 2};
    pthread_t threads[2];
    cr_assert_eq(pthread_create(&threads[0], NULL, ask, &first), 0);
    cr_assert_eq(next_question(), 1u);
    cr_assert_eq(pthread_create(&threads[1], NULL, ask, &second), 0);
    usleep(200000); /* it waits by now, or has given up */
    answer(11);
    pthread_join(threads[0], NULL);
    struct pollfd wait = {.fd = manager, .events = POLLIN};
    cr_assert_eq(poll(&wait, 1, 20000), 1, "the second did not wait for its turn");
    cr_assert_eq(next_question(), 2u);
    answer(12);
    pthread_join(threads[1], NULL);
    cr_expect_eq(first.answer, 11u);
    cr_expect_eq(second.answer, 12u);
}
