/*
 * check.c - the self-test at the start of a connection: what the two devices really do.
 *
 * Not every device that calls itself RDMA does one-sided writes: one emulation silently turns them into sends
 * without a completion. And not every one delivers completion events. Both are found out here, not by names
 * of devices: each side writes a pattern into the other's check area and is told whether it was found; and
 * each side looks whether an event came for completions that did. Without one-sided writes the connection is
 * given up and made anew with sends and receives alone (endpoint.c); without events completions are polled.
 *
 * The order: AREA, the write, WRITTEN, VERDICT, from each side; nobody waits for the other's half of a step.
 */
#include "transport/rdma/internal.h"

#include "common/base/clock.h"

#include <poll.h>
#include <string.h>

enum {
    WRITE_NS = 1500000000, /* for the write to complete */
    EVENT_MS = 500,        /* for the event that belongs to a completion */
    AREA = 64,
};
#define STEP_TIME 5000000000u

static unsigned char *area(struct rg_rdma_conn *c)
{
    return c->check_memory;
}

/* The pattern that goes to an area: depends on where it is, so that no other bytes match by chance. */
static void make_pattern(unsigned char *pattern, uint64_t address, uint32_t key)
{
    uint64_t x = address ^ ((uint64_t)key << 32) ^ 0x5247524d41524541u;
    for (int i = 0; i < AREA; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        pattern[i] = (unsigned char)(x >> 56);
    }
}

static enum rg_status answer(struct rg_rdma_conn *c, enum rg_rdma_type type, bool yes)
{
    uint32_t value = htole32(yes ? 1 : 0);
    return rg_rdma_post_control(c, type, &value, sizeof value);
}

static enum rg_status wait_for(struct rg_rdma_conn *c, const uint32_t *seen, uint64_t deadline)
{
    enum rg_status status = RG_OK;
    while (status == RG_OK && *seen == 0)
        status = rg_rdma_wait(c, RG_RDMA_SENDER, deadline);
    return status;
}

/* Whether completion events come: one was asked for before the first fragment was sent. */
static bool events_come(struct rg_rdma_conn *c)
{
    struct pollfd event = {.fd = c->channel->fd, .events = POLLIN};
    rg_rdma_unlock(c);
    int n = poll(&event, 1, EVENT_MS);
    rg_rdma_lock(c);
    while (rg_rdma_take_event(c))
        ; /* they may be an earlier connection's: later ones must show that they come */
    return n > 0;
}

static enum rg_status write_pattern(struct rg_rdma_conn *c, bool *completed)
{
    unsigned char *pattern = area(c) + AREA;
    uint64_t to = le64toh(c->check_area.address);
    uint32_t key = le32toh(c->check_area.key);
    make_pattern(pattern, to, key);
    enum rg_status status = rg_rdma_post_write(c, pattern, AREA, c->check_mr->lkey, to, key);
    uint64_t deadline = rg_now_ns() + WRITE_NS;
    while (status == RG_OK && c->writes_done != c->writes_posted)
        status = rg_rdma_wait(c, RG_RDMA_SENDER, deadline);
    *completed = status == RG_OK;
    return status == RG_ERR_TIMEOUT ? RG_OK : status;
}

static enum rg_status check_writes(struct rg_rdma_conn *c)
{
    struct rg_rdma_segment mine = {
        .address = htole64((uintptr_t)area(c)), .key = htole32(c->check_mr->rkey), .length = htole32(AREA)};
    uint64_t deadline = rg_now_ns() + STEP_TIME;
    bool written = false, found = false;
    enum rg_status status = rg_rdma_post_control(c, RG_RDMA_CHECK_AREA, &mine, sizeof mine);
    if (status == RG_OK)
        status = wait_for(c, &c->check_area_seen, deadline);
    if (status == RG_OK)
        status = write_pattern(c, &written);
    if (status == RG_OK)
        status = answer(c, RG_RDMA_CHECK_WRITTEN, written);
    if (status == RG_OK)
        status = wait_for(c, &c->check_written, deadline);
    if (status == RG_OK) {
        unsigned char expected[AREA];
        make_pattern(expected, (uintptr_t)area(c), c->check_mr->rkey);
        found = c->check_written == 2 && memcmp(expected, area(c), AREA) == 0;
        status = answer(c, RG_RDMA_CHECK_VERDICT, found);
    }
    if (status == RG_OK)
        status = wait_for(c, &c->check_verdict, deadline);
    if (status == RG_OK && (!found || c->check_verdict != 2))
        status = RG_ERR_UNSUPPORTED;
    return status;
}

/* With nothing but sends and receives: one fragment each way. */
static enum rg_status check_sends(struct rg_rdma_conn *c)
{
    enum rg_status status = answer(c, RG_RDMA_CHECK_VERDICT, true);
    return status == RG_OK ? wait_for(c, &c->check_verdict, rg_now_ns() + STEP_TIME) : status;
}

enum rg_status rg_rdma_check(struct rg_rdma_conn *c)
{
    rg_rdma_lock(c);
    bool wanted = c->polled; /* by the user */
    c->polled = true;        /* until it is known that events come */
    enum rg_status status = ibv_req_notify_cq(c->cq, 0) == 0 ? RG_OK : RG_ERR_IO;
    if (status == RG_OK)
        status = c->two_sided ? check_sends(c) : check_writes(c);
    if (status == RG_OK && !wanted)
        c->polled = !events_come(c);
    c->checking = false;
    rg_rdma_unlock(c);
    return status;
}
