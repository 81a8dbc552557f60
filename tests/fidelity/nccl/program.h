/*
 * program.h - a random program of NCCL's calls, drawn by a seed, and what each call does to the memory of all ranks.
 *
 * Every process of a job draws the same: nothing that is drawn depends on which ranks it has.
 */
#ifndef TESTS_FIDELITY_NCCL_PROGRAM_H
#define TESTS_FIDELITY_NCCL_PROGRAM_H

#include "common/cuda/nccl.h"

#include <stdbool.h>
#include <stddef.h>

#define RANKS_MAX   8
#define COMMS_MAX   8
#define CALLS_MAX   4
#define STEPS       30
#define ARENA       ((size_t)5 << 20)
#define PRE_MUL_SUM 1000 /* an operator that is made for the call: each rank's values times factor_of(rank) */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, MESSAGE };
enum step { STEP_GROUP, STEP_COMPARE, STEP_SPLIT, STEP_DESTROY };

/* Who is in a communicator, in the order of its ranks; n 0: there is none of that number. Number 0 has all. */
struct comm {
    int n, members[RANKS_MAX];
};

struct call {
    enum kind kind;
    int comm, op, root, to; /* root, or the sender, and the receiver: ranks of the communicator */
    ncclDataType_t type;
    size_t count;
    bool uploads;                               /* what ranks give is new in the model */
    size_t send[RANKS_MAX], receive[RANKS_MAX]; /* in the arena of each rank */
};

struct group {
    int n, depth; /* calls; how often the group is begun */
    bool by_rank; /* all calls of a rank, then those of the next; else all ranks' of a call */
    struct call calls[CALLS_MAX];
};

/* Of each rank of the parent: what it says, and the communicator that it is in then; -1: none. */
struct split {
    int parent, colors[RANKS_MAX], keys[RANKS_MAX], comms[RANKS_MAX];
    bool blocking;
};

extern unsigned char *model[RANKS_MAX]; /* what is in each rank's arena */
extern struct comm comms[COMMS_MAX];
extern int n_wrong, n_calls_drawn;

void draw_begin(unsigned long seed, int ranks);
enum step draw_step(void);
/* At least one call. What is uploaded is in the model. */
void draw_group(struct group *group);
/* False: there is no number left. The new communicators are among comms. */
bool draw_split(struct split *split);
/* One that is gone from now on. */
int draw_destroyed(void);

/* The number of a rank in the communicator; -1: it is not in it. */
int member_of(const struct comm *comm, int rank);
/* Whether that rank of the communicator gives anything, and how much. */
bool gives(const struct call *call, int member);
size_t given_bytes(const struct call *call);
int factor_of(int rank);
/* An element of the type that is that number. */
void encode(ncclDataType_t type, unsigned char *to, double value);
/* Does to the model what the call does. */
void compute(const struct call *call);

void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
