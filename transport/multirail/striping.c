/*
 * striping.c - whether rails carry the large bulk data that this side sends, or the first connection does it alone.
 *
 * Where the owner leaves that open (adaptive), the first connection begins; what it carries is measured, and then what all
 * rails together carry: a tenth more is what they must bring. If they do not, that is tried again after 1 GiB, then 2, and
 * so on. One rail is never used instead of the first connection, which goes by the best adapter anyway.
 */
#include "transport/multipath/internal.h"

enum {
    WINDOW_BYTES = 16 << 20, /* over which a rate is measured */
    WINDOW_NS = 5000000,
};
static const uint64_t first_pause = 1ull << 30, longest_pause = 1ull << 36;
static const double worth_it = 1.1;

void rg_striping_reset(struct multipath *b)
{
    struct striping *s = &b->striping;
    const unsigned living = rg_multirail_living(b);
    if (!b->options.adaptive) {
        atomic_store(&s->on, living > 0);
        return;
    }
    if (living < 2)
        atomic_store(&s->on, false);
    s->trying = false; /* and what was measured was with others */
    s->bytes = s->ns = s->rest = s->pause = 0;
}

/* The first measurement is over; the lock is held. */
static void judge(struct multipath *b, double rate)
{
    struct striping *s = &b->striping;
    const bool worth = rate > s->before * worth_it;
    rg_info("%s: large transfers by %u rails: %.0f MB/s, by one adapter alone %.0f MB/s", b->head.peer,
            rg_multirail_living(b), rate / 1e6, s->before / 1e6);
    s->trying = false;
    s->pause = worth                          ? 0
               : !s->pause                    ? first_pause
               : s->pause * 2 < longest_pause ? s->pause * 2
                                              : longest_pause;
    s->rest = s->pause;
    atomic_store(&s->on, worth);
}

void rg_striping_sent(struct multipath *b, size_t size, uint64_t ns, bool striped)
{
    struct striping *s = &b->striping;
    if (!b->options.adaptive)
        return;
    pthread_mutex_lock(&b->lock);
    const bool on = atomic_load(&s->on);
    if (striped == on) { /* else it is from before */
        s->bytes += size;
        s->ns += ns;
        s->rest -= s->rest < size ? s->rest : size;
    }
    if (s->bytes >= WINDOW_BYTES && s->ns >= WINDOW_NS) {
        const double rate = (double)s->bytes * 1e9 / (double)s->ns;
        s->bytes = s->ns = 0;
        if (on && s->trying && s->fresh) {
            s->fresh = false;
        } else if (on && s->trying) {
            judge(b, rate);
        } else if (!on && !s->rest && rg_multirail_living(b) > 1) {
            s->before = rate;
            s->trying = s->fresh = true;
            atomic_store(&s->on, true);
        }
    }
    pthread_mutex_unlock(&b->lock);
}
