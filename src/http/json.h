/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json.h: JSON as routes need it, and the one door to cJSON. A tree of values is read or built, and belongs
 * to whoever has its root. Pure; one thread at a time per tree.
 *
 * What is read is bounded: 4 MiB, 32 levels, 256 Ki values; an answer, 64 MiB and 1 Mi values. Refused: text
 * that is not UTF-8, a NUL in a string (C would end there), anything behind the value. Of two members with
 * one name the first counts.
 */
#ifndef PST_HTTP_JSON_H
#define PST_HTTP_JSON_H

#include "base/base.h"

enum {
    PST_JSON_BYTES_MAX = 4 << 20,
    PST_JSON_DEPTH_MAX = 32,
    PST_JSON_VALUES_MAX = 256 << 10,
    PST_JSON_ANSWER_BYTES_MAX = 64 << 20, /* as many names as a store lists, each as long as can be */
    PST_JSON_ANSWER_VALUES_MAX = 1 << 20,
};

struct pst_json;

/* Return: 0, or with *@fault a static text: -E2BIG a bound, -EINVAL no JSON, -ENOMEM. */
int pst_json_parse(struct pst_bytes text, struct pst_json **out, const char **fault);
/* The same of what comes from a peer that is believed: a server answers what was asked for. */
int pst_json_parse_answer(struct pst_bytes text, struct pst_json **out, const char **fault);
/* A root and all below it; NULL is harmless. Return: NULL. */
struct pst_json *pst_json_free(struct pst_json *root);

/* ---- reading: NULL as @value stands for what is not there, and has nothing; texts live as the tree ---- */

bool pst_json_is_object(const struct pst_json *value);
bool pst_json_is_array(const struct pst_json *value);
bool pst_json_is_null(const struct pst_json *value);
/* A member by its exact name; NULL: none, or @object is none. */
const struct pst_json *pst_json_get(const struct pst_json *object, const char *name);
/* Children in order, of an array or an object; NULL: no more. */
const struct pst_json *pst_json_first(const struct pst_json *parent);
const struct pst_json *pst_json_next(const struct pst_json *child);
size_t pst_json_count(const struct pst_json *parent);
/* NULL unless it is a member, a string. */
const char *pst_json_name(const struct pst_json *member);
const char *pst_json_text(const struct pst_json *value);
/* Return: whether it is one; else *@out stays. An integer is whole and below 2^53 either way. */
bool pst_json_integer(const struct pst_json *value, int64_t *out);
bool pst_json_number(const struct pst_json *value, double *out);
bool pst_json_flag(const struct pst_json *value, bool *out);

/* ---- writing, what is not read again: @name is NULL in an array; -ENOMEM, -EILSEQ no UTF-8 ---- */

/* Return: a root, NULL without memory. */
struct pst_json *pst_json_new_object(void);
struct pst_json *pst_json_new_array(void);
int pst_json_add_text(struct pst_json *parent, const char *name, const char *text); /* NULL: null */
int pst_json_add_number(struct pst_json *parent, const char *name, double number);
int pst_json_add_integer(struct pst_json *parent, const char *name, int64_t number); /* below 2^53 */
int pst_json_add_flag(struct pst_json *parent, const char *name, bool flag);
int pst_json_add_null(struct pst_json *parent, const char *name);
/* Takes @child over, in failure too; NULL is -ENOMEM. */
int pst_json_add(struct pst_json *parent, const char *name, struct pst_json *child);
/* What pst_json_print() has made, as it is. */
int pst_json_add_printed(struct pst_json *parent, const char *name, const char *text);
/* Return: its text, without spaces, malloc()ed; NULL without memory. */
char *pst_json_print(const struct pst_json *value);
/* The same of what was read, to hand it back: as printed above a number may be another one. Return: 0 and
 * *@out; -EMSGSIZE it has more than @bytes_max; -ERANGE a number of 2^53 or more either way, of which digits
 * may have been lost; -ENOMEM. */
int pst_json_print_exact(const struct pst_json *value, size_t bytes_max, char **out);

#endif
