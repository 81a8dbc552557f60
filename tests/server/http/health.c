/* health.c - what strangers are told at /readyz, and how often the monitor is asked for it. */
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/limits.h"
#include "common/base/packet.h"
#include "server/daemon/shared/snapshot.h"
#include "server/http/service.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUESTS = 1000 };

static struct rg_monitor_link link_to_monitor;
static struct rg_management management;
static struct rg_gpus gpus;
static int monitor = -1; /* the monitor's end */
static atomic_uint looks;
static struct sockaddr_un address;
static socklen_t address_size = sizeof address;

/* The monitor, and the main thread of the process, which gives its answers to those who wait. */
static void *play_monitor(void *unused)
{
    static struct rg_snapshot snapshot = {.driver.n_devices = 1, .gauges.frontend_ready = true};
    struct rg_monitor_question question;
    struct rg_monitor_word word;
    int fds[RG_PACKET_FDS_MAX];
    unsigned n_fds;
    while (rg_packet_receive(monitor, 0, &question, sizeof question, fds, RG_PACKET_FDS_MAX, &n_fds) ==
           RG_OK) {
        memset(&word, 0, sizeof word);
        word.kind = RG_TELL_ANSWER;
        word.answer.number = question.number;
        const int file = rg_file_in_memory("snapshot", &snapshot, sizeof snapshot);
        atomic_fetch_add(&looks, 1);
        cr_assert(file >= 0 && rg_packet_send(monitor, &word, sizeof word, &file, 1));
        close(file);
        word.kind = RG_TELL_BEAT;
        cr_assert(rg_packet_send(monitor, &word, sizeof word, NULL, 0)); /* which ends the wait for words */
        cr_assert_eq(rg_monitor_link_receive(&link_to_monitor, 0, &word, fds, &n_fds), RG_OK);
    }
    return unused;
}

static void start(void)
{
    const sa_family_t family = AF_UNIX;
    struct rg_service *service;
    pthread_t thread;
    int ends[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    monitor = ends[0];
    rg_monitor_link_init(&link_to_monitor, ends[1]);
    rg_management_init(&management, &link_to_monitor);
    rg_gpus_init(&gpus, &management);
    cr_assert_eq(pthread_create(&thread, NULL, play_monitor, NULL), 0);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert(listener >= 0 && bind(listener, (const struct sockaddr *)&family, sizeof family) == 0 &&
              listen(listener, 16) == 0 &&
              getsockname(listener, (struct sockaddr *)&address, &address_size) == 0);
    const struct rg_service_settings settings = {
        .listener = listener,
        .pool = "",
        .source = {.link = &link_to_monitor, .gpus = &gpus, .host = "here"}};
    cr_assert_eq(rg_service_start(&settings, NULL, &service), RG_OK);
}

/* Whether it says that the server is ready. */
static bool ask(int peer)
{
    static const char request[] = "GET /readyz HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";
    char answer[2048] = "";
    size_t got = 0;
    cr_assert_eq(send(peer, request, sizeof request - 1, MSG_NOSIGNAL), (ssize_t)sizeof request - 1);
    while (!strstr(answer, "\r\n\r\nready\n") && !strstr(answer, "\r\n\r\nnot ready")) {
        const ssize_t n = recv(peer, answer + got, sizeof answer - 1 - got, 0);
        cr_assert_gt(n, 0);
        got += (size_t)n;
        answer[got] = '\0';
    }
    return strncmp(answer, "HTTP/1.1 200 ", 13) == 0;
}

/* Each look costs the monitor, which has sessions to begin meanwhile. */
Test(http_health, strangers_who_ask_without_end, .timeout = 120)
{
    start();
    const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(peer, (const struct sockaddr *)&address, address_size), 0);
    const uint64_t began = rg_now_ns();
    for (int i = 0; i < REQUESTS; i++)
        cr_assert(ask(peer));
    const unsigned seconds = (unsigned)((rg_now_ns() - began) / 1000000000u) + 2;
    cr_expect_gt(atomic_load(&looks), 0);
    cr_expect_leq(atomic_load(&looks), seconds * RG_HTTP_LOOKS_OF_STRANGERS);
}
