/*
 * nccl.c - what other processes with ranks of a communicator say (softgpu/nccl/wire.h) to a process that has ranks of it, before, while
 * and after these call operations and splits. The streams are those of tests/softgpu/nccl/streams.h; links send nowhere.
 *
 * The input: a byte that says how it begins (its lower half), and in which order the threads of links and this one go on (its upper half;
 * fibers.c), then steps, each a byte that says what it is (modulo STEPS) and its fields, numbers little-endian:
 *
 *   MESSAGE  u8 link, u8 type, u8 flags, i8 rank, ranks, source, peer, u8 kind, dtype, op, number, u16 count, offset, data: a message.
 *            `flags`: of another communicator; the last of its part; reduced; the step behind it comes while its data is received
 *   TABLE    u8 link, then a byte for each rank: in which process it is
 *   RAW      u8 link, u8 size, bytes: a message of just these
 *   CALL     u8 member, u8 kind, u16 count, u8 type, op, peer: a rank of this process calls
 *   SPLIT    u8 member, i8 colour, i8 key: likewise
 *   RUN      nothing: streams go on
 *   FLUSH    nothing: what is to be sent is sent
 *   OPEN     u8 link: another link to that process, or the first
 *   LOSE     u8 link: the link ends
 */
#include "common/base/log.h"
#include "proto/codec.h"
#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/exchange.h"
#include "softgpu/nccl/extension.h"
#include "softgpu/nccl/functions.h"
#include "softgpu/nccl/list.h"
#include "softgpu/nccl/meeting.h"
#include "softgpu/nccl/peer.h"
#include "softgpu/nccl/split.h"
#include "tests/check.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/waits.h"
#include "tests/softgpu/nccl/streams.h"

#include <fcntl.h>
#include <string.h>

enum { MESSAGE, TABLE, RAW, CALL, SPLIT, RUN, FLUSH, OPEN, LOSE, STEPS };
enum { OTHER_CLIQUE = 1, LAST = 2, REDUCED = 4, NESTED = 8, FROM_HERE = 16 };
enum { LINKS = 4, PROCESSES = 2, MEMBERS_MAX = 2, SPLITS_MAX = 8, RANKS = 4, COUNT_MAX = 4095, COMPUTED = 8 };
/* The first byte: how many members; whether the id was made here; whether all have met already. */
enum { TWO_MEMBERS = 1, MADE_HERE = 2, MET = 4, IN_PLACE = 8 };

extern const struct rg_nccl_extension rg_nccl_extension;

static unsigned char given[RANKS * (COUNT_MAX + 1) * 8], got[sizeof given];

static struct {
    struct rg_reader in;
    uint64_t key;
    int members;
    bool nested;        /* the step behind is to come while data is received */
    unsigned receiving; /* on which link; LINKS: on none */
    struct sg_peer *links[LINKS];
    ncclComm_t comms[MEMBERS_MAX];
    struct {
        ncclComm_t comm, part;
        struct sg_split *split;
    } splits[SPLITS_MAX];
    unsigned n_splits;
} at;

static void step(void);

static unsigned get_u8(void)
{
    uint8_t value = 0;
    rg_get_into(&at.in, &value, sizeof value);
    return value;
}

static unsigned get_u16(void)
{
    uint16_t value = 0;
    rg_get_into(&at.in, &value, sizeof value);
    return value;
}

static int get_signed(void)
{
    return (int8_t)get_u8();
}

/* Arithmetic has tests of its own: all elements are looked at, the first and the last are computed. */
void __real_sg_reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
                      const void *const *scalars, size_t count);
void __wrap_sg_reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
                      const void *const *scalars, size_t count);
void __wrap_sg_reduce(const struct sg_reduction *reduction, void *out, const void *const *inputs,
                      const void *const *scalars, size_t count)
{
    const size_t width = rg_nccl_type_size(reduction->type), few = count < COMPUTED ? count : COMPUTED;
    const size_t last = (count - few) * width;
    const void *behind[RANKS];
    CHECK(reduction->n <= RANKS);
    for (int i = 0; i < reduction->n; i++) {
        fuzz_read(inputs[i], count * width);
        behind[i] = (const unsigned char *)inputs[i] + last;
    }
    fuzz_read(out, count * width);
    __real_sg_reduce(reduction, out, inputs, scalars, few);
    __real_sg_reduce(reduction, (unsigned char *)out + last, behind, scalars, few);
}

/* --- links ------------------------------------------------------------------------------------------------------ */

static bool send_nowhere(void *link, const void *message, size_t size, const void *data, size_t data_size)
{
    (void)link, (void)message, (void)size, (void)data, (void)data_size;
    return true;
}

static bool receive(void *link, void *memory, size_t size)
{
    (void)link;
    if (at.nested) {
        at.nested = false;
        step();
    }
    if (memory)
        memset(memory, 0x3c, size);
    return true;
}

static bool read_nothing(void *link)
{
    (void)link;
    return false;
}

static void interrupt(void *link)
{
    (void)link;
}

/* The first link to each process was made from here, to wherever that is. */
static bool leads_to(void *link, const unsigned char place[RG_NCCL_PLACE_BYTES])
{
    (void)place;
    return (struct sg_peer **)link < &at.links[PROCESSES];
}

static const struct rg_nccl_network network = {.send = send_nowhere,
                                               .receive = receive,
                                               .read = read_nothing,
                                               .interrupt = interrupt,
                                               .leads_to = leads_to};

/* Which process is at the end of a link: two links lead to each. Whatever this process's number, it sees to the link to one of them. */
static uint64_t process_of(unsigned link)
{
    return link % PROCESSES ? 1 : UINT64_MAX;
}

static void lose(unsigned link)
{
    struct sg_peer *peer = at.links[link];
    at.links[link] = NULL;
    if (peer)
        rg_nccl_extension.lost(peer);
}

/* As the reader of the link: who breaks the protocol is cut off. */
static void say(unsigned link, const void *message, size_t size, size_t data)
{
    if (!at.links[link] || link == at.receiving)
        return;
    const unsigned outer = at.receiving;
    at.receiving = link;
    const bool good = rg_nccl_extension.message(at.links[link], message, size, data);
    at.receiving = outer;
    at.nested = false;
    if (!good)
        lose(link);
}

static void say_wire(unsigned link, const struct sg_wire *wire, const void *behind, size_t size, size_t data)
{
    unsigned char message[sizeof *wire + RANKS * sizeof(struct sg_wire_place) + 256];
    memcpy(message, wire, sizeof *wire);
    if (size)
        memcpy(message + sizeof *wire, behind, size);
    say(link, message, sizeof *wire + size, data);
}

static void open_link(unsigned link)
{
    if (at.links[link])
        return;
    at.links[link] = rg_nccl_extension.opened(&at.links[link]);
    CHECK(at.links[link]);
    say_wire(link,
             &(struct sg_wire){.type = SG_WIRE_HELLO,
                               .version = NCCL_VERSION_CODE,
                               .clique = process_of(link),
                               .number = SG_WIRE_PROTOCOL},
             NULL, 0, 0);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void message(void)
{
    struct sg_wire wire = {0};
    struct sg_wire_place place = {0};
    const unsigned link = get_u8() % LINKS;
    wire.type = get_u8();
    const unsigned flags = get_u8();
    wire.rank = get_signed();
    wire.ranks = get_signed();
    wire.source = get_signed();
    wire.peer = get_signed();
    wire.kind = get_signed();
    wire.dtype = get_signed();
    wire.op = get_signed();
    wire.number = get_u8();
    wire.count = get_u16();
    wire.offset = get_u16();
    const size_t data = get_u16();
    wire.clique = wire.type == SG_WIRE_HELLO ? process_of(link) : flags & OTHER_CLIQUE ? ~at.key : at.key;
    wire.last = (flags & LAST) != 0;
    wire.phase = flags & REDUCED ? SG_REDUCED : SG_GIVEN;
    place.process = flags & FROM_HERE ? sg_process() : process_of(link);
    at.nested = (flags & NESTED) && at.receiving == LINKS;
    if (!at.in.bad)
        say_wire(link, &wire, &place, wire.type == SG_WIRE_JOIN ? sizeof place : 0, data);
}

static void table(void)
{
    struct sg_wire_place places[RANKS] = {{0}};
    const unsigned link = get_u8() % LINKS;
    for (int rank = 0; rank < RANKS; rank++) {
        const unsigned process = get_u8();
        places[rank].process = process == 0 ? sg_process() : process_of(process - 1);
    }
    if (!at.in.bad)
        say_wire(link, &(struct sg_wire){.type = SG_WIRE_TABLE, .clique = at.key, .ranks = RANKS}, places,
                 sizeof places, 0);
}

static void raw(void)
{
    const unsigned link = get_u8() % LINKS;
    const size_t size = get_u8();
    const void *bytes = rg_get(&at.in, size);
    if (bytes)
        say(link, bytes, size, 0);
}

static void call(void)
{
    const unsigned member = get_u8() % (unsigned)at.members, kind = get_u8() % 7;
    const size_t count = get_u16() & COUNT_MAX;
    const ncclDataType_t type = (ncclDataType_t)(get_u8() % ncclNumTypes);
    const ncclRedOp_t op = (ncclRedOp_t)(get_u8() % (ncclNumOps + 1));
    const int peer = get_u8() % (RANKS + 1);
    ncclComm_t comm = at.comms[member];
    CUstream stream = streams_get(member);
    if (at.in.bad)
        return;
    switch (kind) {
    case SG_NCCL_ALL_REDUCE:
        (void)sg_ncclAllReduce(given, got, count, type, op, comm, stream);
        break;
    case SG_NCCL_REDUCE:
        (void)sg_ncclReduce(given, got, count, type, op, peer, comm, stream);
        break;
    case SG_NCCL_BROADCAST:
        (void)sg_ncclBroadcast(given, got, count, type, peer, comm, stream);
        break;
    case SG_NCCL_ALL_GATHER:
        (void)sg_ncclAllGather(given, got, count, type, comm, stream);
        break;
    case SG_NCCL_REDUCE_SCATTER:
        (void)sg_ncclReduceScatter(given, got, count, type, op, comm, stream);
        break;
    case SG_NCCL_SEND:
        (void)sg_ncclSend(given, count, type, peer, comm, stream);
        break;
    default:
        (void)sg_ncclRecv(got, count, type, peer, comm, stream);
    }
}

/* Nobody waits for it before the end. */
static void split(void)
{
    ncclComm_t comm = at.comms[get_u8() % (unsigned)at.members];
    const int color = get_signed(), key = get_signed();
    if (at.in.bad || at.n_splits == SPLITS_MAX || sg_clique_state(comm) != ncclSuccess)
        return;
    const unsigned n = at.n_splits;
    if (sg_clique_split(comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, false, &at.splits[n].part,
                        &at.splits[n].split) != ncclSuccess)
        return;
    at.splits[n].comm = comm;
    at.n_splits++;
}

static void flush(void)
{
    sg_cliques_lock();
    for (unsigned i = 0; i < LINKS; i++)
        sg_peer_flush(at.links[i]);
    sg_cliques_unlock();
}

static void step(void)
{
    unsigned link;
    switch (get_u8() % STEPS) {
    case MESSAGE:
        message();
        break;
    case TABLE:
        table();
        break;
    case RAW:
        raw();
        break;
    case CALL:
        call();
        break;
    case SPLIT:
        split();
        break;
    case RUN:
        streams_run();
        break;
    case FLUSH:
        flush();
        break;
    case OPEN:
        open_link(get_u8() % LINKS);
        break;
    default:
        link = get_u8() % LINKS;
        if (link != at.receiving)
            lose(link);
    }
}

/* --- an input ------------------------------------------------------------------------------------------------------ */

/* The members join an id, of this process or of the first of the others. */
static void join(bool made_here)
{
    static uint64_t made_elsewhere; /* what was said of one communicator concerns no later one */
    struct rg_nccl_id id = {.key = ++made_elsewhere, .process = process_of(0)};
    ncclUniqueId bytes;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memcpy(id.magic, RG_NCCL_ID_MAGIC, sizeof id.magic);
    if (made_here)
        CHECK(sg_meeting_new(&id));
    at.key = id.key;
    memcpy(&bytes, &id, sizeof id);
    for (int i = 0; i < at.members; i++)
        CHECK(sg_ncclCommInitRankConfig(&at.comms[i], RANKS, bytes, i, &config) == ncclInProgress);
}

/* All other ranks are of the two other processes, in turn, and all say that they are ready. */
static void meet(bool made_here)
{
    struct sg_wire_place places[RANKS] = {{0}};
    for (int rank = 0; rank < RANKS; rank++)
        places[rank].process = rank < at.members ? sg_process() : process_of((unsigned)(rank % PROCESSES));
    for (unsigned link = 0; link < PROCESSES; link++)
        open_link(link);
    for (int rank = at.members; rank < RANKS && made_here; rank++)
        say_wire((unsigned)(rank % PROCESSES),
                 &(struct sg_wire){.type = SG_WIRE_JOIN, .clique = at.key, .rank = rank, .ranks = RANKS},
                 &places[rank], sizeof places[rank], 0);
    if (!made_here)
        say_wire(0, &(struct sg_wire){.type = SG_WIRE_TABLE, .clique = at.key, .ranks = RANKS}, places,
                 sizeof places, 0);
    if (!made_here)
        say_wire(1, &(struct sg_wire){.type = SG_WIRE_MEET, .clique = at.key}, NULL, 0, 0);
    for (unsigned link = 0; link < PROCESSES; link++)
        say_wire(link, &(struct sg_wire){.type = SG_WIRE_READY, .clique = at.key}, NULL, 0, 0);
    CHECK(sg_clique_state(at.comms[0]) == ncclSuccess);
}

static void end(void)
{
    rg_nccl_extension.end();
    streams_run();
    for (unsigned i = 0; i < at.n_splits; i++)
        if (sg_clique_wait_split(at.splits[i].comm, at.splits[i].split) == ncclSuccess && at.splits[i].part)
            CHECK(sg_ncclCommAbort(at.splits[i].part) == ncclSuccess);
    for (int i = 0; i < at.members; i++)
        CHECK(sg_ncclCommAbort(at.comms[i]) == ncclSuccess);
    for (unsigned link = 0; link < LINKS; link++)
        lose(link);
    CHECK(!*sg_cliques());
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    rg_log_set_fd(open("/dev/null", O_WRONLY | O_CLOEXEC));
    rg_nccl_extension.use(&network);
    return 0;
}

/* That nobody ever goes on any more is a mistake. */
static void begin_waits(unsigned order)
{
    if (!fuzz_waits_begin)
        return;
    fuzz_waits_begin(NULL);
    fuzz_waits_order(order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    memset(&at, 0, sizeof at);
    at.in = (struct rg_reader){.at = data, .end = data + size};
    at.receiving = LINKS;
    const unsigned how = get_u8();
    if (at.in.bad)
        return 0;
    begin_waits(how >> 4);
    at.members = how & TWO_MEMBERS ? 2 : 1;
    streams_set_in_place(how & IN_PLACE);
    join(how & MADE_HERE);
    if (how & MET)
        meet(how & MADE_HERE);
    while (!at.in.bad && rg_left(&at.in))
        step();
    end();
    if (fuzz_waits_end)
        fuzz_waits_end();
    return 0;
}

/* --- seeds --------------------------------------------------------------------------------------------------------- */

static void put_message(struct rg_writer *w, unsigned link, unsigned type, unsigned flags, int rank,
                        unsigned kind, unsigned count, unsigned offset, unsigned data)
{
    rg_put(w,
           &(unsigned char[]){MESSAGE, (unsigned char)link, (unsigned char)type, (unsigned char)flags,
                              (unsigned char)rank, RANKS, (unsigned char)-1, 0, (unsigned char)kind,
                              ncclFloat32, ncclSum, 0},
           12);
    rg_put(w, &(uint16_t){(uint16_t)count}, 2);
    rg_put(w, &(uint16_t){(uint16_t)offset}, 2);
    rg_put(w, &(uint16_t){(uint16_t)data}, 2);
}

static void put_call(struct rg_writer *w, unsigned member, unsigned kind, unsigned count)
{
    rg_put(w, &(unsigned char[]){CALL, (unsigned char)member, (unsigned char)kind}, 3);
    rg_put(w, &(uint16_t){(uint16_t)count}, 2);
    rg_put(w, &(unsigned char[]){ncclFloat32, ncclSum, 0}, 3);
}

static const unsigned char run_and_flush[] = {RUN, FLUSH, RUN};

/* A sum of two members and two others, with all that is said. */
static void seed_sum(unsigned how, const char *name)
{
    unsigned char made[1024];
    struct rg_writer w = {made};
    rg_put(&w, &(unsigned char){(unsigned char)how}, 1);
    put_call(&w, 0, SG_NCCL_ALL_REDUCE, 64);
    put_call(&w, 1, SG_NCCL_ALL_REDUCE, 64);
    rg_put(&w, run_and_flush, sizeof run_and_flush);
    for (int rank = 2; rank < RANKS; rank++) {
        const unsigned link = (unsigned)rank % PROCESSES;
        put_message(&w, link, SG_WIRE_COME, 0, rank, SG_NCCL_ALL_REDUCE, 64, 0, 0);
        put_message(&w, link, SG_WIRE_DATA, LAST, rank, SG_NCCL_ALL_REDUCE, 64, 0, 64);
        put_message(&w, link, SG_WIRE_DATA, LAST | NESTED, rank, SG_NCCL_ALL_REDUCE, 64, 64, 64);
        rg_put(&w, run_and_flush, 1);
        put_message(&w, link, SG_WIRE_DATA, LAST | REDUCED, rank, SG_NCCL_ALL_REDUCE, 64, (unsigned)rank * 64,
                    64);
    }
    rg_put(&w, run_and_flush, sizeof run_and_flush);
    fuzz_seed(name, made, (size_t)(w.at - made));
}

void fuzz_seeds(void)
{
    unsigned char made[512];
    struct rg_writer w = {made};
    seed_sum(TWO_MEMBERS | MET, "sum");
    seed_sum(TWO_MEMBERS | MADE_HERE | MET, "sum-of-own-id");
    seed_sum(MET | IN_PLACE, "sum-in-place");
    rg_put(&w, &(unsigned char[]){MADE_HERE, OPEN, 0, OPEN, 1}, 5);
    for (int rank = 1; rank < RANKS; rank++)
        put_message(&w, (unsigned)rank % PROCESSES, SG_WIRE_JOIN, 0, rank, 0, 0, 0, 0);
    put_message(&w, 0, SG_WIRE_READY, 0, 0, 0, 0, 0, 0);
    put_message(&w, 1, SG_WIRE_READY, 0, 0, 0, 0, 0, 0);
    put_call(&w, 0, SG_NCCL_BROADCAST, 16);
    rg_put(&w, run_and_flush, sizeof run_and_flush);
    fuzz_seed("joins", made, (size_t)(w.at - made));
    w.at = made;
    rg_put(&w, &(unsigned char[]){0, OPEN, 0, OPEN, 1, TABLE, 0, 0, 1, 2, 1}, 11);
    put_message(&w, 0, SG_WIRE_READY, 0, 0, 0, 0, 0, 0);
    put_message(&w, 1, SG_WIRE_READY, 0, 0, 0, 0, 0, 0);
    rg_put(&w, &(unsigned char[]){SPLIT, 0, 1, 0}, 4);
    for (int rank = 1; rank < RANKS; rank++)
        put_message(&w, rank == 2, SG_WIRE_SPLIT, 0, rank, 0, 0, 0, 0);
    put_message(&w, 0, SG_WIRE_LEAVE, 0, 0, 0, 0, 0, 0);
    put_message(&w, 1, SG_WIRE_FAIL, 0, ncclRemoteError, 0, 0, 0, 0);
    rg_put(&w, &(unsigned char[]){LOSE, 0}, 2);
    fuzz_seed("split-and-ends", made, (size_t)(w.at - made));
}
