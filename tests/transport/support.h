/*
 * support.h - what the transports' test programs share: checks that say where they failed, pairs of connected
 * ends, patterned messages. Plain programs, so that they run under every sanitizer.
 */
#ifndef RG_TESTS_TRANSPORT_SUPPORT_H
#define RG_TESTS_TRANSPORT_SUPPORT_H

#include "tests/check.h"
#include "transport/multipath/multipath.h"
#include "transport/multirail/multirail.h"
#include "transport/transport.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK_STATUS(call, expected)                                                                         \
    do {                                                                                                     \
        enum rg_status got_ = (call), want_ = (expected);                                                    \
        if (got_ != want_) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %s: got '%s', expected '%s'\n", __FILE__, __LINE__, __func__, #call, \
                    rg_status_string(got_), rg_status_string(want_));                                        \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, RG_OK)

/** How much work a test does: less of it under a sanitizer. */
#ifdef RG_SANITIZED
#define WORK(n) ((n) / 8)
#else
#define WORK(n) (n)
#endif

/** How connections are protected: what connects has, and what becomes of an accepted one. */
struct pair_security {
    const struct rg_tls_client *client;
    enum rg_status (*accept)(struct rg_conn *plain, struct rg_conn **out);
};

struct pair {
    const struct pair_security *security; /* NULL: none */
    struct rg_listener *listener;
    struct rg_conn *a; /* connected, with the filters */
    struct rg_conn *b; /* accepted */
};

/** Registers the statically linked transports, and ends the program, with SIGALRM, should it hang. */
void test_begin(void);
/** Two connected ends through a listener at `address`; `filters` are those of the connecting end. */
struct pair pair_open(const char *address, const char *filters, enum rg_wait_mode wait);
/** The same by TLS (tls/pair.h). */
struct pair pair_open_secured(const char *address, const char *filters, enum rg_wait_mode wait,
                              const struct pair_security *security);
/** Connects once more, as the pair was; RG_ERR_… of who connects. The other end is whatever was accepted. */
enum rg_status pair_connect(struct pair *pair, const char *address,
                            const struct rg_transport_options *options, char *why, size_t why_size,
                            struct rg_conn **a, struct rg_conn **b);
/** Makes bundles of both ends, with `channels` connections more, made as the pair was. */
void pair_multipath(struct pair *pair, const char *filters, unsigned channels, enum rg_compression compress);
/** Likewise with rails, of which the last has filters of its own. */
void pair_rails(struct pair *pair, const char *filters, const char *last_filters, unsigned rails);
/** Closes what is open. */
void pair_close(struct pair *pair);

/** Fills `size` bytes with what follows from `seed` alone. */
void pattern_fill(void *data, size_t size, uint64_t seed);
bool pattern_matches(const void *data, size_t size, uint64_t seed);

enum rg_status send_bytes(struct rg_conn *conn, const void *msg, size_t msg_size, const void *bulk,
                          size_t bulk_size);
/** Sends a message with the pattern of `seed`, and bulk data with that of seed + 1. */
enum rg_status send_pattern(struct rg_conn *conn, size_t msg_size, size_t bulk_size, uint64_t seed);
/** Receives such a message and checks every byte; bulk data is taken in one piece. */
void expect_pattern(struct rg_conn *conn, size_t msg_size, size_t bulk_size, uint64_t seed);
/** A round trip of one message each way: the connection is good. */
void expect_good(struct rg_conn *a, struct rg_conn *b);

#endif
