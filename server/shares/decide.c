/* decide.c - see decide.h. */
#include "server/shares/decide.h"

#include "common/base/limits.h"

#include <stdio.h>
#include <string.h>

#define WHOLE   1000000u /* millionths */
#define PERCENT 10000u

void rg_share_bytes_text(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    for (int i = 3; i >= 0; i--) {
        const uint64_t unit = 1ull << (10 * (i + 1));
        const uint64_t tenths = bytes / unit * 10 + bytes % unit * 10 / unit;
        if (bytes < unit)
            continue;
        if (bytes % unit == 0)
            snprintf(out, size, "%llu %s", (unsigned long long)(bytes / unit), units[i]);
        else if (bytes % unit * 10 % unit == 0 || bytes > unit * 2)
            snprintf(out, size, "%llu.%llu %s", (unsigned long long)(tenths / 10),
                     (unsigned long long)(tenths % 10), units[i]);
        else
            continue;
        return;
    }
    snprintf(out, size, "%llu bytes", (unsigned long long)bytes);
}

static uint64_t amount_of(const struct rg_share_amount *amount, uint64_t total)
{
    if (!amount->millionths)
        return amount->bytes;
    return total / WHOLE * amount->millionths + total % WHOLE * amount->millionths / WHOLE;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The wish for one card, in bytes: more than the card has is none. */
static enum rg_status wished_memory(const struct rg_share_wish *wish, const struct rg_share_card *card,
                                    const struct rg_share_card *smallest, uint64_t *out, char *why,
                                    size_t why_size)
{
    const struct rg_share_amount amount = {wish->memory_bytes, wish->memory_millionths};
    char asked[32], has[32], least_has[32];
    *out = amount_of(&amount, card->memory_total);
    if (*out <= card->memory_total && *out != 0)
        return RG_OK;
    rg_share_bytes_text(wish->memory_bytes, asked, sizeof asked);
    rg_share_bytes_text(card->memory_total, has, sizeof has);
    rg_share_bytes_text(smallest->memory_total, least_has, sizeof least_has);
    if (*out == 0)
        rg_explain(why, why_size, "this part of GPU %u's memory is less than a byte; ask for more",
                   card->ordinal);
    else
        rg_explain(
            why, why_size,
            "%s of each GPU's memory were asked for, but GPU %u has %s; ask for at most %s, for a part "
            "(-p), or for other GPUs",
            asked, card->ordinal, has, least_has);
    return RG_ERR_REFUSED;
}

static enum rg_status memory_of(const struct rg_share_limits *limits, const struct rg_share_wish *wish,
                                const struct rg_share_card *card, const struct rg_share_card *smallest,
                                uint64_t *out, char *why, size_t why_size)
{
    const uint64_t most = amount_of(&limits->max_memory, card->memory_total);
    *out = 0;
    if (!wish->memory_bytes && !wish->memory_millionths) {
        *out = least(amount_of(&limits->memory, card->memory_total), card->memory_total);
        if (most && (!*out || *out > most))
            *out = least(most, card->memory_total);
        if (*out || !limits->require_memory)
            return RG_OK;
        rg_explain(why, why_size,
                   "this server's operator wants every session to say how much of a GPU's memory it needs; "
                   "add -m SIZE or -p FRACTION to remote-gpu run");
        return RG_ERR_REFUSED;
    }
    const enum rg_status status = wished_memory(wish, card, smallest, out, why, why_size);
    if (status != RG_OK || !most || *out <= most)
        return status;
    char asked[32], may[32];
    rg_share_bytes_text(*out, asked, sizeof asked);
    rg_share_bytes_text(most, may, sizeof may);
    rg_explain(why, why_size,
               "%s of GPU %u's memory were asked for, and you may have %s at most; ask for less, or ask the "
               "server's operator for more",
               asked, card->ordinal, may);
    return RG_ERR_REFUSED;
}

static enum rg_status compute_of(const struct rg_share_limits *limits, const struct rg_share_wish *wish,
                                 uint32_t *out, char *why, size_t why_size)
{
    const uint32_t most = limits->max_compute ? limits->max_compute : WHOLE;
    *out = wish->compute_millionths ? wish->compute_millionths : limits->compute;
    if (wish->compute_millionths > most) {
        rg_explain(
            why, why_size,
            "%g %% of a GPU's time were asked for, and you may have %g %% at most; ask for less, or ask "
            "the server's operator for more",
            wish->compute_millionths / 1e4, most / 1e4);
        return RG_ERR_REFUSED;
    }
    if (!*out || *out > most)
        *out = most;
    if (*out == WHOLE)
        *out = 0;
    return RG_OK;
}

static enum rg_status weight_of(const struct rg_share_limits *limits, const struct rg_share_wish *wish,
                                uint32_t *out, char *why, size_t why_size)
{
    const uint32_t most = limits->max_weight ? limits->max_weight : RG_SHARE_WEIGHT_MAX;
    if (wish->weight > most) {
        rg_explain(why, why_size,
                   "a weight of %u was asked for, and you may have %u at most; ask for less, or ask the "
                   "server's operator for more",
                   wish->weight, most);
        return RG_ERR_REFUSED;
    }
    *out = wish->weight ? wish->weight : limits->weight ? limits->weight : RG_SHARE_WEIGHT_DEFAULT;
    if (*out > most)
        *out = most;
    return RG_OK;
}

enum rg_status rg_share_decide_priority(const struct rg_share_limits *limits,
                                        const struct rg_share_user *user, enum rg_share_priority wished,
                                        enum rg_share_priority *out, char *why, size_t why_size)
{
    const enum rg_share_priority standard = user->owner ? RG_SHARE_PRIORITY_HIGH : RG_SHARE_PRIORITY_NORMAL;
    const enum rg_share_priority most = limits->max_priority ? limits->max_priority : standard;
    if (wished > most) {
        rg_explain(
            why, why_size,
            "priority %s was asked for, and you may have %s at most; ask for less, or ask the server's "
            "operator for more",
            rg_share_priority_name(wished), rg_share_priority_name(most));
        return RG_ERR_REFUSED;
    }
    *out = wished ? wished : limits->priority ? limits->priority : RG_SHARE_PRIORITY_NORMAL;
    if (*out > most)
        *out = most;
    return RG_OK;
}

static enum rg_status idle_of(const struct rg_share_limits *limits, const struct rg_share_wish *wish,
                              uint64_t *out, char *why, size_t why_size)
{
    const uint64_t most = limits->max_idle_timeout_ns;
    *out = wish->idle_timeout_ns ? wish->idle_timeout_ns : limits->idle_timeout_ns;
    if (most && wish->idle_timeout_ns > most) {
        rg_explain(why, why_size,
                   "an idle time-out of %g s was asked for, and you may have %g s at most; ask for less, or "
                   "ask the server's operator for more",
                   (double)wish->idle_timeout_ns / 1e9, (double)most / 1e9);
        return RG_ERR_REFUSED;
    }
    if (most && (!*out || *out > most))
        *out = most;
    return RG_OK;
}

enum rg_sharing rg_share_sharing(const struct rg_share_limits *limits, const struct rg_share_wish *wish)
{
    if (limits->mode == RG_SHARE_MODE_EXCLUSIVE)
        return RG_SHARING_EXCLUSIVE;
    if (wish->exclusive)
        return limits->mode == RG_SHARE_MODE_ANY ? RG_SHARING_EXCLUSIVE : RG_SHARING_UNKNOWN;
    return limits->mode == RG_SHARE_MODE_MPS || (limits->mps && limits->mode != RG_SHARE_MODE_TURNS)
               ? RG_SHARING_MPS
               : RG_SHARING_TURNS;
}

/* MPS counts in whole percents, and knows no weights. A rule's part is fitted, never to more. */
static enum rg_status fit_mps(const struct rg_share_wish *wish, struct rg_share_grant *out, char *why,
                              size_t why_size)
{
    if (wish->weight) {
        rg_explain(
            why, why_size,
            "a weight was asked for, and your sessions share this server's GPUs by MPS, which knows none; "
            "leave it out, or ask for a part (--compute)");
        return RG_ERR_REFUSED;
    }
    if (wish->compute_millionths % PERCENT != 0 ||
        (out->compute_millionths && out->compute_millionths < PERCENT)) {
        rg_explain(why, why_size,
                   "%g %% of a GPU %s, and your sessions share this server's GPUs by MPS, which has parts "
                   "of whole percents; ask for 1 %%, 2 %%, …",
                   (wish->compute_millionths ? wish->compute_millionths : out->compute_millionths) / 1e4,
                   wish->compute_millionths ? "were asked for" : "are what its rules say");
        return RG_ERR_REFUSED;
    }
    out->compute_millionths -= out->compute_millionths % PERCENT;
    return RG_OK;
}

enum rg_status rg_share_decide(const struct rg_share_limits *limits, const struct rg_share_user *user,
                               const struct rg_share_wish *wish, const struct rg_share_card *cards,
                               uint32_t n_cards, struct rg_share_grant *out, char *why, size_t why_size)
{
    const struct rg_share_card *smallest = cards;
    *out = (struct rg_share_grant){.n_devices = n_cards};
    memcpy(out->project, wish->project, sizeof out->project);
    out->preempts = limits->preempt;
    const enum rg_sharing sharing = rg_share_sharing(limits, wish);
    if (sharing == RG_SHARING_UNKNOWN) {
        rg_explain(
            why, why_size,
            "a GPU alone (--exclusive) was asked for, and this server's operator has you share them%s; "
            "leave it out, or ask the operator",
            limits->mode == RG_SHARE_MODE_MPS ? " by MPS" : "");
        return RG_ERR_REFUSED;
    }
    out->exclusive = sharing == RG_SHARING_EXCLUSIVE;
    out->mps = sharing == RG_SHARING_MPS;
    if (wish->memory_bytes && wish->memory_millionths) {
        rg_explain(why, why_size,
                   "a share of memory was asked for as a size and as a part; ask for one of both");
        return RG_ERR_REFUSED;
    }
    for (uint32_t i = 1; i < n_cards; i++)
        if (cards[i].memory_total < smallest->memory_total)
            smallest = &cards[i];
    enum rg_status status = RG_OK;
    for (uint32_t i = 0; i < n_cards && status == RG_OK; i++) {
        out->devices[i].ordinal = cards[i].ordinal;
        status = memory_of(limits, wish, &cards[i], smallest, &out->devices[i].memory_limit, why, why_size);
    }
    if (status == RG_OK)
        status = compute_of(limits, wish, &out->compute_millionths, why, why_size);
    if (status == RG_OK)
        status = weight_of(limits, wish, &out->weight, why, why_size);
    if (status == RG_OK)
        status = rg_share_decide_priority(limits, user, wish->priority, &out->priority, why, why_size);
    if (status == RG_OK)
        status = idle_of(limits, wish, &out->idle_timeout_ns, why, why_size);
    return status == RG_OK && out->mps ? fit_mps(wish, out, why, why_size) : status;
}
