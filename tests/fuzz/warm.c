/*
 * warm.c - workers that wait for a session: what they say to the monitor although they may have been taken over, what stands on the page
 * of a device that they write to, and the text by which the monitor tells them what to expect.
 *
 * The input is steps, each a byte that says what it is (modulo STEPS) and its fields (steps.h):
 *
 *   SAY     u8 worker, u8 descriptors, text: a packet
 *   READY   u8 worker: a good one
 *   CLOSE   u8 worker
 *   PAGE    u8 word, u64: what a worker writes to the device's page
 *   ADOPT   u8 place, u64 bytes: a place becomes a session's, or is to
 *   TEXT    text: what a worker is to expect
 */
#include "server/handshake/warm.h"
#include "common/base/log.h"
#include "common/base/packet.h"
#include "server/daemon/sessions/sessions.h"
#include "server/daemon/workers/warm_worker.h"
#include "server/shares/warm_places.h"
#include "tests/fuzz/steps.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SAY, READY, CLOSE, PAGE, ADOPT, TEXT, STEPS };
enum { WORKERS = 4, PLACES = 8 };

#define CAPACITY (1ull << 30)

static struct rg_sessions sessions;
static int ends[WORKERS];     /* the workers' */
static bool said[WORKERS];    /* that it is ready, as it is to be said */
static bool touched[WORKERS]; /* something was sent by its end, or that is closed */

static void say(unsigned which, unsigned n_fds, const void *packet, size_t size)
{
    int fds[RG_PACKET_FDS_MAX];
    n_fds = n_fds % 3;
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = 0;
    touched[which] = true;
    if (ends[which] >= 0 && size)
        (void)!rg_packet_send(ends[which], packet, size, fds, n_fds);
}

static void ready(unsigned which)
{
    const struct rg_warm_ready good = {.version = RG_WARM_VERSION, .contexts = 1};
    say(which, 0, &good, sizeof good);
}

static void write_page(void)
{
    struct rg_share_device_page *page = sessions.shares.devices[0].device.page;
    const unsigned word = fuzz_u8();
    const uint64_t value = fuzz_u64();
    if (word % 4 == 0)
        atomic_store(&page->n_used, (uint32_t)value);
    else if (word % 4 == 1)
        atomic_store(&page->places[word / 4 % PLACES].held, value);
    else if (word % 4 == 2)
        atomic_store(&page->places[word / 4 % PLACES].session, value);
    else
        atomic_store(&page->charging, value);
}

static void adopt(void)
{
    struct rg_share_device *device = &sessions.shares.devices[0].device;
    const uint32_t place = fuzz_u8();
    const uint64_t bytes = fuzz_u64(), owner = place < PLACES ? device->owners[place] : 0;
    if (rg_warm_place_adopt(device, place, RG_WARM_NUMBER + place, 7, bytes))
        CHECK(place < PLACES && owner == RG_WARM_NUMBER + place && device->owners[place] == 7);
    else
        CHECK(place >= PLACES || device->owners[place] == owner);
}

static void read_text(void)
{
    struct rg_shape shape, again;
    uint64_t contexts, same;
    char text[RG_WARM_TEXT];
    size_t size;
    if (!rg_warm_parse(fuzz_text(&size), &shape, &contexts))
        return;
    rg_warm_format(&shape, contexts, text);
    CHECK(rg_warm_parse(text, &again, &same) && rg_shape_is(&shape, &again) && contexts == same);
}

static void step(void)
{
    const unsigned what = fuzz_u8() % STEPS, which = what < PAGE ? fuzz_u8() % WORKERS : 0;
    size_t size;
    switch (what) {
    case SAY: {
        const unsigned n_fds = fuzz_u8();
        const char *text = fuzz_text(&size);
        struct rg_warm_ready packet = {0};
        memcpy(&packet, text, size < sizeof packet ? size : sizeof packet);
        said[which] =
            said[which] || (size == sizeof packet && n_fds % 3 == 0 && packet.version == RG_WARM_VERSION);
        say(which, n_fds, text, size);
        break;
    }
    case READY:
        said[which] = true;
        ready(which);
        break;
    case CLOSE:
        touched[which] = true;
        if (ends[which] >= 0)
            close(ends[which]);
        ends[which] = -1;
        break;
    case PAGE:
        write_page();
        break;
    case ADOPT:
        adopt();
        break;
    default:
        read_text();
    }
}

static void look(void)
{
    uint64_t held;
    rg_warm_workers_listen(&sessions.warm);
    for (unsigned i = 0; i < WORKERS; i++)
        CHECK(!sessions.warm.workers[i].ready || said[i]);
    CHECK(rg_warm_of_device(&sessions, 0, &held) <= WORKERS && held <= WORKERS * CAPACITY);
    (void)rg_warm_held(&sessions.shares.devices[0].device);
}

/* --- what there is, made once: an input finds it as it was made ------------------------------------------------------- */

static struct {
    unsigned char *page;
    size_t size; /* of that */
    uint64_t owners[PLACES];
} begun;

static void connect_worker(unsigned i)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    ends[i] = pair[1];
    sessions.warm.workers[i].socket = pair[0];
    CHECK(epoll_ctl(sessions.warm.events, EPOLL_CTL_ADD, pair[0], &event) == 0);
}

static void make_all(void)
{
    struct rg_shares_device *device = &sessions.shares.devices[0];
    CHECK(rg_share_device_create(PLACES, CAPACITY, &device->device, &device->fd) == RG_OK);
    device->total = CAPACITY;
    sessions.shares.n_devices = 1;
    CHECK(rg_warm_open(&sessions.warm, WORKERS, 1) == RG_OK);
    snprintf(sessions.warm.kinds[0].identity, sizeof sessions.warm.kinds[0].identity, "alice");
    for (unsigned i = 0; i < WORKERS; i++) {
        struct rg_warm_worker *worker = &sessions.warm.workers[i];
        *worker = (struct rg_warm_worker){.pid = INT_MAX, /* nobody has that number */
                                          .kind = &sessions.warm.kinds[0],
                                          .number = RG_WARM_NUMBER + i,
                                          .share.grant = {.n_devices = 1}};
        worker->share.grant.devices[0].place = rg_share_device_take(&device->device, worker->number);
        CHECK(worker->share.grant.devices[0].place == i);
        connect_worker(i);
    }
    begun.size = device->device.page->size;
    begun.page = malloc(begun.size);
    CHECK(begun.page);
    memcpy(begun.page, device->device.page, begun.size);
    memcpy(begun.owners, device->device.owners, sizeof begun.owners);
}

static void restore_all(void)
{
    struct rg_share_device *device = &sessions.shares.devices[0].device;
    memcpy(device->page, begun.page, begun.size);
    memcpy(device->owners, begun.owners, sizeof begun.owners);
    for (unsigned i = 0; i < WORKERS; i++) {
        struct rg_warm_worker *worker = &sessions.warm.workers[i];
        worker->ready = said[i] = false;
        if (!touched[i])
            continue;
        touched[i] = false;
        close(worker->socket);
        if (ends[i] >= 0)
            close(ends[i]);
        connect_worker(i);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    make_all();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in = rg_reader_of(data, size);
    while (fuzz_more()) {
        step();
        look();
    }
    restore_all();
    return 0;
}

void fuzz_seeds(void)
{
    const uint64_t much = UINT64_MAX, some = 4096;
    FUZZ_STEP(NULL, READY, 0);
    FUZZ_STEP("\2\0\0\0\0\0\0\0", SAY, 1, 0);
    FUZZ_STEP("short", SAY, 2, 1);
    FUZZ_STEP(NULL, CLOSE, 2);
    fuzz_finish("packets");
    FUZZ_STEP(NULL, READY, 0);
    FUZZ_STEP(NULL, PAGE, 1);
    fuzz_add(&much, sizeof much);
    FUZZ_STEP(NULL, PAGE, 0);
    fuzz_add(&much, sizeof much);
    FUZZ_STEP(NULL, ADOPT, 0);
    fuzz_add(&some, sizeof some);
    fuzz_finish("page");
    FUZZ_STEP("0:40000000:0:89:1", TEXT);
    fuzz_finish("text");
}
