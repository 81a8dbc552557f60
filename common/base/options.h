/*
 * options.h - options of a program from its command line, its environment and configuration files.
 *
 * One table row an option (name, type, where its value goes, default, help); command line, environment, file
 * keys and the help text all follow from it. Sources are loaded strongest first: the first load that sets an
 * option wins, so a program loads its arguments, then the environment, then its files. A list collects all
 * values of one load.
 *
 * Failures: RG_ERR_INVALID and one line in `why` that says which option, what is wrong, and what was probably
 * meant. One thread at a time.
 */
#ifndef RG_COMMON_BASE_OPTIONS_H
#define RG_COMMON_BASE_OPTIONS_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define RG_OPTIONS_MAX 96 /* rows of a table */

enum rg_option_type {
    RG_OPTION_FLAG,          /* bool; --name; in files: yes or no */
    RG_OPTION_TEXT,          /* char * */
    RG_OPTION_OPTIONAL_TEXT, /* char *; --name alone gives "" */
    RG_OPTION_CHOICE,        /* char *; one of `argument`, which reads "a|b|c" */
    RG_OPTION_LIST,          /* struct rg_text_list; several times, or separated by commas */
    RG_OPTION_INTEGER,       /* int64_t in min..max */
    RG_OPTION_SIZE,          /* uint64_t bytes */
    RG_OPTION_FRACTION,      /* uint32_t millionths */
    RG_OPTION_SECONDS,       /* uint64_t nanoseconds; "30" is seconds, "500ms" as it says */
};

struct rg_text_list {
    size_t n;
    char **items;
};

/** Frees the items and the list of them; it is empty then. */
void rg_text_list_clear(struct rg_text_list *list);

struct rg_option {
    const char *name; /* "max-sessions": --max-sessions and the key in files */
    char letter;      /* 's': -s; 0: none */
    char also;        /* another letter for the same */
    enum rg_option_type type;
    size_t offset;        /* of the value in the program's struct */
    const char *argument; /* as shown: "HOST[:PORT]" */
    const char *value;    /* default, as one would write it; NULL: zero */
    const char *help;
    const char *environment; /* variable, or NULL */
    unsigned commands;       /* bits of the subcommands that take it; 0: all */
    bool not_in_file;        /* only on the command line */
    bool credential;         /* TEXT, the path of a file: rg_options_load_credentials finds it */
    int64_t min, max;
    /**
     * TEXT: whether this is one of the values; RG_ERR_INVALID with a phrase in `why` where not. NULL: any but the empty one.
     */
    enum rg_status (*check)(const char *text, char *why, size_t why_size);
};

/**
 * A row: its name, its type without RG_OPTION_, the field of the program's `of` that takes its value, its help
 * (NULL: not shown), and what else is said of it.
 */
#define RG_OPTION_ROW(of, name_, type_, field, help_, ...)                                                   \
    {                                                                                                        \
        .name = (name_), .type = RG_OPTION_##type_, .offset = offsetof(of, field), .help = (help_),          \
        __VA_ARGS__                                                                                          \
    }

struct rg_options {
    const struct rg_option *table;
    size_t n;
    void *object;
    unsigned command; /* bit of the subcommand; 0: none, all rows */
    unsigned load;    /* number of the load in progress */
    unsigned char set_by[RG_OPTIONS_MAX];
};

/** Starts with the defaults, which must be valid. `object` is zeroed memory that the offsets refer to. */
void rg_options_init(struct rg_options *options, const struct rg_option *table, size_t n, void *object,
                     unsigned command);
/**
 * Loads argv[1..]; stops at the first word that is no option, or behind "--". *next: the index of that word.
 */
RG_MUST_CHECK enum rg_status rg_options_load_arguments(struct rg_options *options, int argc, char **argv,
                                                       int *next, char *why, size_t why_size);
RG_MUST_CHECK enum rg_status rg_options_load_environment(struct rg_options *options, char *why,
                                                         size_t why_size);
/** Lines "key = value"; '#' starts a comment. RG_ERR_NOT_FOUND: no such file, nothing changed. */
RG_MUST_CHECK enum rg_status rg_options_load_file(struct rg_options *options, const char *path, char *why,
                                                  size_t why_size);
/**
 * Files of a folder (systemd's $CREDENTIALS_DIRECTORY) that are named as the options with `credential`: their paths are the values.
 * Others there are not looked at.
 */
RG_MUST_CHECK enum rg_status rg_options_load_credentials(struct rg_options *options, const char *folder,
                                                         char *why, size_t why_size);
/** Whether anything but the default gave the option at `offset` its value. */
bool rg_options_is_set(const struct rg_options *options, size_t offset);
/** Which load gave the option at `offset` its value: 1 is the first and strongest; 0: none, it has its default. */
unsigned rg_options_source(const struct rg_options *options, size_t offset);
/** One entry an option: names, argument, help, default, environment. */
void rg_options_help(const struct rg_options *options, FILE *out);
/** Frees texts and lists. */
void rg_options_fini(struct rg_options *options);

#endif
