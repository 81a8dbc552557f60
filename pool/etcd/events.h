/*
 * events.h - what etcd tells of keys, taken apart: the pairs of a range, and the lines of a watch. Internal to pool/etcd/.
 *
 * Only what is below the prefix is handed on: whatever answers was asked for nothing else. One thread.
 */
#ifndef RG_POOL_ETCD_EVENTS_H
#define RG_POOL_ETCD_EVENTS_H

#include "pool/etcd/etcd.h"

enum rg_etcd_line {
    RG_ETCD_LINE_NOTHING,   /* that concerns the watcher */
    RG_ETCD_LINE_CREATED,   /* a range is watched */
    RG_ETCD_LINE_TOLD,      /* and the state at `*revision` is whole again */
    RG_ETCD_LINE_ENDED,     /* the watch is over, or this is no line of one */
    RG_ETCD_LINE_COMPACTED, /* likewise, and what came since the last revision is lost */
};

/** The "kvs" of a range. */
void rg_etcd_tell_pairs(const json_t *pairs, const char *prefix, const struct rg_etcd_watcher *watcher);
/** A line of a watch, with or without its end. */
enum rg_etcd_line rg_etcd_tell_line(const char *text, size_t size, const char *prefix,
                                    const struct rg_etcd_watcher *watcher, int64_t *revision);

#endif
