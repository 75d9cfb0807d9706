/* SPDX-License-Identifier: Apache-2.0 */
#include "files/key.h"

#include "base/percent.h"

static bool has_control(const uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f)
            return true;
    }
    return false;
}

/* What has been kept of a key: each part's end in the text, so that ".." finds the one before. */
struct parts {
    size_t len;
    uint32_t count;
    size_t begins[PST_KEY_PARTS_MAX]; /* where the text ended before the part */
    char text[PST_KEY_CAP];
};

static int parts_add(struct parts *p, const uint8_t *part, size_t len)
{
    pst_assert(p->count <= PST_KEY_PARTS_MAX);
    pst_assert(p->len <= PST_KEY_BYTES_MAX);
    if (len == 0 || (len == 1 && part[0] == '.'))
        return 0;
    if (len == 2 && part[0] == '.' && part[1] == '.') {
        if (p->count > 0)
            p->len = p->begins[--p->count];
        return 0;
    }
    if (len > PST_KEY_PART_BYTES_MAX || p->count == PST_KEY_PARTS_MAX)
        return -ENAMETOOLONG;
    p->begins[p->count++] = p->len;
    if (p->len > 0)
        p->text[p->len++] = '/';
    memcpy(p->text + p->len, part, len);
    p->len += len;
    pst_assert(p->len <= PST_KEY_BYTES_MAX); /* no longer than what it is made of */
    return 0;
}

int pst_key_normalise(struct pst_bytes text, char out[PST_KEY_CAP])
{
    const uint8_t *at = text.data, *end = at + text.len;
    struct parts p = {.len = 0};

    if (text.len > PST_KEY_BYTES_MAX)
        return -ENAMETOOLONG;
    if (has_control(text.data, text.len))
        return -EINVAL;
    while (at < end) {
        const uint8_t *slash = memchr(at, '/', (size_t)(end - at));
        size_t len = (size_t)((slash ? slash : end) - at);
        int r = parts_add(&p, at, len);

        if (r < 0)
            return r;
        at += len + (slash != NULL);
        pst_assert(at <= end);
    }
    pst_assert(p.len < PST_KEY_CAP);
    memcpy(out, p.text, p.len);
    out[p.len] = '\0';
    return (int)p.len;
}

int pst_key_decode(struct pst_bytes raw, char out[PST_KEY_CAP])
{
    uint8_t text[PST_KEY_BYTES_MAX];
    int len = pst_percent_decode(raw, false, text, sizeof(text));

    if (len < 0)
        return len == -ENOSPC ? -ENAMETOOLONG : len;
    return pst_key_normalise((struct pst_bytes){text, (size_t)len}, out);
}

bool pst_key_is_normal(const char *key)
{
    char again[PST_KEY_CAP];
    size_t len = strnlen(key, PST_KEY_CAP);
    int r = pst_key_normalise((struct pst_bytes){key, len}, again);

    return r >= 0 && (size_t)r == len && memcmp(key, again, len) == 0;
}

/* Where the next part of a key begins that is reserved, from the part at @part on, or NULL. */
static const char *next_reserved(const char *part)
{
    while (part && strncmp(part, PST_KEY_RESERVED, sizeof(PST_KEY_RESERVED) - 1) != 0) {
        const char *slash = strchr(part, '/');

        part = slash ? slash + 1 : NULL;
    }
    return part;
}

bool pst_key_is_reserved(const char *key)
{
    return next_reserved(key) != NULL;
}

bool pst_key_may_come(const char *key)
{
    enum { HEAD = sizeof(PST_KEY_ASIDE) - 1, DIGITS = 16 };
    const char *part = next_reserved(key);

    while (part && strncmp(part, PST_KEY_ASIDE, HEAD) == 0 && strcspn(part, "/") == HEAD + DIGITS &&
           strspn(part + HEAD, "0123456789abcdef") == DIGITS)
        part = next_reserved(part + HEAD);
    return !part;
}

const char *pst_key_leaf(const char *key)
{
    const char *slash = strrchr(key, '/');

    pst_assert(key[0] != '\0');
    return slash ? slash + 1 : key;
}
