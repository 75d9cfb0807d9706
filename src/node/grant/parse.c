/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c: the text of a file of grants, line by line; and what every grant has to say in the end. */
#include "node/grant_file.h"

#include "base/limits.h"
#include "base/percent.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

enum { LINE_BYTES_MAX = 4 * PST_KEY_BYTES_MAX, WORDS_MAX = PST_RIGHT_COUNT };

struct parser {
    const char *name;
    char *fault;
    uint32_t line;
    struct pst_grant_file *file;
    struct pst_granted *grant; /* the section; NULL: none has begun */
    uint32_t begins;           /* its line */
    uint32_t said;             /* bits of settings that it has */
};

static int parse_refuse_at(struct parser *p, uint32_t line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int parse_refuse_at(struct parser *p, uint32_t line, const char *format, ...)
{
    char why[160];
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    snprintf(p->fault, PST_FAULT_BYTES, "grants %.70s:%u: %s", p->name, line, why);
    return -EINVAL;
}

#define parse_refuse(p, ...) parse_refuse_at(p, (p)->line, __VA_ARGS__)

static int parse_no_memory(struct parser *p)
{
    snprintf(p->fault, PST_FAULT_BYTES, "out of memory");
    return -ENOMEM;
}

/* ---- settings of a grant ---- */

static int take_rights(struct parser *p, char *value)
{
    static const uint8_t rights[] = {PST_RIGHT_READ, PST_RIGHT_WRITE, PST_RIGHT_ADMIN};
    char *state = NULL;

    for (char *word = strtok_r(value, " \t", &state); word; word = strtok_r(NULL, " \t", &state)) {
        uint8_t right = 0;

        for (size_t i = 0; i < pst_count_of(rights); i++)
            right |= strcmp(word, pst_right_word(rights[i])) == 0 ? rights[i] : 0;
        if (!right)
            return parse_refuse(p, "'%.40s' is none of read, write and admin", word);
        if (p->grant->terms.rights & right)
            return parse_refuse(p, "%s is said twice", word);
        p->grant->terms.rights |= right;
    }
    return 0;
}

static int take_keys(struct parser *p, char *value)
{
    if (strcmp(value, "all") != 0)
        return parse_refuse(p, "keys: '%.40s' is not 'all'; name others by 'prefix'", value);
    p->grant->terms.all_keys = true;
    return 0;
}

static int take_prefix(struct parser *p, char *value)
{
    struct pst_grant_terms *terms = &p->grant->terms;
    uint8_t decoded[PST_KEY_BYTES_MAX];
    struct pst_bytes prefix;
    void *copy;
    int bytes = pst_percent_decode(pst_bytes_of(value), false, decoded, sizeof(decoded));

    if (bytes == -ENOSPC)
        return parse_refuse(p, "a prefix of more than %d bytes", PST_KEY_BYTES_MAX);
    if (bytes < 0)
        return parse_refuse(p, "prefix: %% stands in front of two hexadecimal digits, and not of 00");
    pst_assert(bytes > 0); /* as the value was not empty */
    prefix = (struct pst_bytes){decoded, (size_t)bytes};
    pst_assert(terms->prefix_count <= PST_GRANT_PREFIXES_MAX);
    for (uint32_t i = 0; i < terms->prefix_count; i++) {
        if (pst_bytes_equal(prefix, terms->prefixes[i]))
            return parse_refuse(p, "this prefix is said twice");
    }
    if (terms->prefix_count == PST_GRANT_PREFIXES_MAX)
        return parse_refuse(p, "more than %d prefixes", PST_GRANT_PREFIXES_MAX);
    copy = malloc(prefix.len);
    if (!copy)
        return parse_no_memory(p);
    memcpy(copy, decoded, prefix.len);
    terms->prefixes[terms->prefix_count++] = (struct pst_bytes){copy, prefix.len};
    return 0;
}

/* Return: NULL with the refusal in *@r. */
static struct pst_grant_secret *secret_next(struct parser *p, int *r)
{
    struct pst_granted *grant = p->grant;

    pst_assert(grant->secret_count <= PST_GRANT_SECRETS_MAX);
    *r = 0;
    if (grant->secret_count == PST_GRANT_SECRETS_MAX) {
        *r = parse_refuse(p, "more than %d secrets", PST_GRANT_SECRETS_MAX);
        return NULL;
    }
    grant->secrets[grant->secret_count].line = p->line;
    return &grant->secrets[grant->secret_count++];
}

static int take_secret(struct parser *p, char *value)
{
    struct pst_bytes text = pst_bytes_of(value);
    struct pst_grant_secret *secret;
    void *copy;
    int r;

    if (text.len < PST_GRANT_SECRET_BYTES_MIN)
        return parse_refuse(p, "a secret of fewer than %d bytes", PST_GRANT_SECRET_BYTES_MIN);
    if (text.len > PST_BOOT_SECRET_BYTES_MAX)
        return parse_refuse(p, "a secret of more than %d bytes", PST_BOOT_SECRET_BYTES_MAX);
    secret = secret_next(p, &r);
    if (!secret)
        return r;
    copy = malloc(text.len);
    if (!copy)
        return parse_no_memory(p);
    memcpy(copy, text.data, text.len);
    secret->secret = (struct pst_bytes){copy, text.len};
    p->file->holds_secrets = true;
    return 0;
}

static int take_secret_file(struct parser *p, char *value)
{
    int r;
    struct pst_grant_secret *secret = secret_next(p, &r);

    if (!secret)
        return r;
    secret->path = strdup(value);
    return secret->path ? 0 : parse_no_memory(p);
}

struct bound {
    size_t offset; /* in the terms */
    uint64_t max;
};

static int take_bound(struct parser *p, const char *name, const struct bound *bound, const char *value)
{
    uint64_t n;

    pst_assert(bound->max > 0);
    pst_assert(bound->offset <= sizeof(p->grant->terms) - sizeof(n));
    if (pst_parse_size(value, &n) < 0)
        return parse_refuse(p, "%s: '%.40s' is not a number", name, value);
    if (n < 1 || n > bound->max)
        return parse_refuse(p, "%s: %.40s is outside of 1 to %llu", name, value,
                            (unsigned long long)bound->max);
    memcpy((char *)&p->grant->terms + bound->offset, &n, sizeof(n));
    return 0;
}

/* ---- lines ---- */

#define BOUND(member, max) .bound = {offsetof(struct pst_grant_terms, member), max}
static const struct setting {
    const char *name;
    int (*take)(struct parser *p, char *value); /* NULL: a bound */
    struct bound bound;
    bool repeats;
} settings[] = {
    {"rights", take_rights, .repeats = false},
    {"keys", take_keys, .repeats = false},
    {"prefix", take_prefix, .repeats = true},
    {"secret", take_secret, .repeats = true},
    {"secret-file", take_secret_file, .repeats = true},
    {"connections", BOUND(connections_max, 16384)},
    {"requests", BOUND(requests_max, 65536)},
    {"reservations", BOUND(reservations_max, 1 << 20)},
    {"pins", BOUND(pins_max, 1ull << 32)},
    {"pinned-bytes", BOUND(pinned_bytes_max, 1ull << 44)},
};

_Static_assert(pst_count_of(settings) <= 32, "a bit of `said` for each");

static int take_setting(struct parser *p, const char *name, char *value)
{
    size_t i = 0;

    if (!p->grant)
        return parse_refuse(p, "'%.40s' before the first [GRANT]", name);
    while (i < pst_count_of(settings) && strcmp(name, settings[i].name) != 0)
        i++;
    if (i == pst_count_of(settings))
        return parse_refuse(p, "unknown setting '%.40s'", name);
    if (p->said >> i & 1 && !settings[i].repeats)
        return parse_refuse(p, "%s is said twice", name);
    if (!*value)
        return parse_refuse(p, "%s says nothing", name);
    p->said |= 1u << i;
    return settings[i].take ? settings[i].take(p, value) : take_bound(p, name, &settings[i].bound, value);
}

/* What a whole section has to have said. */
static int end_section(struct parser *p)
{
    const struct pst_granted *grant = p->grant;

    if (!grant)
        return 0;
    if (!grant->terms.rights)
        return parse_refuse_at(p, p->begins, "grant %s has no 'rights'", grant->name);
    if (!grant->terms.all_keys && !grant->terms.prefix_count)
        return parse_refuse_at(p, p->begins, "grant %s has neither 'prefix' nor 'keys = all'", grant->name);
    if (grant->terms.all_keys && grant->terms.prefix_count)
        return parse_refuse_at(p, p->begins, "grant %s has 'prefix' beside 'keys = all'", grant->name);
    if (grant->terms.rights & PST_RIGHT_ADMIN && !grant->terms.all_keys)
        return parse_refuse_at(p, p->begins, "grant %s: admin is of the whole node: 'keys = all'",
                               grant->name);
    if (!grant->secret_count)
        return parse_refuse_at(p, p->begins, "grant %s has neither 'secret' nor 'secret-file'", grant->name);
    return 0;
}

static bool name_is_fine(const char *name)
{
    const char *c = name;

    while (isalnum((unsigned char)*c) || (c > name && *c && strchr("._-", *c)))
        c++;
    return c > name && !*c;
}

/* @line: "[NAME]" */
static int begin_section(struct parser *p, char *line)
{
    size_t len = strlen(line);
    char *name = line + 1;
    int r = end_section(p);

    pst_assert(line[0] == '[');
    if (r < 0)
        return r;
    if (line[len - 1] != ']')
        return parse_refuse(p, "a section's line is [NAME]");
    line[len - 1] = '\0';
    if (!name_is_fine(name) || strlen(name) > PST_GRANT_NAME_BYTES_MAX)
        return parse_refuse(
            p, "'%.40s' is no name: up to %d letters and digits, behind the first also '.', '_' and '-'",
            name, PST_GRANT_NAME_BYTES_MAX);
    pst_assert(p->file->count <= PST_GRANTS_MAX);
    for (uint32_t i = 0; i < p->file->count; i++) {
        if (strcmp(name, p->file->grants[i].name) == 0)
            return parse_refuse(p, "grant %s is there twice", name);
    }
    if (p->file->count == PST_GRANTS_MAX)
        return parse_refuse(p, "more than %d grants", PST_GRANTS_MAX);
    p->grant = &p->file->grants[p->file->count++];
    memcpy(p->grant->name, name, strlen(name) + 1);
    p->begins = p->line;
    p->said = 0;
    return 0;
}

/* Cuts blanks off both ends, in place. */
static char *parse_trim(char *text)
{
    char *end = text + strlen(text);

    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text + strspn(text, " \t");
}

static int take_line(struct parser *p, char *line)
{
    char *equals;

    line = parse_trim(line);
    if (!*line || *line == '#')
        return 0;
    if (*line == '[')
        return begin_section(p, line);
    equals = strchr(line, '=');
    if (!equals)
        return parse_refuse(p, "neither [NAME] nor 'name = value'");
    *equals = '\0';
    line = parse_trim(line);
    for (char *c = line; (c = strchr(c, '_')) != NULL;)
        *c = '-'; /* as options are taken both ways */
    return take_setting(p, line, parse_trim(equals + 1));
}

/* ---- the file ---- */

static int parse_lines(struct parser *p, struct pst_bytes text, char line[LINE_BYTES_MAX + 1])
{
    const char *at = text.data, *end = at + text.len;
    int r = 0;

    while (r == 0 && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((newline ? newline : end) - at);

        p->line++;
        if (len > LINE_BYTES_MAX)
            return parse_refuse(p, "a line of more than %d bytes", LINE_BYTES_MAX);
        if (memchr(at, '\0', len))
            return parse_refuse(p, "a zero byte");
        memcpy(line, at, len);
        line[len] = '\0';
        at += len + (newline != NULL);
        pst_assert(at <= end);
        r = take_line(p, line);
    }
    if (r == 0)
        r = end_section(p);
    if (r == 0 && p->file->count == 0) {
        p->line = p->line ? p->line : 1;
        r = parse_refuse(p, "no grant: a node without any would serve nobody");
    }
    return r;
}

int pst_grant_file_parse(const char *name, struct pst_bytes text, struct pst_grant_file **out,
                         char fault[PST_FAULT_BYTES])
{
    struct parser p = {.name = name, .fault = fault, .file = calloc(1, sizeof(*p.file))};
    char *line = malloc(LINE_BYTES_MAX + 1);
    int r = p.file && line ? 0 : parse_no_memory(&p);

    pst_assert(text.len <= PST_GRANT_FILE_BYTES_MAX);
    if (r == 0)
        r = parse_lines(&p, text, line);
    if (line)
        explicit_bzero(line, LINE_BYTES_MAX + 1);
    free(line);
    if (r < 0)
        pst_grant_file_free(p.file);
    else
        *out = p.file;
    return r;
}

static void secret_fini(struct pst_grant_secret *secret)
{
    void *bytes = (void *)(uintptr_t)secret->secret.data;

    if (bytes)
        explicit_bzero(bytes, secret->secret.len);
    free(bytes);
    free(secret->path);
}

struct pst_grant_file *pst_grant_file_free(struct pst_grant_file *file)
{
    for (uint32_t i = 0; file && i < file->count; i++) {
        for (uint32_t j = 0; j < file->grants[i].secret_count; j++)
            secret_fini(&file->grants[i].secrets[j]);
        pst_grant_terms_fini(&file->grants[i].terms);
    }
    free(file);
    return NULL;
}
