/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"
#include "base/own.h"

#include <ctype.h>

enum { LINE_BYTES_MAX = 4094 };

static void *option_member(const struct pst_option *row, void *settings)
{
    return (char *)settings + row->offset;
}

/* A row's name as people see it. */
static int name_bytes(const struct pst_option *row)
{
    size_t len = strlen(row->name);

    pst_assert(len > 1 || (len == 1 && row->name[0] != '_'));
    return (int)(len && row->name[len - 1] == '_' ? len - 1 : len);
}

int pst_parse_digits(const char *text, const char **end, uint64_t *out)
{
    uint64_t n = 0;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    for (; isdigit((unsigned char)*text); text++) {
        if (__builtin_mul_overflow(n, 10, &n) || pst_add_overflows(n, (uint64_t)(*text - '0'), &n))
            return -EINVAL;
    }
    pst_assert(isdigit((unsigned char)text[-1]));
    pst_assert(!isdigit((unsigned char)*text));
    *end = text;
    *out = n;
    return 0;
}

int pst_parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    uint64_t n, scale = 1;
    const char *end;

    if (pst_parse_digits(text, &end, &n) < 0)
        return -EINVAL;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));

        if (!unit)
            return -EINVAL;
        scale = 1ull << (10 * (unit - units + 1));
        end++;
        if (strcmp(end, "iB") == 0)
            end += 2;
        else if (strcmp(end, "B") == 0)
            end++;
    }
    pst_assert(scale <= 1ull << 40);
    pst_assert((scale & (scale - 1)) == 0);
    if (*end || __builtin_mul_overflow(n, scale, out))
        return -EINVAL;
    return 0;
}

static int set_number(const struct pst_option *row, uint64_t *to, const char *value, char *fault)
{
    uint64_t n;

    pst_assert(row->min <= row->max);
    pst_assert(row->unit);
    pst_assert(fault);
    if (pst_parse_size(value, &n) < 0 ||
        (row->type == PST_OPTION_NUMBER && !isdigit((unsigned char)value[strlen(value) - 1]))) {
        snprintf(fault, PST_FAULT_BYTES, "%.*s: '%.100s' is not a %s", name_bytes(row), row->name, value,
                 row->type == PST_OPTION_SIZE ? "size like 64K, 2M or 4G" : "number");
        return -EINVAL;
    }
    if (n < row->min || n > row->max) {
        snprintf(fault, PST_FAULT_BYTES, "%.*s: %.100s is outside of %llu to %llu %s", name_bytes(row),
                 row->name, value, (unsigned long long)row->min, (unsigned long long)row->max, row->unit);
        return -EINVAL;
    }
    *to = n;
    return 0;
}

static int set_flag(const struct pst_option *row, bool *to, const char *value, char *fault)
{
    static const char *const words[][2] = {{"no", "yes"}, {"false", "true"}, {"0", "1"}, {"off", "on"}};

    pst_assert(row->type == PST_OPTION_FLAG);
    for (size_t i = 0; i < pst_count_of(words); i++) {
        for (int on = 0; on < 2; on++) {
            if (strcmp(value, words[i][on]) == 0) {
                *to = on;
                return 0;
            }
        }
    }
    snprintf(fault, PST_FAULT_BYTES, "%.*s: '%.100s' is not yes or no", name_bytes(row), row->name, value);
    return -EINVAL;
}

static int set_string(char **to, const char *value, char *fault)
{
    char *copy = *value ? strdup(value) : NULL;

    if (*value && !copy) {
        snprintf(fault, PST_FAULT_BYTES, "out of memory");
        return -ENOMEM;
    }
    pst_assert(!copy || strlen(copy) > 0); /* an empty string is kept as NULL */
    free(*to);
    *to = copy;
    return 0;
}

static void free_strings(struct pst_strings *list)
{
    pst_assert(list->count <= PST_STRINGS_MAX);
    while (list->count > 0)
        free(list->items[--list->count]);
}

static int add_string(const struct pst_option *row, struct pst_strings *to, const char *value, char *fault)
{
    int r;

    pst_assert(to->count <= PST_STRINGS_MAX);
    if (to->inherited)
        free_strings(to);
    to->inherited = false;
    if (to->count == PST_STRINGS_MAX) {
        snprintf(fault, PST_FAULT_BYTES, "%.*s: more than %d of them", name_bytes(row), row->name,
                 PST_STRINGS_MAX);
        return -EINVAL;
    }
    if (!*value)
        return 0;
    to->items[to->count] = NULL;
    r = set_string(&to->items[to->count], value, fault);
    to->count += r == 0;
    pst_assert(!to->inherited);
    pst_assert(to->count <= PST_STRINGS_MAX);
    return r;
}

static int set_row(const struct pst_option *row, void *settings, const char *value, char *fault)
{
    void *to = option_member(row, settings);

    pst_assert(row->type <= PST_OPTION_FLAG);
    pst_assert(value);
    switch (row->type) {
    case PST_OPTION_STRING:
        if (strlen(value) < row->min) {
            snprintf(fault, PST_FAULT_BYTES, "%.*s: '%.100s' is too short", name_bytes(row), row->name,
                     value);
            return -EINVAL;
        }
        return set_string(to, value, fault);
    case PST_OPTION_LIST:
        return add_string(row, to, value, fault);
    case PST_OPTION_FLAG:
        return set_flag(row, to, value, fault);
    case PST_OPTION_SIZE:
    case PST_OPTION_NUMBER:
        return set_number(row, to, value, fault);
    }
    return -EINVAL;
}

static const struct pst_option *option_find_row(const struct pst_options *table, const char *name, size_t len)
{
    pst_assert(table->rows);
    pst_assert(table->count > 0);
    for (size_t i = 0; i < table->count; i++) {
        size_t at = 0;

        if ((size_t)name_bytes(&table->rows[i]) != len)
            continue;
        while (at < len && table->rows[i].name[at] == (name[at] == '-' ? '_' : name[at]))
            at++;
        if (at == len)
            return &table->rows[i];
    }
    return NULL;
}

int pst_options_preset(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES])
{
    int r = 0;

    for (size_t i = 0; i < table->count && r == 0; i++) {
        r = *table->rows[i].preset ? set_row(&table->rows[i], settings, table->rows[i].preset, fault) : 0;
        pst_assert(r == 0 || r == -ENOMEM);
    }
    pst_options_next_source(table, settings);
    return r;
}

void pst_options_free(const struct pst_options *table, void *settings)
{
    pst_assert(table->rows);
    pst_assert(table->count > 0);
    for (size_t i = 0; i < table->count; i++) {
        if (table->rows[i].type == PST_OPTION_STRING)
            set_string(option_member(&table->rows[i], settings), "", NULL);
        if (table->rows[i].type == PST_OPTION_LIST)
            free_strings(option_member(&table->rows[i], settings));
    }
}

bool pst_option_differs(const struct pst_option *row, const void *settings, const void *other)
{
    const void *a = (const uint8_t *)settings + row->offset, *b = (const uint8_t *)other + row->offset;
    const char *text, *others;

    switch (row->type) {
    case PST_OPTION_STRING:
        text = *(char *const *)a;
        others = *(char *const *)b;
        return !text != !others || (text && strcmp(text, others) != 0);
    case PST_OPTION_LIST:
        return ((const struct pst_strings *)a)->count != ((const struct pst_strings *)b)->count;
    case PST_OPTION_FLAG:
        return *(const bool *)a != *(const bool *)b;
    default:
        return *(const uint64_t *)a != *(const uint64_t *)b;
    }
}

void pst_options_next_source(const struct pst_options *table, void *settings)
{
    pst_assert(table->rows);
    pst_assert(table->count > 0);
    for (size_t i = 0; i < table->count; i++) {
        if (table->rows[i].type == PST_OPTION_LIST)
            ((struct pst_strings *)option_member(&table->rows[i], settings))->inherited = true;
    }
}

static int refuse_name(const struct pst_options *table, const char *shown, const char *name, char *fault)
{
    pst_assert(shown && name);
    pst_assert(table->count > 0);
    if (!table->explain || !table->explain(table, name, fault))
        snprintf(fault, PST_FAULT_BYTES, "unknown option '%.100s'", shown);
    return -ENOENT;
}

int pst_options_set(const struct pst_options *table, void *settings, const char *name, const char *value,
                    char fault[PST_FAULT_BYTES])
{
    const struct pst_option *row = option_find_row(table, name, strlen(name));

    return row ? set_row(row, settings, value, fault) : refuse_name(table, name, name, fault);
}

int pst_options_set_pair(const struct pst_options *table, void *settings, const char *pair,
                         char fault[PST_FAULT_BYTES])
{
    const char *equals = strchr(pair, '=');
    char name[64];

    if (!equals || (size_t)(equals - pair) >= sizeof(name)) {
        snprintf(fault, PST_FAULT_BYTES, "'%.100s' is not name=value", pair);
        return -EINVAL;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(equals - pair), pair);
    pst_assert(strlen(name) == (size_t)(equals - pair));
    return pst_options_set(table, settings, name, equals + 1, fault);
}

const struct pst_option *pst_options_find_flag(const struct pst_options *table, const char *flag)
{
    return strncmp(flag, "--", 2) == 0 ? option_find_row(table, flag + 2, strcspn(flag, "=") - 2) : NULL;
}

int pst_options_set_flag(const struct pst_options *table, void *settings, char *const *argv,
                         char fault[PST_FAULT_BYTES])
{
    const struct pst_option *row = pst_options_find_flag(table, argv[0]);
    size_t len = strcspn(argv[0], "=");
    const char *value = NULL;
    int used = 1, r;

    if (strncmp(argv[0], "--", 2) != 0)
        return 0;
    if (!row) {
        char name[64];

        snprintf(name, sizeof(name), "%.*s", (int)pst_min(len - 2, sizeof(name) - 1), argv[0] + 2);
        return refuse_name(table, argv[0], name, fault);
    }
    if (argv[0][len])
        value = argv[0] + len + 1;
    else if (row->type == PST_OPTION_FLAG)
        value = "yes";
    else if (row->unit[0] == '[')
        value = "0";
    else
        value = argv[used++];
    if (!value) {
        snprintf(fault, PST_FAULT_BYTES, "option '%s' needs a value", argv[0]);
        return -EINVAL;
    }
    r = set_row(row, settings, value, fault);
    pst_assert(used == 1 || used == 2);
    return r < 0 ? r : used;
}

int pst_options_environment(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES])
{
    pst_options_next_source(table, settings);
    for (size_t i = 0; i < table->count; i++) {
        char name[80] = "PENSTOCK_", why[PST_FAULT_BYTES];
        size_t at = strlen(name);
        const char *value;
        int r;

        for (int c = 0; c < name_bytes(&table->rows[i]) && at + 1 < sizeof(name); c++)
            name[at++] = (char)toupper((unsigned char)table->rows[i].name[c]);
        name[at] = '\0';
        pst_assert(at == strlen("PENSTOCK_") + (size_t)name_bytes(&table->rows[i])); /* none is cut */
        value = getenv(name);
        r = value ? set_row(&table->rows[i], settings, value, why) : 0;
        if (r < 0) {
            snprintf(fault, PST_FAULT_BYTES, "%.80s: %.170s", name, why);
            return r;
        }
    }
    return 0;
}

/* "0.95" times 100 is 95; what is left of a unit is cut off. */
static int option_multiply(const char *text, uint64_t times, uint64_t *out)
{
    uint64_t n;

    pst_assert(times > 0);
    pst_assert(times == 1 || times % 10 == 0);
    if (pst_parse_digits(text, &text, &n) < 0 || __builtin_mul_overflow(n, times, &n))
        return -EINVAL;
    for (text += *text == '.'; isdigit((unsigned char)*text); text++) {
        times /= 10;
        if (pst_add_overflows(n, (uint64_t)(*text - '0') * times, &n))
            return -EINVAL;
    }
    *out = n;
    return *text ? -EINVAL : 0;
}

static int set_alias(const struct pst_option *row, void *settings, const char *value, char *fault)
{
    char own[24];
    uint64_t n;

    pst_assert(row->alias);
    if (row->alias_times == 0)
        return set_row(row, settings, value, fault);
    if (option_multiply(value, row->alias_times, &n) < 0) {
        snprintf(fault, PST_FAULT_BYTES, "'%.100s' is not a number", value);
        return -EINVAL;
    }
    snprintf(own, sizeof(own), "%llu", (unsigned long long)n);
    return set_row(row, settings, own, fault);
}

int pst_options_aliases(const struct pst_options *table, void *settings, char fault[PST_FAULT_BYTES])
{
    pst_options_next_source(table, settings);
    for (size_t i = 0; i < table->count; i++) {
        const struct pst_option *row = &table->rows[i];
        const char *value = row->alias ? getenv(row->alias) : NULL;
        char why[PST_FAULT_BYTES];
        int r = value && *value ? set_alias(row, settings, value, why) : 0;

        pst_assert(row->alias || row->alias_times == 0);
        if (r < 0) {
            snprintf(fault, PST_FAULT_BYTES, "%.50s: %.200s", row->alias, why);
            return r;
        }
    }
    return 0;
}

/* Cuts blanks off both ends, in place. */
static char *option_trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    pst_assert(end >= text);
    pst_assert(*end == '\0');
    return text;
}

/* What others may write is not the operator's word. Pipes and the like are whose descriptor it is. */
static int check_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? pst_own_check(fd, S_IFREG, PST_OWN_WRITES) : 0;
}

/* "name = value # comment", as its @bytes came. */
static int set_line(const struct pst_options *table, void *settings, char *line, size_t bytes,
                    char why[PST_FAULT_BYTES])
{
    char *comment = strchr(line, '#'), *equals, *name;

    pst_assert(bytes > 0); /* a line's end, if nothing else */
    pst_assert(line[bytes] == '\0');
    if (bytes > LINE_BYTES_MAX || strlen(line) < bytes) {
        snprintf(why, PST_FAULT_BYTES,
                 bytes > LINE_BYTES_MAX ? "a line of more than %d bytes" : "a zero byte", LINE_BYTES_MAX);
        return -EINVAL;
    }
    if (comment)
        *comment = '\0';
    name = option_trim(line);
    equals = strchr(name, '=');
    if (equals) {
        *equals = '\0';
        return pst_options_set(table, settings, option_trim(name), option_trim(equals + 1), why);
    }
    if (*name)
        snprintf(why, PST_FAULT_BYTES, "'%.100s' is not name = value", name);
    return *name ? -EINVAL : 0;
}

int pst_options_file(const struct pst_options *table, void *settings, const char *path,
                     char fault[PST_FAULT_BYTES])
{
    FILE *file = fopen(path, "re");
    pst_cleanup_free char *line = NULL;
    char why[PST_FAULT_BYTES];
    size_t room = 0;
    ssize_t got;
    int r = 0;

    pst_options_next_source(table, settings);
    if (!file) {
        r = -errno;
        snprintf(fault, PST_FAULT_BYTES, "config %.150s: %s", path, strerror(-r));
        return r;
    }
    r = check_file(fileno(file));
    if (r < 0)
        snprintf(fault, PST_FAULT_BYTES, "config %.120s: %.90s", path, pst_error_text());
    for (int number = 1; r == 0 && (got = getline(&line, &room, file)) >= 0; number++) {
        r = set_line(table, settings, line, (size_t)got, why);
        if (r < 0)
            snprintf(fault, PST_FAULT_BYTES, "%.100s:%d: %.140s", path, number, why);
    }
    if (r == 0 && ferror(file)) { /* a folder, for one, opens but cannot be read */
        r = errno ? -errno : -EIO;
        snprintf(fault, PST_FAULT_BYTES, "config %.150s: %s", path, strerror(-r));
    }
    fclose(file);
    pst_assert(r <= 0);
    return r;
}

void pst_options_help_row(const struct pst_option *row, FILE *out)
{
    char flag[64];
    size_t at = (size_t)snprintf(flag, sizeof(flag), "--%.*s", name_bytes(row), row->name);

    pst_assert(row->preset);
    pst_assert(row->unit);
    pst_assert(row->text);
    pst_assert(at < sizeof(flag));
    for (size_t c = 2; c < at; c++) {
        if (flag[c] == '_')
            flag[c] = '-';
    }
    fprintf(out, "  %-18s %-10s %s", flag, row->unit, row->text);
    if (*row->preset)
        fprintf(out, " [%s]", row->preset);
    if (row->alias)
        fprintf(out, " (%s", row->alias);
    if (row->alias_times)
        fprintf(out, " times %llu", (unsigned long long)row->alias_times);
    fputs(row->alias ? ")\n" : "\n", out);
}

void pst_options_help(const struct pst_options *table, FILE *out)
{
    for (size_t i = 0; i < table->count; i++)
        pst_options_help_row(&table->rows[i], out);
}

void pst_options_print(const struct pst_options *table, const void *settings, char *buf, size_t cap)
{
    size_t at = 0;

    pst_assert(cap > 0);
    buf[0] = '\0';
    for (size_t i = 0; i < table->count && at < cap; i++) {
        const void *from = (const char *)settings + table->rows[i].offset;
        const struct pst_strings *list = from;
        const char *gap = at ? " " : "", *name = table->rows[i].name;
        int len = name_bytes(&table->rows[i]);

        if (table->rows[i].type == PST_OPTION_STRING && *(char *const *)from)
            at += (size_t)snprintf(buf + at, cap - at, "%s%.*s=%s", gap, len, name, *(char *const *)from);
        else if (table->rows[i].type == PST_OPTION_FLAG)
            at += (size_t)snprintf(buf + at, cap - at, "%s%.*s=%s", gap, len, name,
                                   *(const bool *)from ? "yes" : "no");
        else if (table->rows[i].type == PST_OPTION_SIZE || table->rows[i].type == PST_OPTION_NUMBER)
            at += (size_t)snprintf(buf + at, cap - at, "%s%.*s=%llu", gap, len, name,
                                   *(const unsigned long long *)from);
        for (uint32_t k = 0; table->rows[i].type == PST_OPTION_LIST && k < list->count && at < cap; k++)
            at += (size_t)snprintf(buf + at, cap - at, "%s%.*s=%s", at ? " " : "", len, name, list->items[k]);
    }
}
