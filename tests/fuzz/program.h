/*
 * program.h - the inputs of the fuzzer of the worker: what a client does, step by step.
 *
 * Behind one byte (how the session begins), steps, each a byte that says what it is (modulo FUZZ_STEPS) and its
 * fields, numbers little-endian:
 *
 *   RECORD  u32 operation (hash of its name, so that inputs outlive the numbering), u8 thread, u8 flags, u16 size,
 *           parameters
 *   SEND    u8 flags, u16 size, bulk data: sends the records since the last SEND as a batch
 *   ANSWER  struct rg_answer, u16 size, bulk data
 *   RAW     struct rg_message_header, u16 size, bytes: a message of just these bytes
 *   MODE    u8: what the driver does from now on (driver.h)
 *   PAUSE   nothing: the client waits a moment for what the worker asks for, and answers it
 */
#ifndef RG_TESTS_FUZZ_PROGRAM_H
#define RG_TESTS_FUZZ_PROGRAM_H

#include "proto/codec.h"
#include "tests/fuzz/operations.h"

enum fuzz_step_kind { FUZZ_RECORD, FUZZ_SEND, FUZZ_ANSWER, FUZZ_RAW, FUZZ_MODE, FUZZ_PAUSE, FUZZ_STEPS };

/* The first byte: what the driver does (driver.h) in its lower five bits, and: */
enum {
    FUZZ_BEGIN_BARE = 32 /* no context, stream, event */,
    FUZZ_BEGIN_TIMED = 64,
    FUZZ_BEGIN_SILENT = 128 /* no answers */
};
enum { FUZZ_RECORD_WAITS = 1, FUZZ_RECORD_AWAITED = 2 };
enum { FUZZ_SEND_DELTA = 1 };

struct fuzz_step {
    enum fuzz_step_kind kind;
    uint32_t operation; /* RECORD */
    unsigned char thread, flags, mode;
    const unsigned char *head; /* ANSWER, RAW: the fixed part, unaligned */
    const unsigned char *data; /* parameters, bulk data, bytes */
    size_t size;
};

/** The next step; false at the end. What is cut short is zero. */
bool fuzz_step_get(struct rg_reader *in, struct fuzz_step *out);
/** The operation whose name has that hash, else some other. */
const struct fuzz_operation *fuzz_operation_of(uint32_t hash);
uint32_t fuzz_hash(const char *name);

#endif
