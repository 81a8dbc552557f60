/*
 * layer.c - the receiving side of a connection that is made of others (FUZZ_LAYER: multipath, multirail, resumable), all of
 * whose connections are scripts.
 *
 * The input: steps of u8 connection (0: the first; others: a channel), u8 scale, u16 bulk size (times 4 to the power of
 * `scale`), u16 size, and the bytes of a message. Bulk data is zeros.
 */
#include "common/base/clock.h"
#include "proto/codec.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/scripted_conn.h"
#include "tests/fuzz/waits.h"
#include "transport/multipath/multipath.h"
#include "transport/multipath/wire.h"
#include "transport/multirail/multirail.h"
#include "transport/resumable/resumable.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { MULTIPATH = 1, MULTIRAIL = 2, RESUMABLE = 3 };
enum { WAITS = FUZZ_LAYER != RESUMABLE }; /* waits.h: the reconnector of that waits in poll */
enum { CHANNELS = FUZZ_LAYER == RESUMABLE ? 0 : 3, MESSAGES_MAX = 16, BULK_ALL = 3 << 20 };

/* For bulk data, whose last byte is the buffer's last, so that what is written behind it is found; made once, as that takes long. */
static unsigned char *bulk_data;

/*
 * A peer may announce what it never sends: to wait for that is right, until somebody interrupts: where all threads wait for each other, or,
 * where one waits in a system call, a thread does so when the receiver has come no further for some moments, for fewer where nothing is left
 * that it could receive.
 */
enum { MOMENT_US = 250, MOMENTS = 8, MOMENTS_WITHOUT = 4 };
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rg_conn *watched; /* NULL: nobody receives */
static unsigned steps;

static void interrupt_watched(void)
{
    pthread_mutex_lock(&watch_lock);
    if (watched)
        rg_conn_interrupt(watched);
    pthread_mutex_unlock(&watch_lock);
}

static void *watch(void *unused)
{
    unsigned before = 0, moments = 0;
    for (;;) {
        usleep(MOMENT_US);
        pthread_mutex_lock(&watch_lock);
        moments = watched && steps == before ? moments + 1 : 0;
        before = steps;
        if (moments >= (fuzz_conn_unread() ? MOMENTS : MOMENTS_WITHOUT))
            rg_conn_interrupt(watched);
        pthread_mutex_unlock(&watch_lock);
    }
    return unused;
}

static void set_watched(struct rg_conn *conn)
{
    pthread_mutex_lock(&watch_lock);
    watched = conn;
    steps++;
    pthread_mutex_unlock(&watch_lock);
    if (WAITS)
        fuzz_waits_progress();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    pthread_t thread;
    (void)argc, (void)argv;
    bulk_data = malloc(RG_BULK_MAX);
    CHECK(bulk_data);
    fuzz_conn_nobody_reads(bulk_data, RG_BULK_MAX);
    if (!WAITS)
        CHECK(pthread_create(&thread, NULL, watch, NULL) == 0 && pthread_detach(thread) == 0);
    return 0;
}

static enum rg_status refuse(void *user, struct rg_resumable_loss *loss, uint64_t received,
                             struct rg_conn **out, struct rg_conn **control_conn, uint64_t *peer_received)
{
    (void)user, (void)loss, (void)received, (void)out, (void)control_conn, (void)peer_received;
    return RG_ERR_REFUSED;
}

static void report(void *user, enum rg_resumable_event event, const struct rg_resumable_loss *loss)
{
    (void)user, (void)event, (void)loss;
}

static void script(const uint8_t *data, size_t size, struct rg_conn **conns)
{
    struct rg_reader in = rg_reader_of(data, size);
    size_t bulk_all = 0;
    for (unsigned n = 0; n < MESSAGES_MAX && rg_left(&in) >= 6; n++) {
        unsigned char head[2];
        uint16_t sizes[2];
        rg_get_into(&in, head, sizeof head);
        rg_get_into(&in, sizes, sizeof sizes);
        size_t bulk = (size_t)sizes[0] << 2 * (head[1] % 4);
        const size_t message = sizes[1] < rg_left(&in) ? sizes[1] : rg_left(&in);
        bulk = bulk < BULK_ALL - bulk_all ? bulk : BULK_ALL - bulk_all;
        bulk_all += bulk;
        fuzz_conn_push(conns[head[0] % (CHANNELS + 1)], rg_get(&in, message), message, NULL, bulk);
    }
}

/* `more`: there could be more channels than there are, for which somebody waits then. */
static struct rg_conn *layer_over(struct rg_conn **conns, bool more)
{
    struct rg_conn *layer = NULL;
    if (FUZZ_LAYER == MULTIPATH) {
        const struct rg_multipath_options options = {.channels = more ? RG_MULTIPATH_CHANNELS : CHANNELS,
                                                     .codecs = rg_codecs_here()};
        CHECK(rg_multipath_wrap(conns[0], &options, &layer) == RG_OK);
        for (unsigned i = 1; i <= CHANNELS; i++)
            CHECK(rg_multipath_add(layer, conns[i]) == RG_OK);
    } else if (FUZZ_LAYER == MULTIRAIL) {
        const struct rg_multirail_options options = {.rails = CHANNELS};
        CHECK(rg_multirail_wrap(conns[0], &options, &layer) == RG_OK);
        for (unsigned i = 1; i <= CHANNELS; i++) {
            conns[i]->caps |= RG_CAP_DELIVERS;
            CHECK(rg_multirail_add(layer, conns[i], i - 1) == RG_OK);
        }
    } else {
        const struct rg_resumable_options options = {.patience_ns = 1, .renew = refuse, .report = report};
        layer = rg_resumable_create(conns[0], NULL, &options);
        CHECK(layer);
    }
    return layer;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rg_conn *conns[CHANNELS + 1];
    struct rg_message message;
    if (WAITS)
        fuzz_waits_begin(interrupt_watched);
    for (unsigned i = 0; i <= CHANNELS; i++)
        conns[i] = fuzz_conn_create(NULL, NULL);
    script(data, size, conns);
    for (unsigned i = 0; i <= CHANNELS; i++)
        fuzz_conn_finish(conns[i]);
    struct rg_conn *layer = layer_over(conns, size % 8 == 0);
    set_watched(layer);
    while (rg_conn_recv(layer, 1000, &message) == RG_OK) {
        CHECK(message.size <= RG_MESSAGE_MAX && message.bulk_size <= RG_BULK_MAX);
        fuzz_read(message.data, message.size);
        unsigned char *memory = bulk_data + RG_BULK_MAX - message.bulk_size;
        const size_t part = message.bulk_size / 3;
        if (rg_conn_recv_bulk(layer, memory, part) != RG_OK ||
            rg_conn_recv_bulk(layer, size % 2 ? NULL : memory + part, message.bulk_size - part) != RG_OK)
            break;
        set_watched(layer);
    }
    set_watched(NULL);
    rg_conn_interrupt(layer);
    rg_conn_destroy(layer);
    if (WAITS)
        fuzz_waits_end();
    return 0;
}

/* --- seeds ------------------------------------------------------------------------------------------------- */

static void put_message(struct rg_writer *w, unsigned conn, size_t bulk, const void *message, size_t size)
{
    rg_put(w, &(unsigned char[]){(unsigned char)conn, 3}, 2);
    rg_put(w, &(uint16_t){(uint16_t)(bulk >> 6)}, 2);
    rg_put(w, &(uint16_t){(uint16_t)size}, 2);
    rg_put(w, message, size);
}

void fuzz_seeds(void)
{
    unsigned char seed[1024];
    struct rg_writer w = {seed};
    struct {
        struct rg_resumable_header head;
        unsigned char bytes[20];
    } numbered = {{RG_RESUMABLE_DATA, 0, 0}, {1, 2, 3}};
    struct {
        struct rg_out_of_band head;
        unsigned char bytes[32];
    } announced = {{RG_MESSAGE_OUT_OF_BAND, RG_PROTOCOL_MAJOR, 768u << 10, 1, 0x210, 3, {0}},
                   {RG_MESSAGE_BATCH}};
    if (FUZZ_LAYER == RESUMABLE) {
        put_message(&w, 0, 128, &numbered, sizeof numbered);
        numbered.head.kind = RG_RESUMABLE_ACK;
        put_message(&w, 0, 0, &numbered.head, sizeof numbered.head);
        numbered.head.kind = RG_RESUMABLE_GOAWAY;
        put_message(&w, 0, 0, &numbered.head, sizeof numbered.head);
    } else {
        put_message(&w, 0, 128, announced.bytes, sizeof announced.bytes);
        put_message(&w, 0, 0, &announced, sizeof announced);
        for (unsigned i = 0; i < 3; i++) {
            const struct rg_piece piece = {RG_MESSAGE_PIECE, RG_PROTOCOL_MAJOR, (uint16_t)i, 0, 0, 1};
            put_message(&w, 1 + i, RG_PIECE, &piece, sizeof piece);
        }
    }
    fuzz_seed("messages", seed, (size_t)(w.at - seed));
}
