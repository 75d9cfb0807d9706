/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h: settings as tables. One row gives a setting its name, type, default, bounds, unit and text; the
 * parser, `--help`, environment names (PENSTOCK_NAME), configuration files and the reference manual all read
 * the row.
 *
 * Names are written with '_' in tables and files, with '-' on command lines; both are taken everywhere. A '_'
 * at a row's end only keeps its member from being a word of C.
 */
#ifndef PST_OPTIONS_H
#define PST_OPTIONS_H

#include "base/base.h"

#include <stdio.h>

enum pst_option_type {
    PST_OPTION_STRING, /* char *, owned; NULL when empty; of @min bytes when it is set */
    PST_OPTION_SIZE,   /* uint64_t bytes: 4096, 64K, 2M, 4G, 1T */
    PST_OPTION_NUMBER, /* uint64_t */
    PST_OPTION_LIST,   /* struct pst_strings: each setting adds one to those of its source */
    PST_OPTION_FLAG,   /* bool: yes, no */
};

enum { PST_STRINGS_MAX = 64 };

struct pst_strings {
    char *items[PST_STRINGS_MAX];
    uint32_t count;
    bool inherited; /* from a source before: the next setting replaces them all */
};

struct pst_option {
    const char *name;
    enum pst_option_type type;
    size_t offset; /* of its member in the settings struct */
    const char *preset;
    uint64_t min, max;
    const char *unit;
    const char *text;
    const char *alias;    /* another program's variable that says the same; NULL: none */
    uint64_t alias_times; /* what it counts in, in ours, where the two differ: a power of ten */
};

struct pst_options {
    const struct pst_option *rows;
    size_t count;
    /* Says in @fault what a name means that none of the rows has; NULL: nothing. Return: false: nothing. */
    bool (*explain)(const struct pst_options *table, const char *name, char *fault);
};

/*
 * Rows are an X-macro: ROWS(X) with X(TYPE, name, default text, min, max, unit, text), where an alias and its
 * power of ten may follow.
 * ROWS(PST_OPTION_MEMBER) makes the members of the settings struct, which PST_OPTION_SETTINGS names where
 * PST_OPTION_TABLE(ROWS) makes a struct pst_options of them.
 */
#define PST_OPTION_MEMBER(TYPE, name, ...) PST_OPTION_MEMBER_##TYPE(name)
#define PST_OPTION_ROW(TYPE, name, ...)                                                                      \
    {#name, .type = PST_OPTION_##TYPE, offsetof(PST_OPTION_SETTINGS, name), __VA_ARGS__},
#define PST_OPTION_ROWS(ROWS) ((const struct pst_option[]){ROWS(PST_OPTION_ROW)})
#define PST_OPTION_TABLE(ROWS)                                                                               \
    {                                                                                                        \
        .rows = PST_OPTION_ROWS(ROWS), .count = pst_count_of(PST_OPTION_ROWS(ROWS))                          \
    }

#define PST_OPTION_MEMBER_STRING(name) char *name;
#define PST_OPTION_MEMBER_SIZE(name)   uint64_t name;
#define PST_OPTION_MEMBER_NUMBER(name) uint64_t name;
#define PST_OPTION_MEMBER_LIST(name)   struct pst_strings name;
#define PST_OPTION_MEMBER_FLAG(name)   bool name;

/* Faults are written as text that names setting and value. */
enum { PST_FAULT_BYTES = 256 };

/* The defaults. Return: 0 or -ENOMEM; @fault gets the text. */
int pst_options_preset(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES]);
void pst_options_free(const struct pst_options *table, void *settings);
/* Return: 0, -ENOENT no such setting, -EINVAL bad value; @fault gets the text. */
int pst_options_set(const struct pst_options *table, void *settings, const char *name, const char *value,
                    char fault[PST_FAULT_BYTES]);
/* "name=value". */
int pst_options_set_pair(const struct pst_options *table, void *settings, const char *pair,
                         char fault[PST_FAULT_BYTES]);
/* The row that a flag "--name" or "--name=value" means; NULL when there is none. */
const struct pst_option *pst_options_find_flag(const struct pst_options *table, const char *flag);
/*
 * "--name=value", or "--name" with the value behind it. Where there is a value without being said, "--name"
 * stands alone: yes for a FLAG, 0 where the row's unit is in brackets. Return: how many of @argv that was, 0
 * when it begins with something else, or as pst_options_set().
 */
int pst_options_set_flag(const struct pst_options *table, void *settings, char *const *argv,
                         char fault[PST_FAULT_BYTES]);
/* What follows comes from a source that wins over those before: its lists replace theirs. */
void pst_options_next_source(const struct pst_options *table, void *settings);
/* The next source, which knows some other names: every alias that is set, and not to nothing. */
int pst_options_aliases(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES]);
/* The next source: every PENSTOCK_NAME that is set. */
int pst_options_environment(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES]);
/* The next source: lines "name = value"; '#' begins a comment. */
int pst_options_file(const struct pst_options *table, void *settings, const char *path,
                     char fault[PST_FAULT_BYTES]);
/* Whether the setting is another one in @other. */
bool pst_option_differs(const struct pst_option *row, const void *settings, const void *other);
void pst_options_help(const struct pst_options *table, FILE *out);
void pst_options_help_row(const struct pst_option *row, FILE *out);
/* "name=value ..." of everything, on one line. */
void pst_options_print(const struct pst_options *table, const void *settings, char *buf, size_t cap);

/* Reads a secret: a regular file that nobody else may read. Return: its length, or -errno with the reason in
 * @fault. */
int pst_secret_read(const char *path, void *buf, size_t cap, char fault[PST_FAULT_BYTES]);
/* Whether @said is the secret; NULL is none. How long it takes tells nothing of the secret's bytes. */
bool pst_secret_is(struct pst_bytes secret, const char *said);

/* A decimal number that begins with a digit, to *@end. Return: 0 or -EINVAL. */
int pst_parse_digits(const char *text, const char **end, uint64_t *out);
/* The same with nothing behind it, or K, M, G or T. Return: 0 or -EINVAL. */
int pst_parse_size(const char *text, uint64_t *out);

#endif
