/*
 * rules_check.h - what may be in a file of rules: its keys, what each takes, and where they stand.
 *
 * A file is checked as a whole before anything of it holds; what is wrong is said with the place. Of rules.c; the checks that others
 * have put in (rules.h) are called from here.
 */
#ifndef RG_SERVER_SHARES_RULES_CHECK_H
#define RG_SERVER_SHARES_RULES_CHECK_H

#include "server/shares/rules.h"

/** Whether the file is good; else `why`. */
bool rg_share_rules_check(const json_t *root, char *why, size_t why_size);
/** Puts what a checked entry says into `limits`; NULL says nothing. */
void rg_share_rules_overlay(struct rg_share_limits *limits, const json_t *entry);

#endif
