/*
 * home.h - whose a call is, where a program uses the GPUs of several servers.
 *
 * A home is one number: 0 (the context that is current on the thread says it), the handle of a context, or
 * the number of a session plus 1 where no context is known. Generated encoders pass the home of what a call
 * names to rg_call_begin. With one session every home is 0, and nothing is looked up; what was made then is of the first session, as the
 * contexts are that can be current in the program.
 */
#ifndef RG_CLIENT_CORE_HOME_H
#define RG_CLIENT_CORE_HOME_H

#include "client/core/handle.h"
#include "client/core/session.h"

/** Whether there is anything to look up: the program uses several servers, or is a guest on another one. */
static inline bool rg_several_servers(void)
{
    return atomic_load_explicit(&rg_n_sessions, memory_order_acquire) > 1;
}
/** Whether its own GPUs, those on which it can have contexts and kernels, are of several servers. */
static inline bool rg_several_own_servers(void)
{
    return rg_n_own_sessions > 1;
}

/** Of several servers: what the functions below return then. */
uint64_t rg_home_look_up(enum rg_kind kind, uint64_t handle);
uint64_t rg_home_look_up_device(CUdevice device);
uint64_t rg_home_look_up_address(uint64_t address);

/** Home of an object; 0 for what all servers have (libraries, kernels, default streams) or nobody knows. */
static inline uint64_t rg_home_of(enum rg_kind kind, uint64_t handle)
{
    return rg_several_servers() ? rg_home_look_up(kind, handle) : 0;
}
static inline uint64_t rg_home_of_device(CUdevice device)
{
    return rg_several_servers() ? rg_home_look_up_device(device) : 0;
}
/** Home of device memory. */
static inline uint64_t rg_home_of_address(uint64_t address)
{
    return rg_several_servers() ? rg_home_look_up_address(address) : 0;
}

/** Home of a place where memory may be. */
static inline uint64_t rg_home_of_location(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? rg_home_of_device(location->id) : 0;
}

static inline uint64_t rg_home_of_session(const struct rg_session *session)
{
    return session->number + 1u;
}

/** The session that a home means: for 0 that of the current context, or the first. */
struct rg_session *rg_home_session(uint64_t home);
/** Whether two homes mean different servers. */
static inline bool rg_homes_differ(uint64_t one, uint64_t other)
{
    return rg_several_servers() && rg_home_session(one) != rg_home_session(other);
}
/** The session of the current context, or the first. */
struct rg_session *rg_session_current(void);
/** The context of a home: itself, or for a server the last that was used there; 0: none. */
uint64_t rg_home_context(uint64_t home);
uint64_t rg_home_context_of_stream(CUstream stream);

#endif
