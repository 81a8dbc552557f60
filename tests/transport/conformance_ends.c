/*
 * conformance_ends.c - how connections end and change hands: interrupts, closes, broken frames, descriptors
 * that are polled, adopted and shared, listeners.
 */
#include "conformance.h"
#include "tls/pair.h"

#include "common/base/clock.h"
#include "transport/connect/connect.h"
#include "transport/frame.h"
#include "transport/tls/tls.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- interrupts --- */

static void *recv_until_interrupted(void *arg)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(arg, -1, &m), RG_ERR_CLOSED);
    return NULL;
}

static void *recv_long_until_interrupted(void *arg)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(arg, 60000, &m), RG_ERR_CLOSED);
    return NULL;
}

static void *send_until_interrupted(void *arg)
{
    unsigned char *data = calloc(1, RG_BULK_MAX);
    CHECK(data);
    enum rg_status status;
    do
        status = send_bytes(arg, "x", 1, data, RG_BULK_MAX);
    while (status == RG_OK);
    CHECK_STATUS(status, RG_ERR_CLOSED);
    free(data);
    return NULL;
}

static void expect_interrupted(struct rg_conn *conn)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(conn, -1, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(conn, 0, &m), RG_ERR_CLOSED);
    CHECK_STATUS(send_bytes(conn, "x", 1, NULL, 0), RG_ERR_CLOSED);
    rg_conn_interrupt(conn);
    CHECK_STATUS(send_bytes(conn, "x", 1, NULL, 0), RG_ERR_CLOSED);
}

void test_interrupt_recv(struct ends e)
{
    pthread_t receiver = start(recv_until_interrupted, e.far);
    pause_ms(20);
    rg_conn_interrupt(e.far);
    pthread_join(receiver, NULL);
    expect_interrupted(e.far);
    /* the peer sees an end, in order: nothing was under way */
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(e.near, 5000, &m), RG_ERR_CLOSED);
}

void test_interrupt_timed_recv(struct ends e)
{
    pthread_t receiver = start(recv_long_until_interrupted, e.far);
    pause_ms(20);
    rg_conn_interrupt(e.far);
    pthread_join(receiver, NULL);
    expect_interrupted(e.far);
}

void test_interrupt_send(struct ends e)
{
    pthread_t sender = start(send_until_interrupted, e.near);
    pthread_t receiver = start(recv_until_interrupted, e.near);
    pause_ms(150); /* long enough to fill what lies between */
    rg_conn_interrupt(e.near);
    pthread_join(sender, NULL);
    pthread_join(receiver, NULL);
    expect_interrupted(e.near);
}

/* --- ends of connections --- */

void test_orderly_close(struct ends *e)
{
    for (uint64_t i = 0; i < 10; i++)
        CHECK_OK(send_pattern(e->near, 1000, 500, i));
    rg_conn_destroy(e->near);
    e->near = NULL;
    for (uint64_t i = 0; i < 10; i++)
        expect_pattern(e->far, 1000, 500, i);
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(e->far, -1, &m), RG_ERR_CLOSED);
    CHECK_STATUS(rg_conn_recv(e->far, 0, &m), RG_ERR_CLOSED);
    /* a send finds out sooner or later, and never raises a signal */
    enum rg_status status = RG_OK;
    for (int i = 0; i < 1000 && status == RG_OK; i++) {
        status = send_bytes(e->far, "x", 1, NULL, 0);
        pause_ms(i > 100);
    }
    CHECK(status == RG_ERR_LOST || status == RG_ERR_CLOSED);
}

/* Data that the closing side never read does not take away what it had said. */
void test_close_with_unread(struct ends *e)
{
    if (strstr(rg_conn_transport(e->near), "mem") == NULL)
        rg_conn_set_read_ahead(e->near); /* not to be handed on: closes with care */
    CHECK_OK(send_pattern(e->far, 5000, 50000, 1));
    CHECK_OK(send_pattern(e->near, 100, 100000, 2));
    pause_ms(30);
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_pattern(e->far, 100, 100000, 2);
}

static void expect_sticky(struct rg_conn *conn, enum rg_status status)
{
    struct rg_message m;
    CHECK_STATUS(rg_conn_recv(conn, 5000, &m), status);
    CHECK_STATUS(rg_conn_recv(conn, -1, &m), status);
}

/* The beginning of a message. */
struct half {
    struct rg_frame frame;
    char text[4];
};

void test_lost_within_message(struct ends *e)
{
    struct half half = {.frame = rg_frame_encode(100, 0), .text = "half"};
    CHECK_OK(send_pattern(e->near, 10, 0, 1));
    if (!send_raw(e->near, &half, sizeof half)) {
        expect_pattern(e->far, 10, 0, 1);
        return;
    }
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_pattern(e->far, 10, 0, 1);
    expect_sticky(e->far, RG_ERR_LOST);
}

void test_lost_within_frame(struct ends *e)
{
    struct rg_frame frame = rg_frame_encode(100, 0);
    if (!send_raw(e->near, &frame, 9))
        return;
    rg_conn_destroy(e->near);
    e->near = NULL;
    expect_sticky(e->far, RG_ERR_LOST);
}

void test_lost_within_bulk(struct ends *e)
{
    struct half half = {.frame = rg_frame_encode(0, 1000), .text = "half"};
    if (rg_conn_fd(e->far) < 0 || /* a filter that keeps messages has not returned this one */
        !send_raw(e->near, &half, sizeof half))
        return;
    rg_conn_destroy(e->near);
    e->near = NULL;
    struct rg_message m;
    unsigned char bulk[1000];
    CHECK_OK(rg_conn_recv(e->far, -1, &m));
    CHECK(m.size == 0 && m.bulk_size == 1000);
    CHECK_STATUS(rg_conn_recv_bulk(e->far, bulk, 600), RG_ERR_LOST);
    CHECK_STATUS(rg_conn_recv_bulk(e->far, bulk, 400), RG_ERR_LOST);
    expect_sticky(e->far, RG_ERR_LOST);
}

static void expect_bad_frame(struct ends *e, struct rg_frame frame, enum rg_status status)
{
    if (send_raw(e->near, &frame, sizeof frame))
        expect_sticky(e->far, status);
}

void test_bad_magic(struct ends *e)
{
    struct rg_frame frame = rg_frame_encode(8, 0);
    frame.magic ^= 1;
    expect_bad_frame(e, frame, RG_ERR_PROTOCOL);
}

void test_bad_reserved(struct ends *e)
{
    struct rg_frame frame = rg_frame_encode(8, 0);
    frame.reserved = htole32(1);
    expect_bad_frame(e, frame, RG_ERR_PROTOCOL);
}

void test_oversize_message(struct ends *e)
{
    expect_bad_frame(e, rg_frame_encode(RG_MESSAGE_MAX + 1u, 0), RG_ERR_LIMIT);
}

void test_oversize_bulk(struct ends *e)
{
    expect_bad_frame(e, rg_frame_encode(0, UINT32_MAX), RG_ERR_LIMIT);
}

/* --- descriptors --- */

void test_poll(struct ends e)
{
    if (!(rg_conn_caps(e.far) & RG_CAP_FD)) {
        CHECK(rg_conn_fd(e.far) == -1);
        return;
    }
    struct pollfd p = {.fd = rg_conn_fd(e.far), .events = POLLIN};
    CHECK(poll(&p, 1, 0) == 0);
    CHECK_OK(send_pattern(e.near, 10, 0, 1));
    CHECK(poll(&p, 1, 5000) == 1);
    CHECK(fcntl(p.fd, F_GETFD) & FD_CLOEXEC);
    expect_pattern(e.far, 10, 0, 1);
    CHECK(poll(&p, 1, 0) == 0);
}

/* An accepted connection reads nothing ahead, so its socket can go on in other hands, with what is in it. */
void test_adopt(struct pair *pair)
{
    if (!(rg_conn_caps(pair->b) & RG_CAP_FD))
        return;
    for (uint64_t i = 0; i < 20; i++)
        CHECK_OK(send_pattern(pair->a, 40 + i, i % 2 * 1000, i));
    for (uint64_t i = 0; i < 7; i++)
        expect_pattern(pair->b, 40 + i, i % 2 * 1000, i);
    int fd = dup(rg_conn_fd(pair->b));
    CHECK(fd >= 0);
    struct rg_tls_keys keys;
    struct rg_transport_options options = {.filters = ""};
    if (pair->security) {
        CHECK_OK(rg_conn_tls_export(pair->b, &keys));
        CHECK_STATUS(send_bytes(pair->b, "x", 1, NULL, 0), RG_ERR_CLOSED);
        options.tls_keys = &keys;
    } else {
        CHECK_STATUS(rg_conn_tls_export(pair->b, &keys), RG_ERR_UNSUPPORTED);
    }
    rg_conn_destroy(pair->b);
    CHECK_OK(rg_transport_adopt_fd(fd, &options, &pair->b));
    expect_pattern(pair->b, 47, 1000, 7);
    rg_conn_set_read_ahead(pair->b);
    for (uint64_t i = 8; i < 20; i++)
        expect_pattern(pair->b, 40 + i, i % 2 * 1000, i);
    expect_good(pair->a, pair->b);
}

void test_adopt_refuses(struct pair *pair)
{
    (void)pair;
    struct rg_conn *conn = NULL;
    const struct rg_transport_options options = {.filters = ""};
    int file = open("/dev/null", O_RDWR | O_CLOEXEC),
        unconnected = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_STATUS(rg_transport_adopt_fd(-1, &options, &conn), RG_ERR_INVALID);
    CHECK_STATUS(rg_transport_adopt_fd(file, &options, &conn), RG_ERR_INVALID);
    CHECK_STATUS(rg_transport_adopt_fd(unconnected, &options, &conn), RG_ERR_INVALID);
    CHECK(conn == NULL);
    close(file);
    close(unconnected);
}

/* A descriptor shared with a process that set O_NONBLOCK works all the same. */
void test_nonblocking(struct ends e)
{
    if (rg_conn_fd(e.far) < 0 || rg_conn_fd(e.near) < 0)
        return;
    CHECK(fcntl(rg_conn_fd(e.far), F_SETFL, O_NONBLOCK) == 0);
    CHECK(fcntl(rg_conn_fd(e.near), F_SETFL, O_NONBLOCK) == 0);
    test_bulk_pieces(e);
}

void test_abandon(struct ends e)
{
    expect_good(e.near, e.far);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        rg_conn_abandon(e.near);
        rg_conn_abandon(e.far);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    expect_good(e.near, e.far);
}

/* --- listeners --- */

static void *accept_until_interrupted(void *arg)
{
    struct rg_conn *conn;
    CHECK_STATUS(rg_listener_accept(arg, -1, &conn), RG_ERR_CLOSED);
    return NULL;
}

void test_listener(struct pair *pair)
{
    struct rg_conn *conn;
    uint64_t before = rg_now_ns();
    CHECK_STATUS(rg_listener_accept(pair->listener, 0, &conn), RG_ERR_TIMEOUT);
    CHECK_STATUS(rg_listener_accept(pair->listener, 20, &conn), RG_ERR_TIMEOUT);
    CHECK(rg_now_ns() - before >= 19000000u);

    struct rg_listener *second;
    char why[128] = "";
    CHECK_STATUS(rg_transport_listen(rg_listener_address(pair->listener), NULL, why, sizeof why, &second),
                 RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "address already in use") == 0);

    /* several connections wait their turn */
    struct rg_conn *ends[6] = {0};
    const struct rg_transport_options none = {.filters = ""};
    for (int i = 0; i < 3; i++)
        CHECK_OK(rg_transport_connect(rg_listener_address(pair->listener), &none, NULL, 0, &ends[i]));
    int fd = rg_listener_fd(pair->listener);
    if (fd >= 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        CHECK(poll(&p, 1, 5000) == 1);
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(rg_listener_accept(pair->listener, 5000, &ends[3 + i]));
    for (int i = 0; i < 3; i++)
        expect_good(ends[i], ends[3 + i]);
    for (int i = 0; i < 6; i++)
        rg_conn_destroy(ends[i]);

    char address[320];
    snprintf(address, sizeof address, "%s", rg_listener_address(pair->listener));
    pthread_t acceptor = start(accept_until_interrupted, pair->listener);
    pause_ms(20);
    rg_listener_interrupt(pair->listener);
    pthread_join(acceptor, NULL);
    CHECK_STATUS(rg_listener_accept(pair->listener, -1, &conn), RG_ERR_CLOSED);
    rg_listener_destroy(pair->listener);
    pair->listener = NULL;
    CHECK_STATUS(rg_transport_connect(address, &none, why, sizeof why, &conn), RG_ERR_UNREACHABLE);
    CHECK(strcmp(why, "connection refused") == 0 || strcmp(why, "no such socket") == 0);
    /* connections made before live on */
    expect_good(pair->a, pair->b);
}
