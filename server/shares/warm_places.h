/*
 * warm_places.h - places on a device's page of workers that have no session yet (server/handshake/warm.h): what they hold counts as
 * what sessions hold, and sessions that run out of memory get it.
 *
 * Such a place has a number that no session has. When the worker gets its session, the place becomes the session's, with all that is
 * charged there. All workers of the device can write to the page: the worst that they can do by it is to have warm workers leave.
 */
#ifndef RG_SERVER_SHARES_WARM_PLACES_H
#define RG_SERVER_SHARES_WARM_PLACES_H

#include "server/shares/device_page.h"

#define RG_WARM_NUMBER (1ull << 63) /* the numbers of warm workers are from here on */

/** What warm workers hold, bytes. */
uint64_t rg_warm_held(const struct rg_share_device *device);

/** A session has run out of memory: the warm workers of the device are to leave. */
void rg_warm_press(struct rg_share_device *device);
/** Sleeps until a session of the device runs out of memory. */
void rg_warm_await_pressure(const struct rg_share_device *device);

/**
 * The monitor's: makes the place of warm worker `number` that of `session`, with a guarantee of so much. False: it is not its place,
 * or there is no room for the guarantee; nothing has changed.
 */
RG_MUST_CHECK bool rg_warm_place_adopt(struct rg_share_device *device, uint32_t place, uint64_t number,
                                       uint64_t session, uint64_t guaranteed);

#endif
