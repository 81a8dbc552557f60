/*
 * model.h - what a trace says of a program, in a form that can be run again over another network.
 *
 * Each thread of the client is a list of steps: it computes for a while, then puts a record into the command
 * stream, waits for a reply, sends bulk data. Each record says how long the worker's dispatcher is busy with
 * it, what it gives the device to do and on which stream, what it waits for there, and how many bytes travel
 * each way. All these are what was measured, less what the network had part in: docs/prediction.md has the
 * reasoning.
 */
#ifndef RG_CLIENT_PREDICT_MODEL_H
#define RG_CLIENT_PREDICT_MODEL_H

#include "client/predict/device.h"
#include "client/predict/trace.h"

#define RG_LITTLE_REPLY 4096 /* bytes; replies with more bring data */

enum rg_step_kind {
    RG_STEP_POST,  /* puts record `record` into the command stream */
    RG_STEP_REPLY, /* waits for its reply */
    RG_STEP_SEND,  /* sends its bulk data, which takes `time` of the thread */
    RG_STEP_POLL,  /* asks without the server, in a loop, whether the device is done: `record` says of what */
    RG_STEP_SAVED, /* an optimisation (`record`) saves a round trip here */
    RG_STEP_CONNECT, /* waits for the begin of the session: `time`, of which `record` round trips */
    RG_STEP_ASK,     /* waits for the worker outside of the command stream: `time`, of which one round trip */
    RG_STEP_END      /* the thread has nothing more to do */
};

struct rg_step {
    enum rg_step_kind kind;
    uint32_t record;
    uint64_t gap;  /* ns of the thread's own before this step */
    uint64_t time; /* ns */
    bool starts;   /* other threads begin after it */
    uint32_t
        join; /* threads that must have ended `gap` before this step: a list in rg_model.joins; 0: none */
};

enum rg_record_flags {
    RG_RECORD_REPLY = 1,         /* its caller waits for a reply */
    RG_RECORD_QUERY = 2,         /* asks whether the device is done */
    RG_RECORD_READY = 4,         /* and it was */
    RG_RECORD_BLOCKS = 8,        /* waits for the device in its place */
    RG_RECORD_WAITS = 16,        /* waits for the device while others' records go on */
    RG_RECORD_DEFERRED_OUT = 32, /* its data comes to the client when the stream gets there */
    RG_RECORD_DEFERRED_IN = 64,  /* its data is fetched from the client when the stream gets there */
    RG_RECORD_ASYNC = 512,       /* its caller does other things before it waits for the reply */
    RG_RECORD_POLL = 256, /* no record: what a RG_STEP_POLL asks about; with RG_RECORD_READY if it was done */
    RG_RECORD_HOST_CALL = 128 /* the client has a part in it when the stream gets there */
};

/** What servers have to say to each other for a record: a copy, a fence, or collectives. */
struct rg_exchange_model {
    uint64_t key;            /* of those that wait for each other; 0: the others are in no record here */
    uint64_t sent, received; /* bytes, by the record's server */
    uint32_t ways, turns;    /* struct rg_probe_exchange; no ways: it waits for none of the others */
    uint32_t record;
    uint32_t first, n; /* the first of its key; of that, how many follow each other */
    uint64_t
        itself; /* ns of its time on the device in which data went; before, it waited for other processes */
    uint64_t start, end; /* as it was, by the client's clock; while the model is made */
    bool seen;           /* these are known */
};

struct rg_record_model {
    uint32_t flags;
    uint16_t op;
    uint8_t server;
    uint32_t exchange;        /* 0: none */
    uint32_t size;            /* bytes in the command stream */
    uint64_t bulk;            /* bytes of bulk data that go with it */
    uint64_t out;             /* bytes that come back: of the reply, or deferred */
    uint64_t deferred;        /* bytes that are fetched */
    uint64_t service;         /* ns that the dispatcher is busy with it, waiting for the device not counted */
    uint64_t tail;            /* ns from when nothing more is waited for until the reply leaves */
    uint64_t transfer;        /* ns of the tail in which its bytes were given to the network */
    uint64_t up, down;        /* ns of the way to the dispatcher and back, besides the network */
    struct rg_device_use use; /* what it does on the device */
    uint32_t skip;            /* queries: the step of its thread behind the last of this loop */
};

struct rg_thread_model {
    struct rg_step *steps;
    size_t n;
    uint32_t parent, parent_step; /* it starts `offset` after that step of that thread; itself: at `offset` */
    uint64_t offset;
};

/** The way to a server, as it was. */
struct rg_way_model {
    uint64_t up, down;   /* ns: usual ways of small messages */
    uint64_t wake;       /* ns: how long a record waits for the thread that sends, when it sleeps */
    uint64_t round_trip; /* ns: the quickest one over the recorded link */
};

struct rg_model {
    struct rg_thread_model *threads;
    size_t n_threads;
    struct rg_record_model *records;
    size_t n_records;
    struct rg_exchange_model *exchanges; /* the first is none */
    size_t n_exchanges;
    struct rg_way_model ways[RG_SERVERS_MAX]; /* by server */
    uint32_t *joins; /* lists of threads, each ended by UINT32_MAX; the first word is not used */
    size_t n_joins;
    struct rg_device_names names;
    uint64_t saved;      /* bits of the optimisations that saved round trips */
    uint64_t round_trip; /* ns: the quickest one over the recorded link, of the servers' longest */
    uint64_t round_trips;
    uint64_t elapsed;          /* ns, as it was */
    uint64_t waited, computed; /* ns of all threads: for replies and sending; besides */
    uint64_t device_busy;      /* ns that work took, of all streams together */
    const struct rg_trace *trace;
};

/**
 * Makes a model of a trace, which must stay. RG_ERR_NO_MEMORY. The caller calls rg_model_free in any case.
 */
RG_MUST_CHECK enum rg_status rg_model_make(const struct rg_trace *trace, struct rg_model *model);
void rg_model_free(struct rg_model *model);

#endif
