/*
 * conformance.c - what every transport, and every filter around it, has to do alike.
 *
 *   transport_conformance CONFIGURATION      mem, tcp, tcp6, unix, abstract, tcp-spin, tcp-block, delay+mem,
 * delay+tcp, fault+tcp, tls, tls6, tls-spin, …, bundle+tcp (bulk data on a connection of its own), rails+mem (on two that may fail), …; rdma, rdma-spin, fault+rdma and
 * delay+rdma need the machine of tests/rdma-vm, rails+rdma its two links,
 * or the address of an RDMA device in RG_TEST_RDMA_HOST
 *
 * Each test gets a fresh pair of connected ends, and runs twice: once with the connecting and once with the
 * accepting end in the leading part, so that a filter is tried in both directions. Threads do not use a
 * framework's assertions: a failed check aborts the program.
 */
#include "conformance.h"
#include "tls/pair.h"

#include "common/base/clock.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

struct configuration {
    const char *name, *address, *filters;
    enum rg_wait_mode wait;
    unsigned channels; /* not 0: bundles with so many connections for bulk data */
    enum rg_compression compress;
};

static const struct configuration configurations[] = {
    {"mem", "mem:conformance", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"tcp6", "[::1]:0", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"unix", "unix:/tmp/remote-gpu-conformance.%d", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"abstract", "unix:@remote-gpu-conformance.%d", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"tcp-spin", "tcp://localhost:0", "", RG_WAIT_SPIN, 0, RG_COMPRESS_NONE},
    {"tcp-block", "tcp://localhost:0", "", RG_WAIT_BLOCK, 0, RG_COMPRESS_NONE},
    {"delay+mem", "mem:conformance", "delay:oneway=1ms", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"delay+tcp", "127.0.0.1:0", "delay:oneway=1ms,bandwidth=100Gb", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"delay+unix", "unix:@remote-gpu-conformance.%d", "delay", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"fault+tcp", "127.0.0.1:0", "fault", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"rdma", "rdma://10.77.0.1:0", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"rdma-spin", "rdma://10.77.0.1:0", "", RG_WAIT_SPIN, 0, RG_COMPRESS_NONE},
    {"fault+rdma", "rdma://10.77.0.1:0", "fault", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"delay+rdma", "rdma://10.77.0.1:0", "delay:oneway=1ms", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"fault+delay+tcp", "127.0.0.1:0", "fault:byte=3;delay:oneway=200us", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"bundle+mem", "mem:conformance", "", RG_WAIT_AUTO, 1, RG_COMPRESS_NONE},
    {"bundle+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 1, RG_COMPRESS_NONE},
    {"bundles+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 3, RG_COMPRESS_NONE},
    {"bundles+unix", "unix:@remote-gpu-conformance.%d", "", RG_WAIT_AUTO, 2, RG_COMPRESS_NONE},
    {"bundles+delay+tcp", "127.0.0.1:0", "delay:oneway=1ms,bandwidth=100Gb", RG_WAIT_AUTO, 2,
     RG_COMPRESS_NONE},
    {"lz4+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 1, RG_COMPRESS_LZ4},
    {"zstd+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 2, RG_COMPRESS_ZSTD},
    {"rails+mem", "mem:conformance", "", RG_WAIT_AUTO, 2, RG_COMPRESS_NONE},
    {"rails+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 2, RG_COMPRESS_NONE},
    {"rails+rdma", "rdma://*:0", "", RG_WAIT_AUTO, 2, RG_COMPRESS_NONE},
    {"auto+tcp", "127.0.0.1:0", "", RG_WAIT_AUTO, 1, RG_COMPRESS_AUTO},
    {"tls", "127.0.0.1:0", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"tls6", "[::1]:0", "", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"tls-spin", "tcp://localhost:0", "", RG_WAIT_SPIN, 0, RG_COMPRESS_NONE},
    {"tls-block", "tcp://localhost:0", "", RG_WAIT_BLOCK, 0, RG_COMPRESS_NONE},
    {"delay+tls", "127.0.0.1:0", "delay:oneway=1ms,bandwidth=100Gb", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"fault+tls", "127.0.0.1:0", "fault", RG_WAIT_AUTO, 0, RG_COMPRESS_NONE},
    {"bundle+tls", "127.0.0.1:0", "", RG_WAIT_AUTO, 1, RG_COMPRESS_NONE},
    {"bundles+tls", "127.0.0.1:0", "", RG_WAIT_AUTO, 3, RG_COMPRESS_NONE},
    {"zstd+tls", "127.0.0.1:0", "", RG_WAIT_AUTO, 2, RG_COMPRESS_ZSTD},
    {"rails+tls", "127.0.0.1:0", "", RG_WAIT_AUTO, 2, RG_COMPRESS_NONE},
};

void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, arg) == 0);
    return thread;
}

/* --- all of them --- */

static const struct {
    const char *name;
    void (*plain)(struct ends);    /* leaves both ends open */
    void (*ending)(struct ends *); /* may destroy an end and leave NULL */
    void (*pair)(struct pair *);   /* needs to know who accepted */
} tests[] = {
    {"sizes", test_sizes, 0, 0},
    {"parts", test_parts, 0, 0},
    {"bulk_pieces", test_bulk_pieces, 0, 0},
    {"crowd", test_crowd, 0, 0},
    {"many_small", test_many_small, 0, 0},
    {"big_transfer", test_big_transfer, 0, 0},
    {"timeouts", test_timeouts, 0, 0},
    {"timeout_within_message", test_timeout_within_message, 0, 0},
    {"interrupt_recv", test_interrupt_recv, 0, 0},
    {"interrupt_timed_recv", test_interrupt_timed_recv, 0, 0},
    {"interrupt_send", test_interrupt_send, 0, 0},
    {"orderly_close", 0, test_orderly_close, 0},
    {"close_with_unread", 0, test_close_with_unread, 0},
    {"lost_within_message", 0, test_lost_within_message, 0},
    {"lost_within_frame", 0, test_lost_within_frame, 0},
    {"lost_within_bulk", 0, test_lost_within_bulk, 0},
    {"bad_magic", 0, test_bad_magic, 0},
    {"bad_reserved", 0, test_bad_reserved, 0},
    {"oversize_message", 0, test_oversize_message, 0},
    {"oversize_bulk", 0, test_oversize_bulk, 0},
    {"send_fault", test_send_fault, 0, 0},
    {"recv_fault", test_recv_fault, 0, 0},
    {"misuse", test_misuse, 0, 0},
    {"advertised_chunks", test_advertised_chunks, 0, 0},
    {"advertised_tags", test_advertised_tags, 0, 0},
    {"advertised_many", test_advertised_many, 0, 0},
    {"advertised_lost", 0, test_advertised_lost, 0},
    {"advertised_hostile", 0, test_advertised_hostile, 0}, /* both ways of each: eight lies */
    {"advertised_hostile", 0, test_advertised_hostile, 0},
    {"advertised_hostile", 0, test_advertised_hostile, 0},
    {"advertised_hostile", 0, test_advertised_hostile, 0},
    {"poll", test_poll, 0, 0},
    {"nonblocking", test_nonblocking, 0, 0},
    {"abandon", test_abandon, 0, 0},
    {"adopt", 0, 0, test_adopt},
    {"adopt_refuses", 0, 0, test_adopt_refuses},
    {"listener", 0, 0, test_listener},
};

static void run_test(const struct configuration *conf, size_t index, bool swapped)
{
    char address[128];
    const char *percent = strstr(conf->address, "%d"), *host = getenv("RG_TEST_RDMA_HOST");
    if (host && strncmp(conf->address, "rdma:", 5) == 0)
        snprintf(address, sizeof address, "rdma://%s:0", host);
    else if (percent)
        snprintf(address, sizeof address, "%.*s%d", (int)(percent - conf->address), conf->address,
                 (int)getpid());
    else
        snprintf(address, sizeof address, "%s", conf->address);
    const struct pair_security *security = strstr(conf->name, "tls") ? pair_tls() : NULL;
    struct pair pair = pair_open_secured(address, conf->filters, conf->wait, security);
    if (strncmp(conf->name, "rails", 5) == 0)
        pair_rails(&pair, conf->filters, conf->filters, conf->channels);
    else if (conf->channels)
        pair_multipath(&pair, conf->filters, conf->channels, conf->compress);
    struct ends e = swapped ? (struct ends){pair.b, pair.a} : (struct ends){pair.a, pair.b};
    if (tests[index].plain) {
        tests[index].plain(e);
    } else if (tests[index].ending) {
        tests[index].ending(&e);
        pair.a = swapped ? e.far : e.near;
        pair.b = swapped ? e.near : e.far;
    } else {
        tests[index].pair(&pair);
    }
    pair_close(&pair);
}

int main(int argc, char **argv)
{
    const struct configuration *conf = NULL;
    for (size_t i = 0; argc > 1 && i < COUNT(configurations); i++)
        if (strcmp(configurations[i].name, argv[1]) == 0)
            conf = &configurations[i];
    if (!conf) {
        fprintf(stderr, "usage: %s CONFIGURATION [TEST]\n", argv[0]);
        return 2;
    }
    test_begin();
    int run = 0;
    for (size_t i = 0; i < COUNT(tests); i++) {
        if (argc > 2 && strcmp(argv[2], tests[i].name) != 0)
            continue;
        if (strcmp(conf->name, "rails+rdma") == 0 && strcmp(tests[i].name, "listener") == 0)
            continue; /* without rails, and where each end has one device: the configuration rdma has it */
        for (int swapped = 0; swapped < (tests[i].pair ? 1 : 2); swapped++) {
            uint64_t before = rg_now_ns();
            run_test(conf, i, swapped);
            run++;
            printf("%s %s%s: %.1f ms\n", conf->name, tests[i].name, swapped ? " swapped" : "",
                   (double)(rg_now_ns() - before) / 1e6);
            fflush(stdout);
        }
    }
    return run > 0 ? 0 : 2;
}
