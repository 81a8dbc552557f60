/*
 * choice.h - which of a server's addresses are rails over TCP: those that lead over a link of their own at both ends.
 *
 * What this machine's kernel knows of the way to each is found out before (rg_rails_to); the choice itself asks nobody.
 */
#ifndef RG_TRANSPORT_TOPOLOGY_CHOICE_H
#define RG_TRANSPORT_TOPOLOGY_CHOICE_H

#include "transport/topology/rails.h"

#include <stdbool.h>
#include <stdint.h>

/** Why an address of the server's is a rail, or is none. */
enum rg_rail_verdict {
    RG_RAIL_USED,
    RG_RAIL_NO_LINK,      /* no interface of this machine leads there, or none that REMOTE_GPU_RAILS names */
    RG_RAIL_OWN,          /* it is this machine's own */
    RG_RAIL_ROUTED,       /* it is on a network that this machine is not on, and no rails are named */
    RG_RAIL_SAME_HERE,    /* this machine reaches it by an interface that another rail has */
    RG_RAIL_SAME_THERE,   /* the server has it at an interface that another rail has */
    RG_RAIL_SAME_NETWORK, /* it is on the network of another rail, and no rails are named */
    RG_RAIL_ENOUGH,       /* there are as many as are wanted */
};

/** An address of the server's, and the way there. */
struct rg_rail_way {
    const char *host;         /* a number */
    uint32_t there;           /* the server's interface */
    const struct rg_rail *by; /* this machine's; NULL: none */
    bool direct;              /* the host is on the same network */
};

/** Whether a text is the number of an address that can be another machine's. */
bool rg_rail_is_candidate(const char *text);
/** Looks at the way to `host`, at the server's interface `there`, among this machine's links. */
struct rg_rail_way rg_rail_look(const char *host, uint32_t there, const struct rg_rail *links,
                                unsigned n_links);
/** Whether it could be one, whatever others there are. */
enum rg_rail_verdict rg_rail_judge(const struct rg_rail_way *way, bool named);
/**
 * Chooses among `n` ways, of which `first` is in use already, at most `wanted`; `named`: REMOTE_GPU_RAILS names them. Fills `out` with the
 * numbers of those that are rails, the first one first, and returns how many; `verdicts` (NULL is fine) with one for each way.
 */
unsigned rg_rail_choose(const struct rg_rail_way *ways, unsigned n, unsigned first, unsigned wanted,
                        bool named, unsigned *out, enum rg_rail_verdict *verdicts);
/** The verdict in words that go on after an address: "leads over a router: …". */
const char *rg_rail_words(enum rg_rail_verdict verdict);

#endif
