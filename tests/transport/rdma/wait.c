/*
 * wait.c - waiting over RDMA (transport/rdma/wait.c), over completions and events of the test's own: for a
 * peer that is gone where the device does not tell, and beside another thread.
 */
#include "tests/transport/support.h"
#include "transport/connect/connect.h"

#include "common/base/clock.h"
#include "transport/operations.h"
#include "transport/rdma/internal.h"
#include "transport/rdma/verbs.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- a device that never says anything but what the test wants --- */

static atomic_int n_byes;    /* fragments that say goodbye and will be found next */
static atomic_int n_credits; /* empty ones */
static atomic_int n_errors;  /* sends that failed */

static bool take(atomic_int *n)
{
    if (atomic_load(n) == 0)
        return false;
    atomic_fetch_sub(n, 1);
    return true;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    struct rg_rdma_conn *c = cq->cq_context;
    struct rg_rdma_fragment head = {.magic = htole16(RG_RDMA_FRAGMENT_MAGIC), .type = RG_RDMA_BYE};
    if (n < 1)
        return 0;
    if (take(&n_errors)) {
        *wc = (struct ibv_wc){.status = IBV_WC_RETRY_EXC_ERR};
        return 1;
    }
    if (take(&n_credits))
        head.type = RG_RDMA_CREDIT;
    else if (!take(&n_byes))
        return 0;
    memcpy(rg_rdma_receive_slot(c, 0), &head, sizeof head);
    *wc = (struct ibv_wc){.status = IBV_WC_SUCCESS, .byte_len = sizeof head};
    return 1;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp, (void)wr, (void)bad;
    return 0;
}

static unsigned n_sent;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    const struct rg_rdma_fragment *head = (const void *)(uintptr_t)wr->sg_list->addr;
    (void)qp, (void)bad;
    CHECK(wr->opcode == IBV_WR_SEND && wr->num_sge == 1 && wr->sg_list->length == sizeof *head);
    CHECK(head->type == RG_RDMA_CREDIT && head->length == 0 && head->credits == 0);
    n_sent++;
    return 0;
}

static atomic_int n_armed;

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    (void)cq, (void)solicited_only;
    atomic_fetch_add(&n_armed, 1);
    return 0;
}

/* --- connections --- */

struct fixture {
    struct rg_rdma_conn c;
    struct ibv_context context;
    struct ibv_cq cq;
    struct ibv_qp qp;
    struct ibv_mr mr;
    struct rdma_cm_id id;
    struct rdma_event_channel events;
    struct ibv_comp_channel channel;
    struct rg_conn *control_conn;
    int peer; /* the control connection's other end */
};

static struct fixture *make(bool polled, enum rg_wait_mode wait)
{
    struct fixture *f = calloc(1, sizeof *f);
    const size_t slots = 2 * RG_RDMA_SLOTS + RG_RDMA_SPARE;
    unsigned char *memory = calloc(1, slots * RG_RDMA_SLOT + RG_RDMA_CONTROLS * RG_RDMA_CONTROL_SIZE);
    int ends[2];
    CHECK(f && memory && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const struct rg_transport_options options = {.filters = ""};
    CHECK_OK(rg_transport_adopt_fd(ends[0], &options, &f->control_conn));
    f->peer = ends[1];
    f->context.ops = (struct ibv_context_ops){
        .poll_cq = poll_cq, .post_recv = post_recv, .post_send = post_send, .req_notify_cq = req_notify_cq};
    f->cq = (struct ibv_cq){.context = &f->context, .cq_context = &f->c};
    f->qp.context = &f->context;
    f->id.qp = &f->qp;
    f->events.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    f->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct rg_rdma_conn *c = &f->c;
    pthread_mutex_init(&c->lock, NULL);
    c->head.ops = &rg_transport_rdma_ops;
    strcpy(c->head.peer, "test");
    c->cq = &f->cq;
    c->id = &f->id;
    c->events = &f->events;
    c->channel = &f->channel;
    c->memory = memory;
    c->memory_mr = &f->mr;
    c->two_sided = true;
    c->polled = polled;
    for (int side = 0; side < RG_RDMA_SIDES; side++) {
        c->kick[side] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        rg_adaptive_wait_init(&c->waits[side], wait);
    }
    rg_conn_set_control(&c->head, f->control_conn);
    return f;
}

static void end(struct fixture *f)
{
    rg_conn_destroy(f->control_conn);
    close(f->events.fd);
    close(f->channel.fd);
    for (int side = 0; side < RG_RDMA_SIDES; side++)
        close(f->c.kick[side]);
    pthread_mutex_destroy(&f->c.lock);
    free(f->c.memory);
    free(f);
}

static enum rg_status wait_for_peer(struct fixture *f, uint64_t deadline)
{
    rg_rdma_lock(&f->c);
    const enum rg_status status = rg_rdma_wait(&f->c, RG_RDMA_RECEIVER, deadline);
    rg_rdma_unlock(&f->c);
    return status;
}

static void *close_soon(void *peer)
{
    const struct timespec while_others_wait = {.tv_nsec = 200000000};
    nanosleep(&while_others_wait, NULL);
    close(*(int *)peer);
    return NULL;
}

/* --- tests --- */

static void test_ends(bool polled, enum rg_wait_mode wait)
{
    struct fixture *f = make(polled, wait);
    /* as long as it is there, nothing happens */
    CHECK_STATUS(wait_for_peer(f, rg_now_ns() + 500000000u), RG_ERR_TIMEOUT);
    pthread_t closer;
    CHECK(pthread_create(&closer, NULL, close_soon, &f->peer) == 0);
    CHECK_STATUS(wait_for_peer(f, UINT64_MAX), RG_ERR_LOST);
    pthread_join(closer, NULL);
    end(f);
}

/* What was sent before the end is found first, although it comes late. */
static void test_last_words(void)
{
    struct fixture *f = make(true, RG_WAIT_AUTO);
    close(f->peer);
    CHECK_STATUS(wait_for_peer(f, rg_now_ns() + 150000000u), RG_ERR_TIMEOUT);
    atomic_store(&n_byes, 1);
    CHECK_OK(wait_for_peer(f, UINT64_MAX));
    CHECK(f->c.peer_bye);
    CHECK_STATUS(wait_for_peer(f, rg_now_ns() + 700000000u), RG_ERR_TIMEOUT);
    end(f);
}

/* A connection that is told to forget its control connection does not look at it any more. */
static void test_forgets(void)
{
    struct fixture *f = make(true, RG_WAIT_AUTO);
    rg_conn_set_control(&f->c.head, NULL);
    close(f->peer);
    CHECK_STATUS(wait_for_peer(f, rg_now_ns() + 700000000u), RG_ERR_TIMEOUT);
    end(f);
}

/* As if nothing had been heard for long: waits for a moment, and says what was sent meanwhile. */
static unsigned signs_sent(struct fixture *f)
{
    n_sent = 0;
    f->c.heard = false;
    f->c.heard_ns = 1;
    CHECK_STATUS(wait_for_peer(f, rg_now_ns() + 20000000u), RG_ERR_TIMEOUT);
    return n_sent;
}

/*
 * A peer that says nothing is sent empty fragments: few while none of its own come, and one that fails is the
 * end.
 */
static void test_signs_of_life(void)
{
    struct fixture *f = make(true, RG_WAIT_AUTO);
    for (int round = 0; round < 3; round++) {
        unsigned sent = 0;
        for (int i = 0; i < 20; i++) {
            f->c.control_done = f->c.control_posted; /* they are acknowledged */
            const unsigned n = signs_sent(f);
            CHECK(n <= 1);
            sent += n;
        }
        CHECK(sent > 0 && sent <= RG_RDMA_SPARE / 2);
        atomic_store(&n_credits, 1);
        CHECK_OK(wait_for_peer(f, UINT64_MAX));
    }
    CHECK(signs_sent(f) == 1);
    atomic_store(&n_errors, 1);
    CHECK_STATUS(wait_for_peer(f, UINT64_MAX), RG_ERR_LOST);
    end(f);
}

/* Half of the peer's receives stay for messages that somebody waits for. */
static void test_credit(void)
{
    struct fixture *f = make(true, RG_WAIT_AUTO);
    for (unsigned credits = 0; credits <= RG_RDMA_SLOTS; credits++) {
        f->c.credits = credits;
        CHECK(rg_conn_has_credit(&f->c.head) == (credits > RG_RDMA_SLOTS / 2));
    }
    f->c.data_posted = RG_RDMA_SLOTS - 1; /* they are not acknowledged */
    CHECK(!rg_conn_has_credit(&f->c.head));
    end(f);
}

static struct rg_rdma_conn *watched;

/*
 * Another thread handles a completion while who is about to sleep has given up the lock: to look at the
 * control connection, say.
 */
static int fd_meanwhile(const struct rg_conn *control_conn)
{
    (void)control_conn;
    watched->version++;
    return -1;
}

/* Nobody wakes who does not sleep yet, so he must not sleep then. */
static void test_change_before_sleep(void)
{
    static struct rg_transport_ops ops = {.fd = fd_meanwhile};
    const struct rg_conn control_conn = {.ops = &ops};
    struct fixture *f = make(false, RG_WAIT_BLOCK);
    watched = &f->c;
    rg_conn_set_control(&f->c.head, &control_conn);
    atomic_store(&n_armed, 0);
    CHECK_OK(wait_for_peer(f, UINT64_MAX));
    CHECK(atomic_load(&n_armed) == 0);
    end(f);
}

/* Each filter hands it on. */
static void test_filters(void)
{
    static const char *const chains[] = {"fault", "delay:oneway=1ms"};
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        struct pair pair = pair_open("mem:control_conn", chains[i], RG_WAIT_AUTO);
        rg_conn_set_control(pair.a, NULL); /* by all of them, to a transport that needs none */
        expect_good(pair.a, pair.b);
        pair_close(&pair);
    }
}

int main(void)
{
    test_begin();
    CHECK_OK(rg_rdma_verbs_open(NULL, 0)); /* for the text of what failed */
    rg_transport_complete(&rg_transport_rdma_ops, false);
    test_ends(true, RG_WAIT_AUTO);
    test_ends(true, RG_WAIT_SPIN);
    test_ends(false, RG_WAIT_AUTO);
    test_ends(false, RG_WAIT_BLOCK);
    test_last_words();
    test_forgets();
    test_change_before_sleep();
    test_signs_of_life();
    test_credit();
    test_filters();
    return 0;
}
