/*
 * nvml.h - the management library's state: what the servers' inventories said, between the first nvmlInit and
 * the last nvmlShutdown.
 *
 * No session is opened: the inventory is asked for over connections of their own, once by the first nvmlInit
 * and again when somebody wants to know about memory or processes. Where the user sees less than all of the
 * server's devices, NVML and the session agree on which: what exists first decides. Any thread; a fork waits
 * for a question under way, and the child goes on with what its parent knew.
 */
#ifndef RG_CLIENT_NVML_NVML_H
#define RG_CLIENT_NVML_NVML_H

#include "client/nvml/types.h"
#include "common/base/limits.h"
#include "proto/control/control.h"

/** The functions by enum rg_nvml_function. */
extern void *const rg_nvml_api[];

/** Counts one user; the first asks the server. DRIVER_NOT_LOADED: no server will do, said once on stderr. */
enum rg_nvml_return rg_nvml_start(void);
enum rg_nvml_return rg_nvml_stop(void);
/** SUCCESS or UNINITIALIZED. */
enum rg_nvml_return rg_nvml_started(void);
/** The same, and INVALID_ARGUMENT unless `given`: a caller's pointers are there. */
enum rg_nvml_return rg_nvml_started_with(bool given);
/** The server's driver. */
enum rg_nvml_return rg_nvml_driver(struct rg_driver_info *out);
enum rg_nvml_return rg_nvml_count(unsigned *out);
/** The handle of a device; INVALID_ARGUMENT: there is none of this index. */
enum rg_nvml_return rg_nvml_handle(unsigned index, rg_nvml_device *out);
/** What is known of a device, by any value that a caller may hold for a handle. `index` may be NULL. */
enum rg_nvml_return rg_nvml_look(rg_nvml_device device, struct rg_device_info *out, unsigned *index);
/** The same for what is told by `out`: then INVALID_ARGUMENT if that is NULL. */
enum rg_nvml_return rg_nvml_look_for(rg_nvml_device device, struct rg_device_info *info, unsigned *index,
                                     const void *out);
/** rg_nvml_look with free memory of now, give or take a tenth of a second. GPU_IS_LOST: the server does not answer
 * any more, or has this device no longer. */
enum rg_nvml_return rg_nvml_look_now(rg_nvml_device device, struct rg_device_info *out);

/**
 * Instance `index`, without gaps, of a device that MIG has divided; NOT_FOUND: it has none of this index, NOT_SUPPORTED: it is not
 * divided. Of a server an instance is a device itself, and the divided one is not shown.
 */
enum rg_nvml_return rg_nvml_instance(rg_nvml_device device, unsigned index, rg_nvml_device *out);
/** The divided device that an instance is of; NOT_SUPPORTED: it is not shown. */
enum rg_nvml_return rg_nvml_whole(rg_nvml_device instance, rg_nvml_device *out);

/** A process that has a session with a device. */
struct rg_nvml_user {
    unsigned pid;
    uint64_t memory; /* of the device; RG_NVML_VALUE_UNKNOWN */
};

/**
 * The processes of this machine that have a session with the device, give or take a tenth of a second: up to
 * `capacity` of them, and how many there are. GPU_IS_LOST as above.
 */
enum rg_nvml_return rg_nvml_processes(rg_nvml_device device, struct rg_nvml_user *users, unsigned capacity,
                                      unsigned *count);
/** Where a device is to be asked for; either may be NULL. */
enum rg_nvml_return rg_nvml_where(rg_nvml_device device, char server[256], uint8_t uuid[16]);

/**
 * Asks the management library of the device's server (ask.c): `words` are the caller's arguments after the
 * device, as the question's signature says. Returns what the library there said, with its answers in the
 * caller's memory. NOT_SUPPORTED: it cannot be asked; GPU_IS_LOST: its server does not answer.
 */
int rg_nvml_ask(enum rg_nvml_question question, rg_nvml_device device, const uintptr_t *words);

/**
 * Which devices of `server` (ordinals there) were shown where the user sees less than all: a session should
 * have the same. Returns how many, 0 if none were.
 */
unsigned rg_nvml_shown(const char *server, uint32_t *ordinals);

/** A device of the list that the user's servers make together. */
struct rg_nvml_listed {
    unsigned server; /* in the order in which the user named them */
    char name[256];  /* of the server */
    uint32_t ordinal;
    uint8_t uuid[16];
};
/**
 * The devices of several servers as NVML shows them, RG_DEVICES_MAX at most; asks the servers if that has not
 * been done. False: one does not answer, or they have too few; it was said.
 */
bool rg_nvml_list(struct rg_nvml_listed *out, unsigned *n);

/* --- text (text.c) --------------------------------------------------------------------------------- */

struct rg_nvml_address {
    unsigned domain, bus, device, function;
};
/**
 * Takes "[DOMAIN:]BUS:DEVICE[.FUNCTION]" apart, hexadecimal digits of either case; false: that is not one.
 */
bool rg_nvml_parse_address(const char *text, struct rg_nvml_address *out);
/**
 * Copies `text` if it fits into `length` bytes with its NUL: INSUFFICIENT_SIZE, INVALID_ARGUMENT (no buffer).
 */
enum rg_nvml_return rg_nvml_put_text(char *out, unsigned length, const char *text);
/** What the product's name says. */
enum rg_nvml_brand rg_nvml_brand_of(const char *name);
/** NVML's number of the architecture with that compute capability; RG_NVML_ARCHITECTURE_UNKNOWN: none is known. */
unsigned rg_nvml_architecture_of(unsigned major, unsigned minor);

#endif
