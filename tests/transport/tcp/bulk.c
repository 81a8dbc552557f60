/*
 * bulk.c - bulk data that comes in pieces. A reader is woken when much of it is there, and must be for the last byte, for the end of
 * the connection, and for the small message behind it.
 */
#include "tests/transport/support.h"
#include "transport/frame.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct pieces {
    int fd;
    size_t size, sent; /* of the bulk data; how much of it comes */
};

/* A message without words of its own; its bulk data with pauses, the last byte by itself. */
static void *send_pieces(void *arg)
{
    const struct pieces *p = arg;
    const struct rg_frame frame = rg_frame_encode(0, p->size);
    const size_t pieces[] = {1, 100000, 131071, 65536, 131073};
    unsigned char *bulk = malloc(p->size);
    CHECK(bulk && send(p->fd, &frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame);
    pattern_fill(bulk, p->size, 1);
    for (size_t at = 0, i = 0; at < p->sent; i++) {
        const size_t most = p->sent - at - (p->sent - at > 1),
                     piece = pieces[i % 5] < most ? pieces[i % 5] : most;
        usleep(2000);
        CHECK(send(p->fd, bulk + at, piece, MSG_NOSIGNAL) == (ssize_t)piece);
        at += piece;
    }
    free(bulk);
    return NULL;
}

/* Receives it in two parts, of which the second is `rest` bytes. */
static enum rg_status receive_pieces(struct pair *pair, struct pieces *p, unsigned char *bulk, size_t rest)
{
    struct rg_message m;
    pthread_t sender;
    p->fd = rg_conn_fd(pair->a);
    CHECK(pthread_create(&sender, NULL, send_pieces, p) == 0);
    CHECK_OK(rg_conn_recv(pair->b, -1, &m));
    CHECK(m.size == 0 && m.bulk_size == p->size);
    enum rg_status status = rg_conn_recv_bulk(pair->b, bulk, p->size - rest);
    if (status == RG_OK && rest)
        status = rg_conn_recv_bulk(pair->b, bulk + p->size - rest, rest);
    pthread_join(sender, NULL);
    return status;
}

/* Whether it is much or little, it is had when its last byte has come, and what follows is received as before. */
static void test_bulk_in_pieces(void)
{
    enum { MOST = 1 << 20 };
    const size_t sizes[] = {1000, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 393217, MOST};
    struct pair pair = pair_open("127.0.0.1:0", "", RG_WAIT_AUTO);
    unsigned char *bulk = malloc(MOST);
    CHECK(bulk);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t rest = 0; rest < sizes[i]; rest += 1 + sizes[i] / 3) {
            struct pieces p = {.size = sizes[i], .sent = sizes[i]};
            memset(bulk, 0, MOST);
            CHECK_OK(receive_pieces(&pair, &p, bulk, rest));
            CHECK(pattern_matches(bulk, sizes[i], 1));
            expect_good(pair.a, pair.b);
        }
    free(bulk);
    pair_close(&pair);
}

/* Memory ends within the data: the rest is received to nowhere. */
static void test_bulk_in_pieces_to_nowhere(void)
{
    enum { SIZE = 1 << 20 };
    struct pair pair = pair_open("127.0.0.1:0", "", RG_WAIT_AUTO);
    struct pieces p = {.size = SIZE, .sent = SIZE};
    unsigned char *bulk = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(bulk != MAP_FAILED && mprotect(bulk + SIZE / 2, SIZE / 2, PROT_NONE) == 0);
    CHECK_STATUS(receive_pieces(&pair, &p, bulk, 0), RG_ERR_FAULT);
    expect_good(pair.a, pair.b);
    munmap(bulk, SIZE);
    pair_close(&pair);
}

static void *interrupt_later(void *conn)
{
    usleep(20000);
    rg_conn_interrupt(conn);
    return NULL;
}

/* The end of the connection, and an interrupt, are noticed while less is there than wakes a reader. */
static void test_bulk_that_stays_away(void)
{
    enum { SIZE = 1 << 20 };
    unsigned char *bulk = malloc(SIZE);
    CHECK(bulk);
    for (int interrupt = 0; interrupt < 2; interrupt++) {
        struct pair pair = pair_open("127.0.0.1:0", "", RG_WAIT_AUTO);
        struct pieces p = {.fd = rg_conn_fd(pair.a), .size = SIZE, .sent = 200001};
        struct rg_message m;
        pthread_t thread;
        send_pieces(&p);
        CHECK_OK(rg_conn_recv(pair.b, -1, &m));
        CHECK(pthread_create(&thread, NULL, interrupt_later, interrupt ? pair.b : pair.a) == 0);
        CHECK_STATUS(rg_conn_recv_bulk(pair.b, bulk, SIZE), interrupt ? RG_ERR_CLOSED : RG_ERR_LOST);
        pthread_join(thread, NULL);
        pair_close(&pair);
    }
    free(bulk);
}

int main(void)
{
    test_begin();
    test_bulk_in_pieces();
    test_bulk_in_pieces_to_nowhere();
    test_bulk_that_stays_away();
    return 0;
}
