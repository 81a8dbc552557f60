/* conformance.h - the tests of the conformance suite, for its table in conformance.c. */
#ifndef RG_TESTS_TRANSPORT_CONFORMANCE_H
#define RG_TESTS_TRANSPORT_CONFORMANCE_H

#include "support.h"

#include <pthread.h>

/** The ends of a test's connection: `near` leads. A test that takes a pointer may destroy an end and leave
 * NULL. */
struct ends {
    struct rg_conn *near, *far;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void pause_ms(int ms);
pthread_t start(void *(*run)(void *), void *arg);

void test_sizes(struct ends e);
void test_parts(struct ends e);
void test_bulk_pieces(struct ends e);
void test_crowd(struct ends e);
void test_many_small(struct ends e);
void test_big_transfer(struct ends e);
void test_timeouts(struct ends e);
void test_timeout_within_message(struct ends e);
void test_send_fault(struct ends e);
void test_recv_fault(struct ends e);
void test_misuse(struct ends e);
void test_interrupt_recv(struct ends e);
void test_interrupt_timed_recv(struct ends e);
void test_interrupt_send(struct ends e);
void test_orderly_close(struct ends *e);
void test_close_with_unread(struct ends *e);
void test_lost_within_message(struct ends *e);
void test_lost_within_frame(struct ends *e);
void test_lost_within_bulk(struct ends *e);
void test_bad_magic(struct ends *e);
void test_bad_reserved(struct ends *e);
void test_oversize_message(struct ends *e);
void test_oversize_bulk(struct ends *e);
void test_advertised_chunks(struct ends e);
void test_advertised_tags(struct ends e);
void test_advertised_many(struct ends e);
void test_advertised_lost(struct ends *e);
void test_advertised_hostile(struct ends *e); /* each run something else */
void test_poll(struct ends e);
void test_adopt(struct pair *pair);
void test_adopt_refuses(struct pair *pair);
void test_nonblocking(struct ends e);
void test_abandon(struct ends e);
void test_listener(struct pair *pair);

#endif
