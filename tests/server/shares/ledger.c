/*
 * ledger.c - a device's ledger under processes that compete, die in the middle of a charge, and write nonsense to the page.
 *
 * Each worker is a process of its own, as in a server: what a killed one leaves behind is what the monitor finds.
 */
#include "server/shares/ledger.h"

#include "common/base/clock.h"
#include "server/shares/slot.h"
#include "tests/check.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 16, CAPACITY = 1000 };

static struct rg_share_device device;
static int fd;

static void begin(void)
{
    CHECK(rg_share_device_create(PLACES, CAPACITY, &device, &fd) == RG_OK);
}

static void end(void)
{
    rg_share_device_close(&device);
    close(fd);
}

static struct rg_share_account open_account(uint64_t session, uint64_t guaranteed, uint64_t limit)
{
    struct rg_share_account account = {
        .device = {.page = device.page, .n_places = PLACES}, .session = session, .limit = limit};
    account.place = rg_share_device_take(&device, session);
    CHECK(account.place < PLACES);
    CHECK(rg_share_guarantee(&device, account.place, guaranteed));
    return account;
}

static void test_one(void)
{
    begin();
    struct rg_share_account a = open_account(1, 0, 0);
    CHECK(rg_share_left(&a) == CAPACITY);
    CHECK(rg_share_charge(&a, CAPACITY) && !rg_share_charge(&a, 1));
    CHECK(rg_share_left(&a) == 0 && rg_share_held(&a) == CAPACITY);
    rg_share_refund(&a, 1);
    CHECK(!rg_share_charge(&a, 2) && !rg_share_charge(&a, UINT64_MAX) && rg_share_charge(&a, 1));
    rg_share_refund(&a, UINT64_MAX);
    CHECK(rg_share_held(&a) == 0);
    end();
}

static void test_limit(void)
{
    begin();
    struct rg_share_account a = open_account(1, 300, 300);
    CHECK(rg_share_charge(&a, 300) && !rg_share_charge(&a, 1) && rg_share_left(&a) == 0);
    rg_share_charge_anyway(&a, 50); /* what the driver has taken counts, whatever it is */
    CHECK(rg_share_held(&a) == 350 && rg_share_left(&a) == 0);
    rg_share_refund(&a, 100);
    CHECK(rg_share_left(&a) == 50 && !rg_share_charge(&a, 51) && rg_share_charge(&a, 50));
    struct rg_share_account overcommitted = open_account(2, 0, 900); /* a limit that is no guarantee */
    CHECK(rg_share_left(&overcommitted) == 700);
    CHECK(!rg_share_charge(&overcommitted, 701) && rg_share_charge(&overcommitted, 700));
    end();
}

static void test_guarantees(void)
{
    begin();
    struct rg_share_account a = open_account(1, 600, 600), b = open_account(2, 0, 0);
    const uint32_t c = rg_share_device_take(&device, 3);
    CHECK(!rg_share_guarantee(&device, c, 401) && rg_share_owed(&device) == 600);
    CHECK(rg_share_left(&b) == 400 && !rg_share_charge(&b, 401) && rg_share_charge(&b, 400));
    CHECK(!rg_share_guarantee(&device, c, 1)); /* what is held without a guarantee cannot be promised */
    CHECK(rg_share_charge(&a, 600));           /* and what was promised is there */
    rg_share_refund(&b, 100);
    CHECK(rg_share_guarantee(&device, c, 100) && !rg_share_charge(&b, 1));
    CHECK(rg_share_guarantee(&device, c, 40) && rg_share_charge(&b, 60));
    CHECK(!rg_share_guarantee(&device, PLACES, 1));
    rg_share_device_drop(&device, a.place, 1);
    CHECK(rg_share_left(&b) == 600);
    CHECK(rg_share_guarantee(&device, b.place, 900)); /* what it holds is a part of it */
    end();
}

/* Charges and refunds without a pause until it is killed. */
static _Noreturn void compete(struct rg_share_account account, unsigned seed)
{
    for (;;) {
        seed = seed * 1103515245u + 12345u;
        const uint64_t bytes = 1 + seed / 65536 % 400;
        if (!rg_share_charge(&account, bytes))
            continue;
        if (seed & 1024)
            sched_yield();
        rg_share_refund(&account, bytes);
    }
}

/* Processes that are killed anywhere in between leave nothing, and the sum never exceeds the capacity for who has a right to it. */
static void test_deaths(void)
{
    begin();
    struct rg_share_account promised = open_account(1000, 500, 500);
    for (unsigned round = 0; round < 60; round++) {
        enum { N = 4 };
        pid_t children[N];
        uint32_t places[N];
        for (unsigned i = 0; i < N; i++) {
            struct rg_share_account account = open_account(i + 1, 0, 0);
            places[i] = account.place;
            children[i] = fork();
            if (children[i] == 0)
                compete(account, round * N + i);
        }
        const uint64_t until = rg_now_ns() + 3000000;
        while (rg_now_ns() < until) { /* the guarantee holds at any moment */
            CHECK(rg_share_charge(&promised, 500));
            rg_share_refund(&promised, 500);
        }
        for (unsigned i = 0; i < N; i++) {
            kill(children[i], SIGKILL);
            CHECK(waitpid(children[i], NULL, 0) == children[i]);
            rg_share_device_drop(&device, places[i], i + 1);
        }
        CHECK(rg_share_owed(&device) == 500);
        CHECK(atomic_load(&device.page->charging) == 0);
    }
    end();
}

/* What all of them together were granted is checked at each grant, by a sum that they keep beside the ledger. */
static void test_never_over(void)
{
    begin();
    _Atomic uint64_t *granted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    enum { N = 4 };
    pid_t children[N];
    for (unsigned i = 0; i < N; i++) {
        struct rg_share_account account = open_account(i + 1, 0, 0);
        children[i] = fork();
        if (children[i])
            continue;
        unsigned seed = i, refused = 0, had = 0;
        for (int n = 0; n < 20000; n++) {
            seed = seed * 1103515245u + 12345u;
            const uint64_t bytes = 1 + seed / 65536 % 700;
            if (!rg_share_charge(&account, bytes)) {
                refused++;
                continue;
            }
            had++;
            CHECK(atomic_fetch_add(granted, bytes) + bytes <= CAPACITY);
            atomic_fetch_sub(granted, bytes);
            rg_share_refund(&account, bytes);
        }
        CHECK(had > 0);
        _exit(0);
    }
    for (unsigned i = 0; i < N; i++) {
        int status = 1;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    CHECK(rg_share_owed(&device) == 0);
    munmap((void *)granted, 4096);
    end();
}

/* Two that fit together are both granted, however they meet: taking turns, neither sees the other's attempt fail. */
static void test_no_early_refusal(void)
{
    begin();
    pid_t children[2];
    for (unsigned i = 0; i < 2; i++) {
        struct rg_share_account account = open_account(i + 1, 0, 0);
        children[i] = fork();
        if (children[i])
            continue;
        for (int n = 0; n < 20000; n++) {
            CHECK(rg_share_charge(&account, CAPACITY / 2));
            CHECK(!rg_share_charge(&account, CAPACITY)); /* an attempt that must fail, and harms nobody */
            rg_share_refund(&account, CAPACITY / 2);
        }
        _exit(0);
    }
    for (unsigned i = 0; i < 2; i++) {
        int status = 1;
        CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
    }
    end();
}

/* Who has the turn and does not give it back holds up nobody for long. */
static void test_a_turn_that_is_kept(void)
{
    begin();
    struct rg_share_account a = open_account(1, 0, 0);
    atomic_store(&device.page->charging, 77);
    const uint64_t began = rg_now_ns();
    CHECK(rg_share_charge(&a, 10));
    CHECK(rg_now_ns() - began < 10000000000ull);
    CHECK(!rg_share_charge(&a, CAPACITY));
    atomic_store(&device.page->charging, 1);
    rg_share_device_drop(&device, a.place, 1);
    CHECK(atomic_load(&device.page->charging) == 0);
    end();
}

/* A page full of nonsense: nothing is read or written beyond it, and no sum wraps to something small. */
static void test_hostile_page(void)
{
    begin();
    struct rg_share_account a = open_account(1, 100, 100), b = open_account(2, 0, 0);
    struct rg_share_device_page *page = device.page;
    memset(page, 0xff, page->size);
    CHECK(rg_share_owed(&device) == UINT64_MAX);
    CHECK(!rg_share_charge(&b, 1));
    (void)rg_share_left(&a);
    rg_share_refund(&a, 1);
    CHECK(!rg_share_guarantee(&device, PLACES, 1) && !rg_share_guarantee(&device, UINT32_MAX, 1));
    /* the monitor knows by itself which places are taken */
    for (uint32_t i = 0; i < PLACES; i++)
        atomic_store(&page->places[i].session, 0);
    CHECK(rg_share_device_take(&device, 3) == 2);
    rg_share_device_drop(&device, b.place, 99); /* of another */
    CHECK(device.owners[b.place] == 2);
    rg_share_device_drop(&device, UINT32_MAX, 2);
    rg_share_device_drop(&device, b.place, 2);
    CHECK(rg_share_device_take(&device, 4) == b.place);
    struct rg_share_device other;
    page->n_places = PLACES + 1; /* the file is smaller */
    CHECK(rg_share_device_open(fd, &other) == RG_ERR_INVALID);
    page->n_places = PLACES;
    CHECK(rg_share_device_open(fd, &other) == RG_OK);
    rg_share_device_close(&other);
    end();
}

static void test_slot(void)
{
    int slot_fd;
    struct rg_share_grant grant = {
        .n_devices = 2, .weight = 7, .devices = {{0, 1, 100}, {5, 2, 200}}, .project = "vision"};
    struct rg_share_slot *ours = rg_share_slot_create(&grant, &slot_fd);
    struct rg_share_slot *theirs = rg_share_slot_open(slot_fd);
    CHECK(ours && theirs && ours != theirs);
    struct rg_share_grant got;
    uint32_t sequence;
    rg_share_slot_get(theirs, &got, &sequence);
    CHECK(memcmp(&got, &grant, sizeof got) == 0);
    grant.weight = 8;
    rg_share_slot_set(ours, &grant);
    CHECK(rg_share_slot_sequence(theirs) != sequence);
    rg_share_slot_get(theirs, &got, &sequence);
    CHECK(got.weight == 8 && rg_share_slot_sequence(theirs) == sequence);
    /* what a worker writes is shown as far as it can be true, and the grant is the monitor's own */
    memset(&theirs->usage, 0xff, sizeof theirs->usage);
    memset(&theirs->grant, 0xff, sizeof theirs->grant);
    static struct rg_session_info info;
    rg_share_slot_show(ours, &grant, &info);
    CHECK(info.n_shares == 2 && info.state == RG_SHARE_UNKNOWN && info.weight == 8);
    CHECK(info.shares[1].memory_limit == 200 && strcmp(info.project, "vision") == 0);
    CHECK(ftruncate(slot_fd, 1) != 0); /* its size stays */
    CHECK(rg_share_slot_open(fd) == NULL);
    rg_share_slot_close(theirs);
    rg_share_slot_close(ours);
    close(slot_fd);
}

int main(void)
{
    test_one();
    test_limit();
    test_guarantees();
    test_never_over();
    test_no_early_refusal();
    test_deaths();
    test_a_turn_that_is_kept();
    test_hostile_page();
    begin();
    test_slot();
    end();
    return 0;
}
