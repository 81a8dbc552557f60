/*
 * capture.h - the state of captures, for the files capture….c. All with the graphs' lock held, but where it
 * says otherwise.
 */
#ifndef RG_COMMON_CUDA_GRAPH_CAPTURE_H
#define RG_COMMON_CUDA_GRAPH_CAPTURE_H

#include "common/cuda/graph/graph.h"

/* A set of nodes that something depends on, and how. */
struct rg_capture_nodes {
    struct rg_graph_node **at;
    CUgraphEdgeData *edges;
    size_t n;
};

struct rg_captured_stream {
    struct rg_captured_stream *next;
    unsigned long long stream; /* cuStreamGetId */
    bool blocking;             /* orders itself against the legacy stream */
    struct rg_capture_nodes last;
};

struct rg_capture {
    struct rg_capture *next;
    uint64_t id;
    struct rg_graph *graph;
    bool own_graph; /* it was made for the capture */
    bool invalid;
    CUstreamCaptureMode mode;
    pthread_t thread;
    unsigned long long origin;
    struct rg_captured_stream *streams;
    struct rg_capture_nodes
        dismissed; /* taken out of a stream's set by the application: need not be joined */
};

/* A stream's place; capture NULL: it does not capture. */
struct rg_capture_place {
    struct rg_capture *capture;
    struct rg_captured_stream *stream;
};

/*
 * What a stream handle means: its id, whether it is the legacy stream, whether that orders itself against it.
 */
struct rg_capture_who {
    unsigned long long id;
    bool legacy, blocking;
};

extern struct rg_capture *rg_capture_list;
extern __thread CUstreamCaptureMode rg_capture_thread_mode;

/** Adds nodes that are not in the set yet; `edges` NULL: plain ones. False: out of memory. */
bool rg_capture_nodes_add(struct rg_capture_nodes *set, struct rg_graph_node *const *more,
                          const CUgraphEdgeData *edges, size_t n);
bool rg_capture_nodes_set(struct rg_capture_nodes *set, struct rg_graph_node *const *to,
                          const CUgraphEdgeData *edges, size_t n);
void rg_capture_nodes_free(struct rg_capture_nodes *set);
struct rg_capture_place rg_capture_find(unsigned long long stream);
/** The capture, or NULL: it has ended. */
struct rg_capture *rg_capture_by_id(uint64_t id);
/** A capture with a stream that the legacy stream would have to wait for, or NULL. */
struct rg_capture *rg_capture_blocking(void);

/* Without the lock: */

/** Who the stream is to captures: the driver's error where the handle names none. */
CUresult rg_capture_identify(CUstream handle, struct rg_capture_who *who);
/** The stream's place in a valid capture, with the lock taken on success. */
CUresult rg_capture_enter(CUstream stream, struct rg_capture_place *place);
/** The work, which is taken over, as a node behind what the stream has so far. */
CUresult rg_capture_add_work(struct rg_graph_work *work, bool programmatic, CUstream stream,
                             struct rg_graph_node **out);
/** A node behind what the stream has so far. */
CUresult rg_capture_add(const CUgraphNodeParams *params, CUstream stream);
/** The event stands for one node's port. */
CUresult rg_capture_note_event(CUevent event, struct rg_graph_node *node, unsigned char port,
                               CUstream stream);

#endif
