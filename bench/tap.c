/*
 * tap.c - stands between a client and a server, passes on what they say, and notes when the client's messages come in:
 * to tell when a program's calls have left it.
 *
 *   tap HOST PORT     prints the port that it listens on (loopback); each connection goes on to HOST:PORT. The times go
 *                     into the file that BENCH_ARRIVAL names (measure.h). Runs until it is killed
 *
 * It waits as the plain socket's other end does (socket_limit.c), in a blocking recv, so that the two can be compared.
 */
#include "measure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct arrival *arrival;

struct way {
    int from, to;
    bool noted;
};

static struct sockaddr_in address_of(const char *host, const char *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &name.sin_addr) != 1)
        fail("%s is no IPv4 address", host);
    return name;
}

/* Passes on until either end is gone. */
static void *run_way(void *argument)
{
    const struct way *way = argument;
    static __thread unsigned char memory[65536];
    ssize_t n;
    while ((n = recv(way->from, memory, sizeof memory, 0)) > 0) {
        if (way->noted)
            arrival_note(arrival);
        for (ssize_t at = 0, sent; at < n; at += sent)
            if ((sent = send(way->to, memory + at, (size_t)(n - at), MSG_NOSIGNAL)) < 0)
                n = sent = 0;
    }
    shutdown(way->from, SHUT_RDWR);
    shutdown(way->to, SHUT_RDWR);
    free(argument);
    return NULL;
}

static void start_way(int from, int to, bool noted)
{
    struct way *way = malloc(sizeof *way);
    pthread_t thread;
    if (!way)
        fail("no memory");
    *way = (struct way){from, to, noted};
    if (pthread_create(&thread, NULL, run_way, way) != 0)
        fail("cannot start a thread");
    pthread_detach(thread);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: tap HOST PORT\n");
        return 2;
    }
    arrival = shared_arrival();
    if (!arrival)
        fail("BENCH_ARRIVAL names no file");
    struct sockaddr_in server = address_of(argv[1], argv[2]), own = address_of("127.0.0.1", "0");
    socklen_t size = sizeof own;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&own, size) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&own, &size) != 0)
        fail("cannot listen: %s", strerror(errno));
    printf("%u\n", ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        const int client = accept(listener, NULL, NULL),
                  there = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (client < 0 || there < 0 || connect(there, (struct sockaddr *)&server, sizeof server) != 0)
            fail("cannot connect to the server: %s", strerror(errno));
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(there, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        start_way(client, there, true);
        start_way(there, client, false);
    }
}
