/* suggest.c - see suggest.h. */
#include "common/base/suggest.h"

#include <string.h>

/* Damerau-Levenshtein distance of short words; anything longer than the table counts as far away. */
static unsigned distance(const char *a, const char *b)
{
    enum { LONGEST = 31 };
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    unsigned d[LONGEST + 1][LONGEST + 1];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

const char *rg_suggest(const char *text, const char *const *names, size_t n, size_t stride)
{
    const char *best = NULL;
    unsigned best_distance = (unsigned)strlen(text) / 3 + 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        /* a beginning is as good as a slip of the finger */
        unsigned far = strlen(text) >= 3 && strncmp(name, text, strlen(text)) == 0 ? 1 : distance(text, name);
        if (far <= best_distance && (!best || far < best_distance)) {
            best = name;
            best_distance = far;
        }
    }
    return best;
}
