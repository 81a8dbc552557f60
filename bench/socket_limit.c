/*
 * socket_limit.c - what a plain TCP socket does on this machine: the limits that forwarding is held against.
 *
 *   socket_limit serve [ADDRESS]        listens on a free port of ADDRESS (default loopback), prints the
 * port, and serves one client after another until it is killed socket_limit [--quick] HOST PORT    measures
 * against such a server
 *
 * Both ends wait in a blocking recv, as the product does, with TCP_NODELAY; one request is under way at a
 * time. A request says how many bytes follow it and how many the answer has. Measured are round trips of
 * several sizes, streams in both directions between two buffers of the whole size, messages that nobody
 * answers, and, without any socket, what appending a record to a locked batch costs.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BULK ((size_t)256 << 20)

/* The smallest message: what a call and its answer are. */
struct request {
    uint64_t follows; /* bytes that come after this */
    uint64_t answer;  /* bytes of the answer; 0: none */
    uint64_t noted;   /* 1: its arrival is noted where both ends see it */
    uint64_t reserved[5];
};
_Static_assert(sizeof(struct request) == 64, "a request has 64 bytes");

static void set_option(int fd, int level, int name, int value)
{
    if (setsockopt(fd, level, name, &value, sizeof value) != 0)
        fail("setsockopt: %s", strerror(errno));
}

static void transmit(int fd, struct iovec *parts, int n_parts)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n_parts};
    while (message.msg_iovlen) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            fail("send: %s", strerror(errno));
        while (message.msg_iovlen && (size_t)n >= message.msg_iov[0].iov_len) {
            n -= (ssize_t)message.msg_iov[0].iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen) {
            message.msg_iov[0].iov_base = (char *)message.msg_iov[0].iov_base + n;
            message.msg_iov[0].iov_len -= (size_t)n;
        }
    }
}

/* --- the serving end --- */

static void serve_client(int fd, unsigned char *memory, struct arrival *arrival)
{
    struct request request;
    while (receive(fd, &request, sizeof request)) {
        if (request.noted && arrival)
            arrival_note(arrival);
        if (request.follows > BULK || request.answer > BULK)
            fail("a request beyond the limits");
        if (!receive(fd, memory, request.follows))
            return;
        struct iovec answer = {memory, request.answer};
        if (request.answer)
            transmit(fd, &answer, 1);
    }
}

static void serve(const char *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET};
    if (inet_pton(AF_INET, address, &name.sin_addr) != 1)
        fail("%s is no IPv4 address", address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof name;
    if (listener < 0 || bind(listener, (struct sockaddr *)&name, size) != 0 || listen(listener, 4) != 0 ||
        getsockname(listener, (struct sockaddr *)&name, &size) != 0)
        fail("cannot listen on %s: %s", address, strerror(errno));
    unsigned char *memory = memory_of_pages(BULK);
    fill_random(memory, BULK, 2);
    struct arrival *arrival = shared_arrival();
    printf("%u\n", ntohs(name.sin_port));
    fflush(stdout);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        serve_client(fd, memory, arrival);
        close(fd);
    }
}

/* --- the measuring end --- */

static struct samples samples;
static unsigned char *memory;

static int connect_to(const char *host, const char *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &name.sin_addr) != 1)
        fail("%s is no IPv4 address", host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&name, sizeof name) != 0)
        fail("cannot connect to %s:%s: %s", host, port, strerror(errno));
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    return fd;
}

static void ask(int fd, size_t follows, size_t answer)
{
    struct request request = {.follows = follows, .answer = answer};
    struct iovec parts[2] = {{&request, sizeof request}, {memory, follows}};
    transmit(fd, parts, follows ? 2 : 1);
    if (answer && !receive(fd, memory, answer))
        fail("the peer is gone");
}

static void round_trips(int fd, const char *name, size_t follows, size_t answer, int repeats)
{
    for (int i = 0; i < repeats / 10 + 10; i++)
        ask(fd, follows, answer);
    for (int i = 0; i < repeats; i++) {
        const uint64_t start = now_ns();
        ask(fd, follows, answer);
        samples_add(&samples, (double)(now_ns() - start));
    }
    samples_print(&samples, name, "ns");
}

/* One message after a while of computing; this end goes on computing. Only where the other end is of the same machine. */
static void arrivals(int fd, const char *name, int repeats)
{
    const struct arrival *arrival = shared_arrival();
    for (int i = 0; arrival && i < repeats; i++) {
        struct request request = {.noted = 1};
        struct iovec part = {&request, sizeof request};
        compute_for(IDLE_NS);
        const uint64_t count = atomic_load(&arrival->count), start = now_ns();
        transmit(fd, &part, 1);
        samples_add(&samples, (double)(arrival_await(arrival, count) - start));
    }
    if (arrival)
        samples_print(&samples, name, "ns");
}

/* Messages that nobody answers; the last one is, and is waited for. */
static void one_way(int fd, const char *name, size_t follows, int burst, int repeats)
{
    for (int i = 0; i < repeats; i++) {
        const uint64_t start = now_ns();
        for (int message = 1; message < burst; message++)
            ask(fd, follows, 0);
        ask(fd, follows, sizeof(struct request));
        samples_add(&samples, (double)(now_ns() - start) / burst);
    }
    samples_print(&samples, name, "ns");
}

static void stream(int fd, const char *name, bool out, int repeats)
{
    for (int i = -1; i < repeats; i++) {
        const uint64_t start = now_ns();
        ask(fd, out ? BULK : 0, out ? sizeof(struct request) : BULK);
        if (i >= 0)
            samples_add(&samples, (double)BULK * 1e9 / (double)(now_ns() - start));
    }
    samples_print(&samples, name, "B/s");
}

/* The least that a batching client can do for a call: take a lock, write a record, release the lock. */
static void append_record(int repeats)
{
    enum { BURST = 1000, RECORD = 96 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    unsigned char record[RECORD];
    fill_random(record, sizeof record, 3);
    for (int i = -1; i < repeats; i++) {
        unsigned char *at = memory;
        const uint64_t start = now_ns();
        for (int n = 0; n < BURST; n++) {
            record[0] = (unsigned char)n;
            pthread_mutex_lock(&lock);
            memcpy(at, record, sizeof record);
            at += sizeof record;
            pthread_mutex_unlock(&lock);
            __asm__ __volatile__("" ::: "memory");
        }
        if (i >= 0)
            samples_add(&samples, (double)(now_ns() - start) / BURST);
    }
    samples_print(&samples, "append_record", "ns");
}

/* A second thread, so that the C library takes its locks in earnest. */
static void *idle_thread(void *unused)
{
    pause();
    return unused;
}

static void measure(const char *host, const char *port, bool quick)
{
    pthread_t idle;
    if (pthread_create(&idle, NULL, idle_thread, NULL) != 0)
        fail("cannot start a thread");
    int fd = connect_to(host, port);
    memory = memory_of_pages(BULK);
    fill_random(memory, BULK, 1);
    const int many = quick ? 500 : 2000;
    append_record(quick ? 20 : 100);
    round_trips(fd, "ping_pong_64", 0, sizeof(struct request), many);
    round_trips(fd, "ping_pong_4k_out", 4096, sizeof(struct request), many);
    round_trips(fd, "ping_pong_4k_in", 0, 4096, many);
    round_trips(fd, "ping_pong_4k_both", 4096 - sizeof(struct request), 4096, many);
    arrivals(fd, "one_way_64", quick ? 100 : 400);
    one_way(fd, "one_way_4k", 4096, 1000, quick ? 3 : 10);
    stream(fd, "stream_out", true, quick ? 2 : 5);
    stream(fd, "stream_in", false, quick ? 2 : 5);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "serve") == 0) {
        serve(argc > 2 ? argv[2] : "127.0.0.1");
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "idle") == 0) {
        wait_for_end_of_input();
        return 0;
    }
    const bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    if (argc != 3 + quick) {
        fprintf(stderr, "usage: socket_limit serve [ADDRESS]\n       socket_limit [--quick] HOST PORT\n"
                        "       socket_limit idle\n");
        return 2;
    }
    measure(argv[1 + quick], argv[2 + quick], quick);
    return 0;
}
