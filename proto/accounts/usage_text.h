/*
 * usage_text.h - usage as people and scripts read it: times as they are written, all pages of an answer together, and tables, CSV
 * and JSON of it. For the commands of both sides. One thread.
 */
#ifndef RG_PROTO_ACCOUNTS_USAGE_TEXT_H
#define RG_PROTO_ACCOUNTS_USAGE_TEXT_H

#include "proto/accounts/usage.h"

#include <jansson.h>
#include <stdio.h>

/** What somebody wants to know, as options say it; NULL: they do not. */
struct rg_usage_words {
    const char *user, *project, *since, *until, *by;
};
/** RG_ERR_INVALID with a sentence. Without `since` from the beginning of the month, at `now`, on. */
RG_MUST_CHECK enum rg_status rg_usage_read_question(const struct rg_usage_words *words, int64_t now,
                                                    struct rg_usage_question *out, char *why,
                                                    size_t why_size);

/** All rows for a question. */
struct rg_usage_list {
    struct rg_usage_row *rows;
    size_t n;
    int64_t since, until;
    bool everybody;
    enum rg_usage_by by;
};

/** Gets one page; on failure `why` is a sentence. */
typedef enum rg_status rg_usage_fetch(void *data, const struct rg_usage_question *question,
                                      struct rg_usage_answer *answer, char *why, size_t why_size);
/** Gets all pages. To be released by rg_usage_list_fini, also after a failure, of which `why` is a sentence. */
RG_MUST_CHECK enum rg_status rg_usage_collect(rg_usage_fetch *fetch, void *data,
                                              const struct rg_usage_question *question,
                                              struct rg_usage_list *list, char *why, size_t why_size);
void rg_usage_list_fini(struct rg_usage_list *list);

/** "Usage from … to …", and a row for each, with a sum. */
void rg_usage_print_table(const struct rg_usage_list *list, FILE *out);
/** The line with the columns' names. */
void rg_usage_print_csv_head(FILE *out);
/** The rows, of this server. What a spreadsheet would take for a formula has an apostrophe in front. */
void rg_usage_print_csv(const struct rg_usage_list *list, const char *server, FILE *out);
/** {"since", "until", "everybody", "rows": […]}; NULL: no memory. */
json_t *rg_usage_json(const struct rg_usage_list *list);

/** "2026-11-27 14:00 UTC"; of 0 "the beginning". Returns `out`. */
const char *rg_usage_time_text(int64_t seconds, char out[32]);

#endif
