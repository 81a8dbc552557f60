/*
 * Which protocol a copy takes, and what its records carry. The rest of the client is replaced by what is
 * below.
 */
#include "client/transfer/protocol.h"

#include "client/core/call.h"
#include "client/core/optimisations.h"
#include "client/core/session.h"
#include "client/timeline/timeline.h"
#include "client/transfer/credit.h"
#include "client/transfer/transfer.h"
#include "generated/client/operations.h"

#include <criterion/criterion.h>

static struct rg_session session;
static bool may_write_host, gains;
static size_t credit = SIZE_MAX, sent, asked;
static unsigned records, rendezvous, revoked, waits;

bool rg_transfers_may_write_host(void)
{
    return may_write_host;
}

bool rg_read_gains(const struct rg_session *of, const struct rg_region *memory)
{
    return gains && of && memory;
}

bool rg_credit_take(struct rg_session *of, size_t size)
{
    const bool any = of && size <= credit;
    credit -= any ? size : 0;
    return any;
}

void rg_credit_return(struct rg_session *of, size_t size)
{
    credit += of ? size : 0;
}

uint64_t rg_rendezvous_create(struct rg_session *of, const struct rg_region *memory)
{
    asked += rg_region_size(memory);
    return of ? ++rendezvous : 0;
}

void rg_transfer_revoke(uint64_t id)
{
    revoked += id != 0;
}

bool rg_transfer_cancel(uint64_t id)
{
    return id != 0;
}

static CUresult record_in(size_t size, struct rg_bulk *bulk)
{
    size_t bytes = 0;
    for (int i = 0; i < bulk->n; i++)
        bytes += bulk->data[i].iov_len;
    cr_assert_eq(bytes, size, "a record has the data of its box");
    bulk->posted = true;
    sent += size;
    records++;
    return CUDA_SUCCESS;
}

CUresult rg_op_rgCopyIn(CUdeviceptr dst, size_t pitch, size_t width, size_t height, CUstream stream,
                        unsigned int synchronous, struct rg_bulk *bulk)
{
    (void)dst, (void)pitch, (void)stream, (void)synchronous;
    return record_in(width * height, bulk);
}

CUresult rg_op_rgBoxIn(const CUDA_MEMCPY3D *box, CUarray array, CUstream stream, unsigned int synchronous,
                       struct rg_bulk *bulk)
{
    (void)array, (void)stream, (void)synchronous;
    return record_in(box->WidthInBytes * box->Height * box->Depth, bulk);
}

CUresult rg_op_rgCopyInDeferred(CUdeviceptr dst, size_t pitch, size_t width, size_t height, CUstream stream,
                                unsigned long long transfer)
{
    (void)dst, (void)pitch, (void)width, (void)height, (void)stream;
    return transfer ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult rg_op_rgBoxInDeferred(const CUDA_MEMCPY3D *box, CUarray array, CUstream stream,
                               unsigned long long transfer)
{
    (void)box, (void)array, (void)stream;
    return transfer ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult rg_op_cuStreamSynchronize(CUstream stream)
{
    (void)stream;
    waits++;
    return CUDA_SUCCESS;
}

void rg_call_end_lease(struct rg_session *of, struct rg_lease *lease)
{
    (void)of, (void)lease;
}

/* --- what no test here comes to --- */

CUresult rg_op_rgCopyInSmall(CUdeviceptr dst, CUstream stream, unsigned int synchronous, size_t size,
                             const void *data)
{
    (void)dst, (void)stream, (void)synchronous, (void)size, (void)data;
    abort();
}

CUresult rg_op_rgCopyOut(CUdeviceptr src, size_t pitch, size_t width, size_t height, CUstream stream,
                         unsigned long long transfer, struct rg_call *reply, const struct rg_region *into)
{
    (void)src, (void)pitch, (void)width, (void)height, (void)stream, (void)transfer, (void)reply, (void)into;
    abort();
}

CUresult rg_op_rgCopyOutDeferred(CUdeviceptr src, size_t pitch, size_t width, size_t height, CUstream stream,
                                 unsigned long long transfer)
{
    (void)src, (void)pitch, (void)width, (void)height, (void)stream, (void)transfer;
    abort();
}

CUresult rg_op_rgBoxOut(const CUDA_MEMCPY3D *box, CUarray array, CUstream stream, unsigned long long transfer)
{
    (void)box, (void)array, (void)stream, (void)transfer;
    abort();
}

CUresult rg_op_rgBoxOutDeferred(const CUDA_MEMCPY3D *box, CUarray array, CUstream stream,
                                unsigned long long transfer)
{
    (void)box, (void)array, (void)stream, (void)transfer;
    abort();
}

uint64_t rg_read_create(struct rg_session *of, const struct rg_region *memory, bool deferred)
{
    (void)of, (void)memory, (void)deferred;
    abort();
}

void rg_read_destroy(uint64_t id)
{
    (void)id;
    abort();
}

void rg_call_done(struct rg_call *call)
{
    (void)call;
    abort();
}

void rg_timeline_waited(CUstream stream)
{
    (void)stream;
    abort();
}

/* --- which --- */

static const char *choice(bool to_host, enum rg_region_kind device, size_t size, bool deferrable)
{
    const struct rg_region host = rg_region_line(RG_REGION_HOST, 4096, size),
                           there = rg_region_line(device, 1 << 20, size);
    const struct rg_copy copy = {.to = to_host ? host : there,
                                 .from = to_host ? there : host,
                                 .session = &session,
                                 .deferrable = deferrable};
    return rg_protocol_choose(&copy)->name;
}

static void switch_all_on(void)
{
    for (size_t i = 0; i < RG_OPT_COUNT; i++)
        rg_optimise[i] = true;
}

Test(protocol, to_the_device, .init = switch_all_on)
{
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 8192, false), "inline");
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 8193, false), "eager");
    cr_expect_str_eq(choice(false, RG_REGION_ARRAY, 16, false), "eager", "boxes have no inline record");
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 16, true), "inline", "nobody writes the source");
    may_write_host = true;
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 16, true), "rendezvous");
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 16, false), "inline",
                     "the source is read before the call returns");
    rg_optimise[RG_OPT_BATCH] = false;
    cr_expect_str_eq(choice(false, RG_REGION_DEVICE, 16, false), "eager");
}

Test(protocol, to_the_host, .init = switch_all_on)
{
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, 1 << 17, false), "reply");
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, (1 << 17) + 1, false), "read", "in pieces");
    cr_expect_str_eq(choice(true, RG_REGION_ARRAY, 16, false), "read");
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, 16, true), "deferred read");
    gains = true;
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, 1 << 16, false), "read", "its memory is advertised");
    gains = false;
    rg_optimise[RG_OPT_CHUNKS] = rg_optimise[RG_OPT_DEFERRED_COPIES] = false;
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, RG_BULK_MAX, true), "reply");
    cr_expect_str_eq(choice(true, RG_REGION_DEVICE, RG_BULK_MAX + 1, true), "read");
}

/* --- what it sends: chunks are of RG_BULK_MAX without `pieces` --- */

static struct rg_copy box_in(size_t width, size_t height, size_t depth)
{
    const size_t pitch = width + 8, slice = (width + 8) * (height + 1);
    struct rg_copy copy = {.session = &session};
    copy.from = copy.to = (struct rg_region){
        .width = width, .height = height, .depth = depth, .address = 1 << 20, .pitch = pitch, .slice = slice};
    copy.to.kind = RG_REGION_DEVICE;
    rg_optimise[RG_OPT_CHUNKS] = false;
    return copy;
}

Test(protocol, eager_sends_all_in_messages_that_fit)
{
    struct rg_copy copy = box_in(100, 1300, 2); /* rows with gaps: 512 a message */
    cr_assert_eq(rg_protocol_eager.start(&copy), CUDA_SUCCESS);
    cr_expect_eq(sent, 100 * 1300 * 2);
    cr_expect_eq(records, 6, "%u", records);
    copy = box_in(RG_BULK_MAX + 1, 3, 1); /* rows that are longer than a message */
    records = 0;
    sent = 0;
    cr_assert_eq(rg_protocol_eager.start(&copy), CUDA_SUCCESS);
    cr_expect_eq(sent, 3 * ((size_t)RG_BULK_MAX + 1));
    cr_expect_eq(records, 6, "%u", records);
}

Test(protocol, without_credit_the_rest_is_a_rendezvous)
{
    struct rg_copy copy = box_in(RG_BULK_MAX + 1, 3, 2);
    credit = RG_BULK_MAX; /* all but a byte of the first row */
    cr_assert_eq(rg_protocol_eager.start(&copy), CUDA_SUCCESS);
    cr_expect_eq(sent, RG_BULK_MAX);
    cr_expect_eq(rendezvous, 3, "the rest of a row, of a slice, and of the slices");
    cr_expect_eq(sent + asked, rg_region_size(&copy.to));
    cr_expect(waits == 1 && revoked == 3, "the source is the caller's when the call returns");
}

Test(protocol, what_is_deferrable_is_not_waited_for)
{
    struct rg_copy copy = box_in(1 << 20, 1, 1);
    copy.deferrable = true;
    credit = 0;
    cr_assert_eq(rg_protocol_eager.start(&copy), CUDA_SUCCESS);
    cr_expect(rendezvous == 1 && asked == 1 << 20 && !waits && !revoked && !records);
}
