/*
 * decide.h - what a session gets of what it wishes for, by the operator's rules and the sizes of the cards.
 *
 * A pure function: whether there is room beside other sessions is found out afterwards (ledger.h). Nothing is made smaller in
 * silence: what is more than allowed is refused with a sentence. Only what nobody has asked for is fitted: a default to the
 * card and to the maximum.
 */
#ifndef RG_SERVER_SHARES_DECIDE_H
#define RG_SERVER_SHARES_DECIDE_H

#include "server/shares/rules.h"
#include "server/shares/slot.h"

/** A device that a session is to get. */
struct rg_share_card {
    uint32_t ordinal;
    uint64_t memory_total; /* bytes, as the driver says */
};

/**
 * RG_OK with `out`, but for the places on the devices' pages; RG_ERR_REFUSED with a sentence for the client. `wish` is within its
 * ranges (proto/control/client_hello.c, server/daemon/monitor/question.c).
 */
RG_MUST_CHECK enum rg_status rg_share_decide(const struct rg_share_limits *limits,
                                             const struct rg_share_user *user,
                                             const struct rg_share_wish *wish,
                                             const struct rg_share_card *cards, uint32_t n_cards,
                                             struct rg_share_grant *out, char *why, size_t why_size);

/** How a session is to share its devices; RG_SHARING_UNKNOWN: as it wishes it, it may not, and rg_share_decide says so. */
enum rg_sharing rg_share_sharing(const struct rg_share_limits *limits, const struct rg_share_wish *wish);

/** The priority that somebody gets who wishes for one (DEFAULT: for none). RG_ERR_REFUSED with a sentence for the client. */
RG_MUST_CHECK enum rg_status rg_share_decide_priority(const struct rg_share_limits *limits,
                                                      const struct rg_share_user *user,
                                                      enum rg_share_priority wished,
                                                      enum rg_share_priority *out, char *why,
                                                      size_t why_size);

/** Bytes as people read them: "8 GiB"; "1.5 GiB", also of a little more; "1023 bytes". */
void rg_share_bytes_text(uint64_t bytes, char *out, size_t size);

#endif
