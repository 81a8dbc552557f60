/*
 * scripted_server.h - a server that says what a test has it say, to a client in the test's own process: one session, by a connection that is
 * no socket.
 *
 * A script is one item after another: u8 kind (modulo SCRIPT_ITEMS), u8 flags, u16 bytes of bulk data (times 16 with SCRIPT_LARGE), and
 *   SCRIPT_REPLY   to the oldest call that waits: i32 result (with SCRIPT_FAILS), u16 size, outputs
 *   SCRIPT_NOTICE  u8 type, 3 numbers; its id is one that the client has sent (SCRIPT_KNOWN), or a number more
 *   SCRIPT_RAW     u16 size, a message of these bytes
 * When there is no more, calls are answered with success and zeros.
 */
#ifndef RG_TESTS_CLIENT_SCRIPTED_SERVER_H
#define RG_TESTS_CLIENT_SCRIPTED_SERVER_H

#include "proto/codec.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCRIPT_REPLY, SCRIPT_NOTICE, SCRIPT_RAW, SCRIPT_ITEMS };
enum { SCRIPT_KNOWN = 1, SCRIPT_LARGE = 2, SCRIPT_FAILS = 4 };
enum { SCRIPT_MESSAGE_MAX = 8192 };

/** Begins the process's session; there is one device. Once. */
void scripted_server_begin(void);
/** What it says from now on. `patient`: a reply is kept until a call waits for one. */
void scripted_server_say(struct rg_reader script, bool patient);
/** The connection that has ended is there again, and no call waits. */
void scripted_server_revive(void);

/* --- scripts: each adds an item --- */

void script_reply(struct rg_writer *w, unsigned bulk, int32_t result, const void *outputs, size_t size);
/** Its id is the `id`th that the client has sent, with SCRIPT_KNOWN among the `flags`. */
void script_notice(struct rg_writer *w, unsigned flags, unsigned bulk, unsigned type, uint64_t first,
                   uint64_t second, uint64_t id);
void script_raw(struct rg_writer *w, unsigned bulk, const void *message, size_t size);

#endif
