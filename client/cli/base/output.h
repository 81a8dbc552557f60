/*
 * output.h - how subcommands write what was asked for: JSON to stdout, pictures to files, figures with units.
 * What cannot be written is said.
 */
#ifndef RG_CLIENT_CLI_BASE_OUTPUT_H
#define RG_CLIENT_CLI_BASE_OUTPUT_H

#include "common/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/**
 * Appends `one` to *list. Where that cannot be (it is NULL: no memory, or a text in it is no UTF-8) the list
 * is freed and NULL, so that nothing is left out silently: what is made of it is NULL, too, which
 * rg_cli_print_json says.
 */
void rg_cli_json_add(json_t **list, json_t *one);
/** Writes `all` to stdout, with a line's end, and frees it. False: it could not be, or is NULL. */
RG_MUST_CHECK bool rg_cli_print_json(json_t *all);
/** Writes a file by `write`, which returns false where `out` has an error. False: it is not written. */
RG_MUST_CHECK bool rg_cli_write_file(const char *path, bool (*write)(const void *object, FILE *out),
                                     const void *object);

/** "11.9 GiB". Returns `text`. */
const char *rg_cli_bytes_text(uint64_t bytes, char *text, size_t size);
/** Columns that UTF-8 text takes on a terminal, near enough: characters. */
int rg_cli_text_columns(const char *text);

#endif
