/*
 * known.h - what was learned of an image when this user's programs loaded it before, on a server in the same state: that
 * loading it succeeds, what its kernels are, which of its variables are asked for.
 *
 * A load that is known to succeed does not wait, nor do look-ups whose answers are known. Each is still sent, and its
 * answer compared when it comes: knowledge that turns out to be wrong is thrown away, and the call's error is reported by
 * the next call that waits, as asynchronous errors are. What "the same state" means the server says in its hello
 * (`answers`): its programs, driver, settings and devices.
 *
 * A file for each image in $XDG_CACHE_HOME/remote-gpu/answers (REMOTE_GPU_CACHE: another folder, or "off") is read at the
 * first load and added to as more is learned. Entries live as long as the process. Any thread.
 */
#ifndef RG_CLIENT_KNOWN_H
#define RG_CLIENT_KNOWN_H

#include "client/image.h"
#include "proto/kinds.h"

#include <cuda.h>
#include <stdbool.h>

struct rg_known;
struct rg_session;

/**
 * What is known of an image that is to be loaded as `kind` (RG_KIND_MODULE, RG_KIND_LIBRARY) with these options on the
 * current session and device. NULL: nothing is kept.
 */
struct rg_known *rg_known_of(enum rg_kind kind, struct rg_image_view *image, const struct rg_jit *jit);
/** Which image an entry is of, and under which name it is kept. */
struct rg_known_image {
    uint32_t kind;
    uint32_t plain; /* loaded without options, and nothing is to be linked to it */
    uint8_t name[RG_DIGEST_BYTES];
    struct rg_digest digest;
    uint64_t size;
};
const struct rg_known_image *rg_known_image(const struct rg_known *known);
/** The entry of an image that was loaded in an earlier session with a server in the same state; NULL as rg_known_of. */
struct rg_known *rg_known_again(const struct rg_known_image *image);
/** Whether its answers are those for the current device. */
bool rg_known_here(const struct rg_known *known);
/** It was wrong: forgets all, here and on disk. */
void rg_known_drop(struct rg_known *known);

bool rg_known_loads(const struct rg_known *known);
void rg_known_note_load(struct rg_known *known);

/** A kernel or function. */
struct rg_known_function {
    struct rg_known_function *next;
    _Atomic bool taken;    /* of a kernel: its function in a context was asked for, and there was one */
    bool kept, taken_kept; /* in the file */
    size_t size;
    /* that describes it: struct rg_function_info and its parameters. RG_FUNCTION_UNLOADED is not kept in the file */
    unsigned char *answer;
    char name[];
};

/** What is known under that name; it stays. NULL: nothing. */
const struct rg_known_function *rg_known_function(struct rg_known *known, const char *name);
void rg_known_note_function(struct rg_known *known, const char *name, const void *answer, size_t size);
/** Of a kernel that has been noted: asking for its function succeeded. */
void rg_known_note_taken(struct rg_known *known, const char *name);
/** The same as these two, but it gets into the file only when it is used. */
void rg_known_learn_function(struct rg_known *known, const char *name, bool taken, const void *answer,
                             size_t size);
/** A function that is known was asked for; `taken`: in a context. */
void rg_known_used(struct rg_known *known, const char *name, bool taken);

/** The variables that were asked for: one after another, NULL behind the last. */
const char *rg_known_variable(struct rg_known *known, unsigned index, bool *managed);
void rg_known_note_variable(struct rg_known *known, const char *name, bool managed);

#endif
