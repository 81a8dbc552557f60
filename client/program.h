/*
 * program.h - what this program did when it started before: which primary contexts it used, what memory it allocated in
 * them, and which images it loaded (on a server in the same state) whose variables it then asked for. It is likely to do so
 * again, so that is done before it asks:
 *
 *   - the hello asks for the contexts, so that retaining one does not wait;
 *   - with its first context, the images are loaded and the addresses of their variables asked for, all in one go; when the
 *     program loads such an image, it is there;
 *   - with them, as much memory as it had at a time is made ready (client/ahead.h).
 *
 * What is done in vain costs the server some memory for a while (of images until the session ends), and the program nothing.
 * Memory that the program did not want this time is not made ready the next time. Programs are told
 * apart by their file and command line; what they did is kept in a file of records (records.h). With several servers
 * nothing is done ahead. Any thread.
 */
#ifndef RG_CLIENT_PROGRAM_H
#define RG_CLIENT_PROGRAM_H

#include "client/known.h"

/** Before the hello to the only server: the devices (a bit each) whose primary contexts are likely to be used. */
uint64_t rg_program_contexts(void);
/** A primary context was retained for the first time. Asks for what is likely to come; the calling thread's lane is used. */
void rg_program_context(CUdevice device, uint64_t context);
/** Whether it has not started before, with the current server in this state; notes that it has now. */
bool rg_program_is_new(void);
/** A variable of this image was asked for. */
void rg_program_note_image(const struct rg_known *known);
/** The program has got memory of that kind in the current context, or has given back device memory of so many bytes. */
struct rg_ahead_key;
void rg_program_note_memory(const struct rg_ahead_key *key, size_t bytes);
void rg_program_note_free(uint64_t context, size_t bytes);
/** The module or library of this image that was loaded in the current context before it was asked for; 0: there is none. */
uint64_t rg_program_take(enum rg_kind kind, const struct rg_known *known);

#endif
