/* choice.c - see choice.h. */
#include "transport/topology/choice.h"

#include <arpa/inet.h>
#include <string.h>

bool rg_rail_is_candidate(const char *text)
{
    unsigned char number[16];
    if (inet_pton(AF_INET, text, number) == 1)
        return number[0] != 0 && number[0] != 127 && number[0] < 224 &&
               (number[0] != 169 || number[1] != 254);
    if (inet_pton(AF_INET6, text, number) != 1)
        return false;
    const bool low = memcmp(number, (unsigned char[15]){0}, 15) == 0 && number[15] <= 1;
    const bool link_local = number[0] == 0xfe && (number[1] & 0xc0) == 0x80;
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    return !low && number[0] != 0xff && !link_local && memcmp(number, mapped, sizeof mapped) != 0;
}

struct rg_rail_way rg_rail_look(const char *host, uint32_t there, const struct rg_rail *links,
                                unsigned n_links)
{
    struct rg_rail_way way = {.host = host, .there = there};
    way.by = rg_rails_to(host, links, n_links, &way.direct);
    return way;
}

enum rg_rail_verdict rg_rail_judge(const struct rg_rail_way *way, bool named)
{
    if (!way->by)
        return RG_RAIL_NO_LINK;
    if (strcmp(way->by->way.address, way->host) == 0)
        return RG_RAIL_OWN;
    return way->direct || named ? RG_RAIL_USED : RG_RAIL_ROUTED;
}

/* Beside one that is a rail. */
static enum rg_rail_verdict judge_beside(const struct rg_rail_way *way, const struct rg_rail_way *other,
                                         bool named)
{
    if (way->by->number == other->by->number)
        return RG_RAIL_SAME_HERE;
    if (way->there == other->there)
        return RG_RAIL_SAME_THERE;
    const unsigned prefix = way->by->way.prefix;
    if (!named && (rg_rails_same_network(way->by->way.address, other->by->way.address, prefix) ||
                   rg_rails_same_network(way->host, other->host, prefix)))
        return RG_RAIL_SAME_NETWORK;
    return RG_RAIL_USED;
}

unsigned rg_rail_choose(const struct rg_rail_way *ways, unsigned n, unsigned first, unsigned wanted,
                        bool named, unsigned *out, enum rg_rail_verdict *verdicts)
{
    unsigned n_out = 1;
    out[0] = first;
    for (unsigned i = 0; i < n; i++) {
        enum rg_rail_verdict verdict = i == first ? RG_RAIL_USED : rg_rail_judge(&ways[i], named);
        if (i != first && verdict == RG_RAIL_USED) {
            if (!ways[first].by)
                verdict =
                    RG_RAIL_NO_LINK; /* the one in use goes by no link that is known: none can be told apart from it */
            for (unsigned k = 0; k < n_out && verdict == RG_RAIL_USED; k++)
                verdict = judge_beside(&ways[i], &ways[out[k]], named);
            if (verdict == RG_RAIL_USED && n_out >= wanted)
                verdict = RG_RAIL_ENOUGH;
            if (verdict == RG_RAIL_USED)
                out[n_out++] = i;
        }
        if (verdicts)
            verdicts[i] = verdict;
    }
    return n_out;
}

const char *rg_rail_words(enum rg_rail_verdict verdict)
{
    switch (verdict) {
    case RG_RAIL_USED:
        return "is used";
    case RG_RAIL_NO_LINK:
        return "no interface of this machine leads there, or none that --rails names";
    case RG_RAIL_OWN:
        return "this machine has that address itself";
    case RG_RAIL_ROUTED:
        return "leads over a router: --rails INTERFACE,… uses it all the same";
    case RG_RAIL_SAME_HERE:
        return "this machine reaches it by the same interface as another";
    case RG_RAIL_SAME_THERE:
        return "the server has it at the same interface as another";
    case RG_RAIL_SAME_NETWORK:
        return "is on the same network as another: --rails INTERFACE,… uses it all the same";
    case RG_RAIL_ENOUGH:
        return "more are not wanted (--rails)";
    }
    return "";
}
