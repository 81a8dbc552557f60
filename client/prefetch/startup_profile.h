/*
 * startup_profile.h - what this program did when it started before: which primary contexts it used, what
 * memory it allocated in them, and which images it loaded in them (on a server in the same state)
 * whose variables it then asked for. It is likely to do so again, so that is done before it asks:
 *
 *   - the hello asks for the contexts, so that retaining one does not wait;
 *   - with its first context, the images are loaded and the addresses of their variables asked for, all in
 *     one go; when the
 *     program loads such an image, it is there;
 *   - with them, as much memory as it had at a time is made ready (client/prealloc/prealloc.h).
 *
 * What is done in vain costs the server some memory for a while (of images until the session ends, or until there is no
 * other memory), and the program nothing. Memory that the program did not want this time is not made ready the next time. Programs
 * are told apart by their file and command line; what they did is kept in a file of records (journal.h). With
 * several servers nothing is done ahead. Any thread.
 */
#ifndef RG_CLIENT_PREFETCH_STARTUP_PROFILE_H
#define RG_CLIENT_PREFETCH_STARTUP_PROFILE_H

#include "client/cache/image_cache.h"

/**
 * Before the hello to the only server: the devices (a bit each) whose primary contexts are likely to be used.
 */
uint64_t rg_startup_profile_contexts(void);
/**
 * A primary context was retained for the first time. Asks for what is likely to come; the calling
 * thread makes the calls.
 */
void rg_startup_profile_context(CUdevice device, uint64_t context);
/** Whether it has not started before, with the current server in this state; notes that it has now. */
bool rg_startup_profile_is_new(void);
/** A variable of this image was asked for. */
void rg_startup_profile_note_image(const struct rg_cached_image *cached);
/**
 * The program has got memory of that kind in the current context, or has given back device memory of so many
 * bytes.
 */
struct rg_prealloc_key;
void rg_startup_profile_note_memory(const struct rg_prealloc_key *key, size_t bytes);
void rg_startup_profile_note_free(uint64_t context, size_t bytes);
#endif
