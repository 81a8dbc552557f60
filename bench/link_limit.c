/*
 * link_limit.c - what a pair of plain TCP sockets does between two machines, both ways at once: the limit that bench/collectives holds
 * collectives against.
 *
 *   link_limit serve ADDRESS           listens on a free port of ADDRESS, prints the port, and serves one after another until it is killed
 *   link_limit HOST PORT SIZE…         measures against such a server: a round trip of 8 bytes, and for each SIZE the time in which so
 *                                      many bytes have gone each way, both at once
 *
 * Both ends wait in blocking calls, with TCP_NODELAY, and each has a thread that sends.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ROUND_TRIPS = 2000, WORD = 8, BYTES_OF_A_SIZE = 512 << 20, TIMES_LEAST = 5, TIMES_MOST = 500 };

/* What is to be done next: `times` exchanges of `size` bytes each way. Size 0: round trips of WORD bytes. */
struct request {
    uint64_t size, times;
};

struct end {
    int fd;
    sem_t go, gone;
    unsigned char *out, *in;
    size_t size, room;
};

static void set_no_delay(int fd)
{
    const int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail("setsockopt: %s", strerror(errno));
}

static void transmit(int fd, const void *from, size_t size)
{
    const unsigned char *at = from;
    while (size) {
        const ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            fail("send: %s", strerror(errno));
        at += n;
        size -= (size_t)n;
    }
}

static void *sender_main(void *argument)
{
    struct end *end = argument;
    for (;;) {
        sem_wait(&end->go);
        transmit(end->fd, end->out, end->size);
        sem_post(&end->gone);
    }
    return NULL;
}

static void prepare(struct end *end, size_t size)
{
    end->size = size;
    if (size <= end->room)
        return;
    if (end->room) {
        munmap(end->out, end->room);
        munmap(end->in, end->room);
    }
    end->out = memory_of_pages(size);
    end->in = memory_of_pages(size);
    end->room = size;
    fill_random(end->out, size, 1);
}

/* So many bytes each way; false: the other end has gone. */
static bool exchange(struct end *end)
{
    sem_post(&end->go);
    const bool came = receive(end->fd, end->in, end->size);
    sem_wait(&end->gone);
    return came;
}

static void start(struct end *end, int fd)
{
    pthread_t thread;
    memset(end, 0, sizeof *end);
    end->fd = fd;
    set_no_delay(fd);
    sem_init(&end->go, 0, 0);
    sem_init(&end->gone, 0, 0);
    if (pthread_create(&thread, NULL, sender_main, end) != 0)
        fail("no thread");
    pthread_detach(thread);
}

static void answer(struct end *end)
{
    struct request request;
    unsigned char word[WORD];
    while (receive(end->fd, &request, sizeof request)) {
        prepare(end, (size_t)request.size);
        transmit(end->fd, word, sizeof word); /* both have their memory */
        for (uint64_t i = 0; i < request.times; i++) {
            if (request.size ? !exchange(end) : !receive(end->fd, word, sizeof word))
                return;
            if (!request.size)
                transmit(end->fd, word, sizeof word);
        }
    }
}

static void serve(const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        fail("%s is no address", address);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 4) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &size) != 0)
        fail("%s: %s", address, strerror(errno));
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        struct end *end = calloc(1, sizeof *end); /* its thread keeps it */
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0 || !end)
            fail("accept: %s", strerror(errno));
        start(end, fd);
        answer(end);
    }
}

static void ask(struct end *end, size_t size, uint64_t times)
{
    unsigned char word[WORD];
    prepare(end, size);
    transmit(end->fd, &(struct request){size, times}, sizeof(struct request));
    if (!receive(end->fd, word, sizeof word))
        fail("the other end has gone");
}

static void measure_round_trips(struct end *end, struct samples *samples)
{
    unsigned char word[WORD] = {0};
    ask(end, 0, ROUND_TRIPS);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        const uint64_t began = now_ns();
        transmit(end->fd, word, sizeof word);
        if (!receive(end->fd, word, sizeof word))
            fail("the other end has gone");
        if (i >= ROUND_TRIPS / 10)
            samples_add(samples, (double)(now_ns() - began));
    }
    samples_print(samples, "round_trip", "ns");
}

static void measure_exchanges(struct end *end, size_t size, struct samples *samples)
{
    char name[64];
    size_t times = BYTES_OF_A_SIZE / size;
    times = times < TIMES_LEAST ? TIMES_LEAST : times > TIMES_MOST ? TIMES_MOST : times;
    ask(end, size, times);
    for (size_t i = 0; i < times; i++) {
        const uint64_t began = now_ns();
        if (!exchange(end))
            fail("the other end has gone");
        if (i >= times / 10)
            samples_add(samples, (double)(now_ns() - began));
    }
    snprintf(name, sizeof name, "exchange.%zu", size);
    samples_print(samples, name, "ns");
}

int main(int argc, char **argv)
{
    static struct samples samples;
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct end end;
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    if (argc < 3)
        fail("usage: link_limit serve ADDRESS, or link_limit HOST PORT SIZE…");
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    to.sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail("%s: %s", argv[1], strerror(errno));
    start(&end, fd);
    measure_round_trips(&end, &samples);
    for (int i = 3; i < argc; i++)
        measure_exchanges(&end, strtoull(argv[i], NULL, 10), &samples);
    return 0;
}
