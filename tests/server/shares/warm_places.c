/*
 * warm_places.c - what workers without a session hold of a device: it counts, it is given up, and it becomes a session's.
 *
 * The warm worker is a process of its own, as in a server.
 */
#include "server/shares/warm_places.h"

#include "server/shares/ledger.h"
#include "tests/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PLACES = 4, CAPACITY = 1000, SESSION = 7, GAVE_WAY = 64 };

static struct rg_share_device device;

static struct rg_share_account account_at(uint32_t place, uint64_t session)
{
    return (struct rg_share_account){.device = device, .place = place, .session = session};
}

/* Holds so much until a session has none left. */
static pid_t start_warm(int fd, uint32_t place, uint64_t bytes)
{
    int told[2];
    char byte = 0;
    CHECK(pipe(told) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct rg_share_account own = {.place = place, .session = RG_WARM_NUMBER};
        CHECK(rg_share_device_open(fd, &own.device) == RG_OK);
        CHECK(rg_share_charge(&own, bytes));
        CHECK(write(told[1], &byte, 1) == 1);
        rg_warm_await_pressure(&own.device);
        _exit(GAVE_WAY);
    }
    CHECK(pid > 0 && read(told[0], &byte, 1) == 1);
    close(told[0]);
    close(told[1]);
    return pid;
}

/* A session gets what a warm worker had; what other sessions hold stays. */
static void test_pressure(void)
{
    int fd, end = 0;
    CHECK(rg_share_device_create(PLACES, CAPACITY, &device, &fd) == RG_OK);
    const uint32_t warm = rg_share_device_take(&device, RG_WARM_NUMBER);
    struct rg_share_account session = account_at(rg_share_device_take(&device, SESSION), SESSION);
    const pid_t pid = start_warm(fd, warm, 300);
    CHECK(rg_warm_held(&device) == 300);
    CHECK(rg_share_charge(&session, 700));
    CHECK(!rg_share_charge(&session, 1)); /* what it holds counts */
    CHECK(waitpid(pid, &end, WNOHANG) == 0);
    /* it may not sleep yet when it is told */
    for (int i = 0; i < 10000 && waitpid(pid, &end, WNOHANG) == 0; i++) {
        rg_warm_press(&device);
        usleep(1000);
    }
    CHECK(WIFEXITED(end) && WEXITSTATUS(end) == GAVE_WAY);
    rg_share_device_drop(&device, warm, RG_WARM_NUMBER);
    CHECK(rg_warm_held(&device) == 0);
    CHECK(rg_share_charge(&session, 300) && rg_share_held(&session) == 1000);
    rg_share_device_close(&device);
    close(fd);
}

/* The place becomes a session's with what is charged there and what it is guaranteed, or stays as it was. */
static void test_adoption(void)
{
    int fd;
    CHECK(rg_share_device_create(PLACES, CAPACITY, &device, &fd) == RG_OK);
    const uint32_t place = rg_share_device_take(&device, RG_WARM_NUMBER);
    struct rg_share_account warm = account_at(place, RG_WARM_NUMBER);
    CHECK(rg_share_charge(&warm, 300));
    struct rg_share_account other = account_at(rg_share_device_take(&device, SESSION + 1), SESSION + 1);
    CHECK(rg_share_charge(&other, 200));
    CHECK(!rg_warm_place_adopt(&device, place, RG_WARM_NUMBER + 1, SESSION, 0)); /* another's */
    CHECK(!rg_warm_place_adopt(&device, PLACES, RG_WARM_NUMBER, SESSION, 0));    /* none */
    CHECK(!rg_warm_place_adopt(&device, place, RG_WARM_NUMBER, SESSION, 900)); /* too much beside the other */
    CHECK(rg_warm_held(&device) == 300 && rg_share_owed(&device) == 500);
    CHECK(rg_warm_place_adopt(&device, place, RG_WARM_NUMBER, SESSION, 800));
    CHECK(rg_warm_held(&device) == 0 && rg_share_held(&warm) == 300 && rg_share_owed(&device) == 1000);
    CHECK(!rg_share_charge(&other, 1));
    rg_share_device_drop(&device, place, RG_WARM_NUMBER); /* it has no such place any more */
    CHECK(rg_share_owed(&device) == 1000);
    rg_share_device_drop(&device, place, SESSION);
    CHECK(rg_share_owed(&device) == 200);
    rg_share_device_close(&device);
    close(fd);
}

/* Any worker of the device can write to the page. */
static void test_nonsense(void)
{
    int fd;
    CHECK(rg_share_device_create(PLACES, CAPACITY, &device, &fd) == RG_OK);
    atomic_store(&device.page->n_used, UINT32_MAX);
    for (uint32_t i = 0; i < PLACES; i++) {
        atomic_store(&device.page->places[i].session, UINT64_MAX);
        atomic_store(&device.page->places[i].held, UINT64_MAX);
    }
    CHECK(rg_warm_held(&device) == UINT64_MAX);
    rg_share_device_close(&device);
    close(fd);
}

int main(void)
{
    test_pressure();
    test_adoption();
    test_nonsense();
    return 0;
}
