/*
 * device_page.h - a device's page: memory that the monitor shares with all workers that use one GPU.
 *
 * Each session has a place on it, which the monitor gives (rg_share_grant_device.place). What is at a place: what the session is
 * guaranteed of the device's memory, which the monitor writes, and the worker while the session is suspended, and what it holds,
 * which its worker writes (ledger.h). Beside that lies what the ordering of submissions needs (turns). A place is emptied by the
 * monitor when the worker's process is gone, however it went: until then the driver has the memory.
 *
 * All workers of the device can write to the page. So whoever reads it takes it for written by an attacker: places are within
 * n_places as the *reader* knows it, loops end, numbers are sums that cannot wrap. A worker that was taken over can disturb
 * how the others on its devices share them, which by the driver it can anyway, and nothing else. What the monitor has
 * promised it keeps in its own memory.
 */
#ifndef RG_SERVER_SHARES_DEVICE_PAGE_H
#define RG_SERVER_SHARES_DEVICE_PAGE_H

#include "common/base/status.h"
#include "server/shares/turns/turns.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** What one session has of the device's memory. A line of the cache each. */
struct rg_share_place {
    alignas(64) _Atomic uint64_t session; /* its number; 0: nobody's */
    _Atomic uint64_t guaranteed;          /* bytes; 0: nothing */
    _Atomic uint64_t held;                /* bytes that are charged, and those that are about to be */
};

struct rg_share_device_page {
    uint32_t size;     /* of the whole */
    uint32_t n_places; /* places[]: as many as there may be sessions */
    _Atomic uint64_t
        capacity;          /* bytes of the device's memory that sessions can have, as the monitor found it */
    _Atomic uint64_t idle; /* bytes that were in use when no session ran */
    _Atomic uint32_t n_used;   /* places from here on are empty */
    _Atomic uint32_t pressure; /* counts sessions' running out of memory (warm_places.h) */
    _Atomic uint64_t charging; /* whose turn it is to ask for memory that is not guaranteed (ledger.h) */
    alignas(4096) struct rg_turns turns;
    struct rg_share_place places[];
};

/** A page that is mapped; what else is here is what this process knows by itself. */
struct rg_share_device {
    struct rg_share_device_page *page; /* NULL: none */
    uint32_t n_places;
    uint64_t *owners; /* the monitor's: the session at each place; 0: nobody's */
};

/** Makes one. *fd stays open, to be given to each worker. RG_ERR_NO_MEMORY. */
RG_MUST_CHECK enum rg_status rg_share_device_create(uint32_t n_places, uint64_t capacity,
                                                    struct rg_share_device *out, int *fd);
/** Maps one that was received; the descriptor stays the caller's. RG_ERR_INVALID: it is none. */
RG_MUST_CHECK enum rg_status rg_share_device_open(int fd, struct rg_share_device *out);
void rg_share_device_close(struct rg_share_device *device); /* one without a page is fine */

/** The monitor's: an empty place for a session, UINT32_MAX if there is none; and to empty it when its worker is gone. */
uint32_t rg_share_device_take(struct rg_share_device *device, uint64_t session);
void rg_share_device_drop(struct rg_share_device *device, uint32_t place, uint64_t session);

#endif
