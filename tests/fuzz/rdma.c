/*
 * rdma.c - transport rdma against a peer that sends anything, over a device of the fuzzer's own, whose functions take the
 * place of libibverbs' and librdmacm's: the private data of the connection, the self-test, and every fragment after it.
 *
 * The input: u8 sends (a bit for each of 8 steps: to send a message with bulk data, not to receive one), u8 size of the private
 * data and the data, then fragments: u8 type, u8 form, u16 credits, u8 advertisements seen, u16 size of the payload, and the
 * payload. A fragment comes whenever a receive is posted and the transport looks; after the last one the device reports that the
 * peer is gone.
 */
#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "transport/connect/connect.h"
#include "transport/rdma/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#undef ibv_reg_mr

#define VISIBLE __attribute__((visibility("default"))) /* as the libraries have them */

enum { WITHOUT_MAGIC = 1, OTHER_LENGTH = 2, HAS_WRITTEN = 4 }; /* bits of a fragment's form */
enum { STEPS = 8, BULK_MAX = 1 << 20, POSTED_MAX = 512, TOLD_MAX = 512, AREA = 64, PAGE = 4096 };

static volatile unsigned char sink;

/* --- memory --- */

/*
 * What the transport fills once for each connection to see whether to register is faster than to copy: it takes most of the time if it
 * is memory that was not there before. So it is there once, and all of it is the same few pages.
 */
enum { MEASURED = 2 << 20, FEW_PAGES = 64 << 10 };
static unsigned char *measured;

void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size);

static void map_measured(void)
{
    const int pages = memfd_create("measured", MFD_CLOEXEC);
    CHECK(pages >= 0 && ftruncate(pages, FEW_PAGES) == 0);
    measured = __real_mmap(NULL, MEASURED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(measured != MAP_FAILED);
    for (size_t at = 0; at < MEASURED; at += FEW_PAGES)
        CHECK(__real_mmap(measured + at, FEW_PAGES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages,
                          0) == measured + at);
    close(pages);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return size == MEASURED ? measured : __real_mmap(at, size, protection, flags, fd, offset);
}

int __wrap_munmap(void *at, size_t size)
{
    return at == measured ? 0 : __real_munmap(at, size);
}

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* What cgroups allow, which each connection asks for, is nothing that there is: so they allow all. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
    if (strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0)
        return __real_fopen(path, mode);
    errno = ENOENT;
    return NULL;
}

/* For bulk data, whose last byte is the buffer's last, so that what is written behind it is found; made once, as that takes long. */
static unsigned char *bulk_data;

/* --- the device --- */

static struct {
    struct rg_reader in;
    unsigned event; /* of the connection manager, next */
    uint8_t private[56];
    size_t private_size;
    struct ibv_recv_wr posted[POSTED_MAX]; /* the receives, first in, first out */
    uint64_t receive_at[POSTED_MAX];
    unsigned first_posted, end_posted;
    uint64_t told[TOLD_MAX]; /* sends that are to tell of their completion */
    unsigned first_told, end_told;
    unsigned char *area; /* of the self-test */
    uint32_t keys;
    struct rdma_cm_event at_hand;
    struct ibv_qp qp;
    struct ibv_context context;
    struct ibv_device device;
    struct sockaddr_in peer;
} device;

/* What the peer writes there in the self-test (transport/rdma/check.c). */
static void write_pattern(void)
{
    uint64_t x = (uintptr_t)device.area ^ (uint64_t)2 << 32 ^ 0x5247524d41524541u;
    for (int i = 0; i < AREA && device.area; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        device.area[i] = (unsigned char)(x >> 56);
    }
}

/* The next fragment of the input into the receive that was posted first. False: the peer is gone. */
static bool deliver(struct ibv_wc *wc)
{
    struct rg_reader *in = &device.in;
    unsigned char type, form, seen;
    uint16_t credits, size;
    if (rg_left(in) < 7 || device.first_posted == device.end_posted)
        return false;
    rg_get_into(in, &type, sizeof type);
    rg_get_into(in, &form, sizeof form);
    rg_get_into(in, &credits, sizeof credits);
    rg_get_into(in, &seen, sizeof seen);
    rg_get_into(in, &size, sizeof size);
    const unsigned slot = device.first_posted++ % POSTED_MAX;
    unsigned char *to = (unsigned char *)(uintptr_t)device.receive_at[slot];
    uint32_t length = size < rg_left(in) ? size : (uint32_t)rg_left(in);
    length = length < RG_RDMA_PAYLOAD ? length : RG_RDMA_PAYLOAD;
    const struct rg_rdma_fragment head = {.magic = form & WITHOUT_MAGIC ? 0 : htole16(RG_RDMA_FRAGMENT_MAGIC),
                                          .type = type,
                                          .credits = htole16(credits),
                                          .length = htole32(length + (form & OTHER_LENGTH ? 1 : 0)),
                                          .advertisements_seen = htole32(seen)};
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, rg_get(in, length), length);
    if (form & HAS_WRITTEN)
        write_pattern();
    *wc = (struct ibv_wc){.status = IBV_WC_SUCCESS,
                          .wr_id = device.posted[slot].wr_id,
                          .byte_len = (uint32_t)sizeof head + length};
    return true;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
    (void)cq;
    if (n < 1)
        return 0;
    if (device.first_told != device.end_told)
        *wc = (struct ibv_wc){.status = IBV_WC_SUCCESS, .wr_id = device.told[device.first_told++ % TOLD_MAX]};
    else if (!deliver(wc))
        *wc = (struct ibv_wc){.status = IBV_WC_RETRY_EXC_ERR};
    return 1;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    (void)qp, (void)bad;
    CHECK(device.end_posted - device.first_posted < RG_RDMA_SLOTS + RG_RDMA_SPARE && wr->num_sge == 1 &&
          wr->sg_list->length == RG_RDMA_SLOT);
    device.posted[device.end_posted % POSTED_MAX] = *wr;
    device.receive_at[device.end_posted++ % POSTED_MAX] = wr->sg_list->addr;
    return 0;
}

/* All that leaves is read, so that memory which is not there is found. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)qp, (void)bad;
    CHECK(wr->num_sge <= 1);
    if (wr->num_sge)
        fuzz_read((const void *)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
    if (wr->send_flags & IBV_SEND_SIGNALED) {
        CHECK(device.end_told - device.first_told < TOLD_MAX);
        device.told[device.end_told++ % TOLD_MAX] = wr->wr_id;
    }
    return 0;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
    (void)cq, (void)solicited_only;
    return 0;
}

/* --- libibverbs --- */

VISIBLE struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    CHECK(pd);
    pd->context = context;
    return pd;
}

VISIBLE int ibv_dealloc_pd(struct ibv_pd *pd)
{
    free(pd);
    return 0;
}

VISIBLE struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct ibv_comp_channel *channel = calloc(1, sizeof *channel);
    CHECK(channel);
    channel->context = context;
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return channel;
}

VISIBLE int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    close(channel->fd);
    free(channel);
    return 0;
}

VISIBLE struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *user,
                                     struct ibv_comp_channel *channel, int vector)
{
    (void)entries, (void)vector;
    struct ibv_cq *cq = calloc(1, sizeof *cq);
    CHECK(cq);
    *cq = (struct ibv_cq){.context = context, .cq_context = user, .channel = channel};
    return cq;
}

VISIBLE int ibv_destroy_cq(struct ibv_cq *cq)
{
    free(cq);
    return 0;
}

VISIBLE void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
    (void)cq, (void)n;
}

VISIBLE int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user)
{
    (void)channel, (void)cq, (void)user;
    errno = EAGAIN;
    return -1;
}

/* Registered memory must be there, to its last byte. */
VISIBLE struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t size, int access)
{
    (void)access;
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    CHECK(mr && size);
    sink ^= ((volatile unsigned char *)at)[0] ^ ((volatile unsigned char *)at)[size - 1];
    *mr = (struct ibv_mr){.pd = pd, .addr = at, .length = size, .lkey = ++device.keys, .rkey = device.keys};
    if (size == PAGE && device.keys == 2)
        device.area = at;
    return mr;
}

VISIBLE struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t size, uint64_t iova,
                                        unsigned access)
{
    (void)iova;
    return ibv_reg_mr(pd, at, size, (int)access);
}

VISIBLE int ibv_dereg_mr(struct ibv_mr *mr)
{
    free(mr);
    return 0;
}

VISIBLE const char *ibv_get_device_name(struct ibv_device *of)
{
    (void)of;
    return "fuzz";
}

/* --- librdmacm --- */

VISIBLE struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct rdma_event_channel *channel = calloc(1, sizeof *channel);
    CHECK(channel);
    channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return channel;
}

VISIBLE void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    close(channel->fd);
    free(channel);
}

VISIBLE int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *user,
                           enum rdma_port_space space)
{
    struct rdma_cm_id *id = calloc(1, sizeof *id);
    CHECK(id);
    /* each attempt to connect has a queue pair and events of its own; fragments go on where the last one ended */
    device.event = device.keys = 0;
    device.first_posted = device.end_posted = device.first_told = device.end_told = 0;
    device.area = NULL;
    *id = (struct rdma_cm_id){.channel = channel, .context = user, .ps = space, .verbs = &device.context};
    memcpy(&id->route.addr.dst_storage, &device.peer, sizeof device.peer);
    *out = id;
    return 0;
}

VISIBLE int rdma_destroy_id(struct rdma_cm_id *id)
{
    free(id);
    return 0;
}

VISIBLE int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                              int timeout_ms)
{
    (void)id, (void)from, (void)to, (void)timeout_ms;
    return 0;
}

VISIBLE int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    (void)id, (void)timeout_ms;
    return 0;
}

VISIBLE int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attributes)
{
    (void)pd, (void)attributes;
    device.qp.context = &device.context;
    id->qp = &device.qp;
    return 0;
}

VISIBLE void rdma_destroy_qp(struct rdma_cm_id *id)
{
    id->qp = NULL;
}

VISIBLE int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *parameters)
{
    (void)id;
    CHECK(parameters->private_data_len <= sizeof device.private);
    return 0;
}

VISIBLE int rdma_disconnect(struct rdma_cm_id *id)
{
    (void)id;
    return 0;
}

VISIBLE int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size)
{
    (void)id, (void)level, (void)name, (void)value, (void)size;
    return 0;
}

VISIBLE int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out)
{
    static const enum rdma_cm_event_type events[] = {RDMA_CM_EVENT_ADDR_RESOLVED,
                                                     RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ESTABLISHED};
    (void)channel;
    if (device.event == sizeof events / sizeof *events) {
        errno = EAGAIN;
        return -1;
    }
    device.at_hand = (struct rdma_cm_event){.event = events[device.event++]};
    if (device.at_hand.event == RDMA_CM_EVENT_ESTABLISHED) {
        /* in memory of exactly its size */
        unsigned char *private = malloc(device.private_size ? device.private_size : 1);
        CHECK(private);
        memcpy(private, device.private, device.private_size);
        device.at_hand.param.conn.private_data = private;
        device.at_hand.param.conn.private_data_len = (uint8_t)device.private_size;
    }
    *out = &device.at_hand;
    return 0;
}

VISIBLE int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    if (event->event == RDMA_CM_EVENT_ESTABLISHED)
        free((void *)(uintptr_t)event->param.conn.private_data);
    return 0;
}

/* --- one connection --- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    setenv("REMOTE_GPU_RDMA", "polled", 1); /* no event is waited for */
    map_measured();
    bulk_data = malloc(BULK_MAX);
    CHECK(bulk_data);
    rg_transport_register(&rg_transport_rdma_ops);
    return 0;
}

static bool take(struct rg_conn *conn)
{
    struct rg_message message;
    if (rg_conn_recv(conn, 1000, &message) != RG_OK)
        return false;
    fuzz_read(message.data, message.size);
    for (size_t left = message.bulk_size; left;) {
        const size_t now = left < BULK_MAX ? left : BULK_MAX;
        if (rg_conn_recv_bulk(conn, bulk_data + BULK_MAX - now, now) != RG_OK)
            return false;
        left -= now;
    }
    return true;
}

static bool give(struct rg_conn *conn, unsigned step)
{
    static unsigned char large[BULK_MAX], small[64 << 10];
    static char text[] = "a message";
    const struct iovec message = {text, sizeof text};
    const struct iovec bulk =
        step % 2 ? (struct iovec){large, sizeof large} : (struct iovec){small, sizeof small};
    return rg_conn_send(conn, &(struct rg_send){.msg = &message, .n_msg = 1, .bulk = &bulk, .n_bulk = 1}) ==
           RG_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_reader in = rg_reader_of(data, size);
    unsigned char sends = 0, private_size = 0;
    struct rg_conn *conn;
    char why[256];
    if (size < 2)
        return 0;
    memset(&device, 0, sizeof device);
    device.context.device = &device.device;
    device.context.ops = (struct ibv_context_ops){
        .poll_cq = poll_cq, .post_recv = post_recv, .post_send = post_send, .req_notify_cq = req_notify_cq};
    device.peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    rg_get_into(&in, &sends, sizeof sends);
    rg_get_into(&in, &private_size, sizeof private_size);
    device.private_size = private_size % (sizeof device.private + 1);
    if (device.private_size > rg_left(&in))
        device.private_size = rg_left(&in);
    memcpy(device.private, rg_get(&in, device.private_size), device.private_size);
    device.in = in;
    const struct rg_transport_options options = {.connect_timeout_ms = 1000, .filters = ""};
    if (rg_transport_connect("rdma://127.0.0.1:1", &options, why, sizeof why, &conn) != RG_OK)
        return 0;
    for (unsigned step = 0; step < STEPS; step++)
        if (!(sends >> step & 1 ? give(conn, step) : take(conn)))
            break;
    rg_conn_destroy(conn);
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

static struct {
    unsigned char bytes[4096];
    size_t size;
} seed;

static void add(const void *data, size_t size)
{
    memcpy(seed.bytes + seed.size, data, size);
    seed.size += size;
}

static void fragment(uint8_t type, uint8_t form, uint16_t credits, uint8_t seen, const void *payload,
                     uint16_t size)
{
    add(&type, sizeof type);
    add(&form, sizeof form);
    add(&credits, sizeof credits);
    add(&seen, sizeof seen);
    add(&size, sizeof size);
    add(payload, size);
}

/* A connection up to the end of its self-test. */
static void begin(uint8_t sends)
{
    const struct rg_rdma_private private = {htole32(RG_RDMA_MAGIC), htole16(RG_RDMA_VERSION), 0, {0}};
    const struct rg_rdma_segment area = {htole64(0x10000), htole32(7), htole32(AREA)};
    const uint32_t yes = htole32(1);
    const uint8_t size = sizeof private;
    seed.size = 0;
    add(&sends, sizeof sends);
    add(&size, sizeof size);
    add(&private, sizeof private);
    fragment(RG_RDMA_CHECK_AREA, 0, 0, 0, &area, sizeof area);
    fragment(RG_RDMA_CHECK_WRITTEN, HAS_WRITTEN, 0, 0, &yes, sizeof yes);
    fragment(RG_RDMA_CHECK_VERDICT, 0, 0, 0, &yes, sizeof yes);
}

static void message(uint32_t size, uint32_t bulk_size, uint32_t mode)
{
    static const unsigned char bytes[64];
    struct {
        struct rg_rdma_message head;
        unsigned char text[64];
    } all = {{htole32(size), htole32(bulk_size), htole32(mode), 0}, {0}};
    fragment(RG_RDMA_DATA, 0, 0, 0, &all, (uint16_t)(sizeof all.head + size));
    if (mode == RG_RDMA_BULK_COPIED && bulk_size)
        fragment(RG_RDMA_DATA, 0, 0, 0, bytes, (uint16_t)bulk_size);
}

void fuzz_seeds(void)
{
    const struct rg_rdma_segment there = {htole64(0x20000), htole32(9), htole32(BULK_MAX)};
    const struct rg_rdma_ready_to_receive ready = {.n = htole32(1), .segments = {there}};
    const struct rg_rdma_advertise advert = {.slot = htole16(1), .n = htole16(1), .segments = {there}};
    begin(0);
    message(20, 0, RG_RDMA_BULK_COPIED);
    message(8, 60, RG_RDMA_BULK_COPIED);
    fragment(RG_RDMA_CREDIT, 0, 0, 0, NULL, 0);
    fragment(RG_RDMA_BYE, 0, 0, 0, NULL, 0);
    fuzz_seed("messages", seed.bytes, seed.size);
    begin(0);
    message(8, 20000, RG_RDMA_BULK_WRITTEN);
    fragment(RG_RDMA_ARRIVAL, 0, 0, 0, NULL, 0);
    message(8, 0, RG_RDMA_BULK_COPIED);
    fuzz_seed("written", seed.bytes, seed.size);
    begin(3);
    fragment(RG_RDMA_READY_TO_RECEIVE, 0, 4, 0, &ready, sizeof ready);
    fragment(RG_RDMA_CREDIT, 0, 4, 0, NULL, 0);
    fuzz_seed("sends", seed.bytes, seed.size);
    begin(2);
    fragment(RG_RDMA_ADVERTISE, 0, 0, 0, &advert, sizeof advert);
    message(4, 0, RG_RDMA_BULK_COPIED);
    fuzz_seed("advertised", seed.bytes, seed.size);
}
