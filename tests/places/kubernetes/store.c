/* store.c - objects that a watch keeps true, against an API server behind a balancer that cuts connections. */
#include "common/base/clock.h"
#include "common/base/thread.h"
#include "places/kubernetes/api/kube.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LASTS_US 150000 /* a watch, until it is cut */
#define WATCHES  9

static struct {
    int listener;
    unsigned watches;
    uint64_t longest_ns; /* between the end of one and the next */
} balancer;

static void answer(int connection)
{
    static const char list[] = "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[]}";
    char request[4096] = "", head[128] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    if (recv(connection, request, sizeof request - 1, 0) <= 0)
        return;
    const bool watches = strstr(request, "watch=true") != NULL;
    if (!watches)
        snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                 sizeof list - 1);
    (void)!send(connection, head, strlen(head), MSG_NOSIGNAL);
    if (!watches) {
        (void)!send(connection, list, sizeof list - 1, MSG_NOSIGNAL);
        return;
    }
    usleep(LASTS_US);
    balancer.watches++;
    /* a close that does not linger is a reset */
    (void)setsockopt(connection, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                     sizeof(struct linger));
}

static void *serve(void *unused)
{
    (void)unused;
    for (uint64_t ended = rg_now_ns(); balancer.watches < WATCHES; ended = rg_now_ns()) {
        const int connection = accept(balancer.listener, NULL, NULL);
        if (connection < 0)
            break;
        const uint64_t pause = rg_now_ns() - ended;
        balancer.longest_ns = pause > balancer.longest_ns ? pause : balancer.longest_ns;
        answer(connection);
        close(connection);
    }
    return NULL;
}

static void nothing(void *context)
{
    (void)context;
}

/* As balancers do to what has been silent for a while: then the next watch begins soon, however often that was so. */
Test(kube_store, a_watch_that_is_cut_after_a_while_is_soon_begun_again)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    char url[64];
    pthread_t thread;
    balancer.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(balancer.listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(balancer.listener, 8), 0);
    cr_assert_eq(getsockname(balancer.listener, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    const struct rg_kube_cluster cluster = {.url = url};
    cr_assert_eq(rg_thread_create(&thread, "balancer", serve, NULL), RG_OK);
    struct rg_kube_store *store = rg_kube_store_start(&cluster, "/apis/things", nothing, NULL);
    cr_assert_not_null(store);
    pthread_join(thread, NULL);
    close(balancer.listener);
    cr_expect_lt(balancer.longest_ns, 5000000000u, "a pause of %.1f s", (double)balancer.longest_ns / 1e9);
    rg_kube_store_stop(store);
}
