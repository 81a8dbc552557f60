/* asks.c - many clients of the pool at one server: one user leaves room for others. */
#include "common/base/file.h"
#include "server/pool/agent.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rg_agent agent;
static int question = -1;
static uint32_t question_size;

/* A member at rest: what clients ask waits until all of the pool has been read. */
static void start(void)
{
    static const char text[] = "{\"ask\":\"list\"}";
    const char *endpoint = "http://127.0.0.1:1";
    const struct rg_etcd_settings settings = {.endpoints = &endpoint, .n_endpoints = 1};
    char why[RG_ETCD_WHY] = "";
    struct rlimit files = {.rlim_cur = 0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    agent.etcd = rg_etcd_create(&settings, why, sizeof why);
    cr_assert_not_null(agent.etcd, "%s", why);
    agent.scope.narrow = true;
    agent.mirror.revision = 1;
    question_size = sizeof text - 1;
    question = rg_file_in_memory("question", text, question_size);
}

/* Asks as somebody. True: it is being answered; else `said` is what was refused. */
static bool ask(const char *key, char *said, size_t size)
{
    struct rg_agent_word word = {.kind = RG_AGENT_ASK};
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    word.ask.size = question_size;
    snprintf(word.ask.key, sizeof word.ask.key, "%s", key);
    rg_asks_take(&agent, &word, ends[1], question);
    const ssize_t got = recv(ends[0], said, size - 1, MSG_DONTWAIT);
    said[got > 0 ? got : 0] = '\0';
    return got < 0; /* and else a refusal, or the end */
}

Test(asks, one_user_leaves_room_for_others, .init = start)
{
    char said[2048], key[32];
    uint32_t n = 0;
    while (n < RG_POOL_CLIENTS_MAX && ask("2 alice", said, sizeof said))
        n++;
    cr_assert_eq(n, RG_POOL_CLIENTS_MAX / 4 * 3);
    cr_expect(strstr(said, "[lease-clients]") && strstr(said, "of one user"), "%s", said);
    for (; n < RG_POOL_CLIENTS_MAX; n++) {
        snprintf(key, sizeof key, "2 user %u", n);
        cr_assert(ask(key, said, sizeof said), "%u: %s", n, said);
    }
    cr_expect(!ask("2 bob", said, sizeof said) && strstr(said, "too many clients"), "%s", said);
    rg_ask_end(agent.asks[0]); /* alice's first */
    cr_expect(ask("2 bob", said, sizeof said));
}

/* Whoever asks and goes, again and again, while etcd takes its time. */
Test(asks, one_user_who_goes_leaves_room_for_others, .init = start)
{
    char said[2048];
    uint32_t n = 0;
    while (n < RG_POOL_CLIENTS_MAX && ask("2 alice", said, sizeof said)) {
        agent.asks[n]->state = RG_ASK_ENDING; /* it waits for an answer of etcd's */
        rg_ask_leave(agent.asks[n++]);
    }
    cr_assert_eq(n, RG_POOL_CLIENTS_MAX / 4 * 3);
    cr_expect(strstr(said, "[lease-clients]"), "%s", said);
    cr_expect(ask("2 bob", said, sizeof said), "%s", said);
}
