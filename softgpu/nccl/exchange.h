/*
 * exchange.h - one operation of all its ranks: the memory through which data goes, and the steps in each rank's stream.
 *
 * Happy path of a collective of n ranks: each rank's stream copies what it gives into its place of page-locked memory, and counts
 * itself in a word there by a host function. It then waits (by a memory operation of the stream) until the word is n, and copies what
 * the rank gets out of it. Where something is to be reduced, a host function of each rank reduces one block in between, block b in the
 * order b+1, b+2, …, b of the ranks as a ring would, and a second word counts who has. Nothing waits on the host, so one thread may call
 * for all ranks. A send is complete when its data is in the memory.
 *
 * A large call is several operations, one for each part of the buffers (group.c), so that copies, links and reductions are at work at once.
 * Where one rank alone is in this process, each part takes over the memory of one before it, as soon as that has been sent (the third
 * word says so to the stream), so what is at work stays in the processor's caches.
 *
 * Where one rank alone is in this process, sums of all, all-gather and reduce-scatter use its buffers themselves, which are memory of this
 * process (`direct`): what it gives is sent from there, and what comes is received there, or added up into there; only what others give to be
 * reduced goes through memory of the operation. The stream goes on when nothing is sent from the buffers or received into them any more
 * (the third word), also where the clique has failed.
 *
 * A small one reads and writes its buffers, where they are memory of this process, in the steps that count and reduce (`by_steps`): three
 * steps in the stream instead of seven.
 *
 * Of ranks in other processes (far.h) the data comes by links into their places here, as far as members reduce it or take it; the words
 * count it as that of members.
 *
 * Ranks that disagree in what they call make the clique fail, and so does a rank that does not come in time (deadline.h): both words
 * are then set, so that no stream waits.
 */
#ifndef SG_NCCL_EXCHANGE_H
#define SG_NCCL_EXCHANGE_H

#include "softgpu/nccl/buffer.h"
#include "softgpu/nccl/clique.h"

#define SG_NCCL_PART RG_NCCL_PART /* bytes of a buffer that go at once: a part of a call */
/* parts of a call that are given, or reduced, before the first is reduced, or taken */
#define SG_NCCL_BEHIND (RG_NCCL_PARTS_AT_ONCE - 1)
#define SG_NCCL_WINDOW (2 * SG_NCCL_BEHIND + 1) /* so many later, a part's steps are all in the stream */
#define SG_NCCL_SHARED ((size_t)64 << 10)       /* bytes of memory from which on another part takes it over */

enum sg_nccl_kind {
    SG_NCCL_ALL_REDUCE,
    SG_NCCL_REDUCE,
    SG_NCCL_BROADCAST,
    SG_NCCL_ALL_GATHER,
    SG_NCCL_REDUCE_SCATTER,
    SG_NCCL_SEND,
    SG_NCCL_RECEIVE,
};

struct sg_exchange {
    struct sg_exchange *next;
    struct sg_clique *clique;
    /* what the first rank called; the others must call the same */
    enum sg_nccl_kind kind;
    size_t count, whole; /* elements of the part, and of the call */
    ncclDataType_t type;
    int op,
        peer; /* op: SG_NCCL_PRE_MUL_SUM for all that are made; peer: the root, or who receives the message */
    int first;
    int source;      /* of a message; -1: a collective */
    uint64_t number; /* of the collective, or of the message from source to peer */
    CUstream stream; /* of the first */
    bool enqueued;   /* so are the steps of a rank, all of them */
    bool arrived[SG_NCCL_RANKS_MAX];
    int participants, n_arrived; /* ranks */
    int members, n_departed;     /* those that are here */
    uint64_t waited_since_ns;    /* 0: nobody waits */
    uint64_t all_since_ns;       /* all have arrived; 0: they have not */
    uint64_t
        far_ready; /* of the clique's far processes, a bit each: they have memory for what they are sent */
    uint64_t given, done; /* of the members, a bit each: what they give is here; they have reduced */
    uint64_t told
        [2]
        [SG_NCCL_RANKS_MAX]; /* by enum sg_phase and rank: to which far processes it was sent, or is about to be */
    int outgoing;            /* sums of what is still to be sent */
    int incoming;            /* data that is being received into its memory */
    int parts[SG_NCCL_RANKS_MAX];     /* of what far ranks give: those that have not come */
    bool owes[SG_NCCL_RANKS_MAX];     /* what a far rank has reduced has not come */
    struct sg_exchange *before;       /* whose memory it takes over, and has not yet */
    bool has_successor;               /* is another one's `before` */
    bool is_free;                     /* that has been told that it may */
    unsigned char *control, *scalars; /* page-locked: the words; a scalar of 8 bytes for each rank */
    struct sg_buffer *data;
    unsigned char *places, *reduced; /* what is given, what it is reduced to */
    bool direct;                     /* the buffers themselves are used; */
    bool by_steps;                   /* or small ones are read and written by steps of the stream; */
    unsigned char *from, *to;        /* these: */
    size_t from_step, to_step;       /* bytes from a rank's block to the next, where they have blocks */
    int sending;                     /* what is being sent from there */
};

/** What streams wait for: how many have given; have reduced; and that the memory may be taken over. */
enum sg_exchange_word {
    SG_WORD_GIVEN = SG_GIVEN,
    SG_WORD_REDUCED = SG_REDUCED,
    SG_WORD_FREE,
    SG_EXCHANGE_WORDS
};

/** A call, whose values are checked. */
struct sg_nccl_call {
    enum sg_nccl_kind kind;
    ncclComm_t comm;
    CUdeviceptr send, receive;
    size_t count; /* elements of this part, not 0; send and receive are where it begins */
    size_t whole; /* as the caller says it */
    ncclDataType_t type;
    int op;   /* an operator's number for those that are made */
    int peer; /* the root, or the other end */
    CUstream stream;
    uint64_t capture;            /* that the stream takes part in (common/cuda/graph/captured.h); 0: none */
    struct sg_operator operator; /* if it is such a one: as it is now */
};

/** How far a call has been put into its stream. */
struct sg_enqueued {
    struct sg_nccl_call call;
    struct sg_exchange *exchange;
};

/* --- for steps.c: with the clique's lock held, but for sg_exchange_word --- */

/** The call takes its part in an operation. */
ncclResult_t sg_exchange_take_part(struct sg_enqueued *enqueued);
/** The word in page-locked memory that streams wait for, or write. Any thread. */
uint32_t *sg_exchange_word(const struct sg_exchange *exchange, enum sg_exchange_word which);
/** How many ranks give something. */
int sg_exchange_givers(const struct sg_exchange *exchange);
/** What streams wait for the word to become. */
int sg_exchange_awaited(const struct sg_exchange *exchange, enum sg_exchange_word which);
/** The rank's stream has got to it, and waits for the memory of the one before no more. */
void sg_exchange_took_over(struct sg_exchange *exchange);

/* --- for far.c: with the clique's lock held --- */

/** Whether ranks' data is combined by an operation: all-reduce, reduce, reduce-scatter. */
bool sg_exchange_reduces(enum sg_nccl_kind kind);
/** Whether far ranks are told what a rank gives when they are told that it is there (far.h). */
bool sg_exchange_is_small(const struct sg_exchange *exchange);
/** Whether a rank gives anything; and how many bytes. */
bool sg_exchange_gives(const struct sg_exchange *exchange, int rank);
size_t sg_exchange_given_bytes(const struct sg_exchange *exchange);
/** Where what a rank gives belongs, in the operation's memory. */
unsigned char *sg_exchange_place(const struct sg_exchange *exchange, int rank);
/** Whether a member takes so many bytes, from `offset` on, of what a far rank gives. */
bool sg_exchange_takes(const struct sg_exchange *exchange, size_t offset, size_t size);
/** Bytes that an operation needs beside the buffers that it uses. */
size_t sg_exchange_direct_bytes(const struct sg_exchange *exchange);
/** Where it is from byte `offset` on, up to the end of one rank's block: there, or in the buffers. */
unsigned char *sg_exchange_given(const struct sg_exchange *exchange, int rank, size_t offset);
/** The same of what is reduced. */
unsigned char *sg_exchange_result(const struct sg_exchange *exchange, size_t offset);
/** Whether and how the operation is to use the buffers of the call itself (`direct`, `by_steps`). */
void sg_exchange_choose_buffers(struct sg_exchange *exchange, const struct sg_nccl_call *call);
/** Of an operation by steps: copies what the member gives into its place; what it takes, from there, into its buffer. */
void sg_exchange_copy_given(const struct sg_exchange *exchange);
void sg_exchange_copy_taken(const struct sg_exchange *exchange);
/** Fails the clique: the program has freed buffers that are in use. */
void sg_exchange_buffers_gone(const struct sg_exchange *exchange);
/** Whether the buffers are still there, as far as they are used; true where they are not. */
bool sg_exchange_buffers_last(const struct sg_exchange *exchange);
/** The block of elements that a rank reduces. */
void sg_exchange_block(const struct sg_exchange *exchange, int rank, size_t *first, size_t *count);
/** A rank is there. */
void sg_exchange_arrives(struct sg_exchange *exchange, int rank);
/** What a rank gives, or has reduced, is all here; or the memory is free. */
void sg_exchange_count(struct sg_exchange *exchange, enum sg_exchange_word which);
/** The thread begins, or (NULL) ends, to do a step of the operation: the stream that it does it for cannot be waiting for it. */
void sg_exchange_enter_stream(const struct sg_exchange *exchange);
/** If nobody needs it any more, its memory is for the next. */
void sg_exchange_finish(struct sg_exchange *exchange);
/** The operation of these numbers, or NULL. */
struct sg_exchange *sg_exchange_find(const struct sg_clique *clique, int source, int peer, uint64_t number);
/** Fails the clique, as a rank has called something else than the first one. */
void sg_exchange_disagree(const struct sg_exchange *exchange, int rank, int kind, size_t whole, int type,
                          int op, int peer);

/** The name of NCCL's function. */
const char *sg_nccl_kind_name(enum sg_nccl_kind kind);
/** Lets all streams go on: the clique has failed; its lock is held. Not those whose buffers are in use: */
void sg_exchange_release(struct sg_clique *clique);
/** Somebody has stopped using the operation's buffers: if the clique has failed, its stream may go on when nobody uses them. The lock is held. */
void sg_exchange_unused(struct sg_exchange *exchange);
/** Whether a clique that has failed has operations whose buffers are in use. Its lock is held. */
bool sg_exchange_is_stuck(const struct sg_clique *clique);
/**
 * Which operation has waited since before `since_ns`, or its data has been under way since then, in words; false: none. The clique's lock
 * is held.
 */
bool sg_exchange_overdue(const struct sg_clique *clique, uint64_t since_ns, char *text, size_t size);
/** Frees all memory of a clique that nobody is in any more. */
void sg_exchange_fini(struct sg_clique *clique);

#endif
