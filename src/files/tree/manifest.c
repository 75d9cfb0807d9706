/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c: entries in their order, and as bytes. */
#include "files/tree/manifest.h"

#include "files/key.h"

enum { NONE = UINT32_MAX };
_Static_assert((uint32_t)PST_MANIFEST_ENTRIES_MAX < (uint32_t)NONE, "no entry has the number of none");

void pst_manifest_fini(struct pst_manifest *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        free((char *)(uintptr_t)m->entries[i].path); /* its target lies behind it */
    free(m->entries);
    *m = (struct pst_manifest){.entries = NULL};
}

/* ---- what may come next ---- */

static bool name_fits(const char *name, size_t bytes)
{
    return bytes > 0 && bytes <= 255 && !(bytes == 1 && name[0] == '.') &&
           !(bytes == 2 && name[0] == '.' && name[1] == '.');
}

/* Where the last part of @path begins. */
static size_t leaf_at(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash + 1 - path) : 0;
}

/* How far the way goes to the folder that @path lies in; 0: it leads elsewhere. */
static uint32_t manifest_depth(const struct pst_manifest *m, const char *path)
{
    size_t leaf = leaf_at(path), folder_bytes = leaf ? leaf - 1 : 0;
    uint32_t depth = m->depth;

    pst_assert(m->depth <= pst_count_of(m->way));
    for (; depth > 0; depth--) {
        const char *folder = m->entries[m->way[depth - 1].folder].path;

        if (strlen(folder) == folder_bytes && memcmp(folder, path, folder_bytes) == 0)
            break;
    }
    return depth;
}

static bool entry_is_possible(const struct pst_entry *entry)
{
    switch (entry->kind) {
    case PST_ENTRY_FOLDER:
        return entry->bytes == 0 && !*entry->target && entry->mode <= PST_ENTRY_MODE_MAX;
    case PST_ENTRY_FILE:
        return entry->bytes <= INT64_MAX && !*entry->target && entry->mode <= PST_ENTRY_MODE_MAX;
    case PST_ENTRY_LINK:
        return entry->bytes == 0 && *entry->target && *entry->path && entry->mode == 0;
    }
    return false;
}

/* Whether @entry may follow the last one, at *@depth. */
static bool entry_may_follow(const struct pst_manifest *m, const struct pst_entry *entry, uint32_t *depth)
{
    const char *path = entry->path;
    size_t leaf = leaf_at(path);
    uint32_t last;

    *depth = 0;
    if (!entry_is_possible(entry) || strlen(path) > PST_ENTRY_TEXT_BYTES_MAX ||
        strlen(entry->target) > PST_ENTRY_TEXT_BYTES_MAX)
        return false;
    if (m->count == 0)
        return !*path;
    *depth = manifest_depth(m, path);
    if (path[0] == '/' || !name_fits(path + leaf, strlen(path + leaf)) || *depth == 0)
        return false;
    last = m->way[*depth - 1].last;
    return last == NONE || strcmp(m->entries[last].path + leaf, path + leaf) < 0;
}

static int manifest_grow(struct pst_manifest *m)
{
    uint32_t room = m->room ? 2 * m->room : 64;
    struct pst_entry *entries;

    pst_assert(m->count <= m->room);
    pst_assert(m->count <= PST_MANIFEST_ENTRIES_MAX);
    if (m->count < m->room)
        return 0;
    if (m->count == PST_MANIFEST_ENTRIES_MAX)
        return -E2BIG;
    entries = realloc(m->entries, room * sizeof(*entries));
    if (!entries)
        return -ENOMEM;
    m->entries = entries;
    m->room = room;
    return 0;
}

int pst_manifest_add(struct pst_manifest *m, const struct pst_entry *entry)
{
    size_t path_bytes = strlen(entry->path) + 1, target_bytes = strlen(entry->target) + 1;
    uint64_t file_bytes = 0;
    uint32_t depth;
    char *texts;
    /* Names for what has not arrived would be taken for an arrival's own. */
    bool may = !pst_key_is_reserved(entry->path) && entry_may_follow(m, entry, &depth);
    int r = may ? manifest_grow(m) : -EINVAL;

    if (r == 0 && entry->kind == PST_ENTRY_FOLDER && depth == pst_count_of(m->way))
        r = -E2BIG;
    if (r == 0 && (pst_add_overflows(m->file_bytes, entry->bytes, &file_bytes) || file_bytes > INT64_MAX))
        r = -E2BIG;
    if (r == 0 && m->text_bytes + path_bytes + target_bytes > PST_MANIFEST_TEXT_BYTES_MAX)
        r = -E2BIG;
    if (r < 0)
        return r;
    texts = malloc(path_bytes + target_bytes);
    if (!texts)
        return -ENOMEM;
    memcpy(texts, entry->path, path_bytes);
    memcpy(texts + path_bytes, entry->target, target_bytes);
    m->entries[m->count] = *entry;
    m->entries[m->count].path = texts;
    m->entries[m->count].target = texts + path_bytes;
    pst_assert(depth <= m->depth);
    m->depth = depth;
    if (m->depth > 0)
        m->way[m->depth - 1].last = m->count;
    if (entry->kind == PST_ENTRY_FOLDER) {
        m->way[m->depth].folder = m->count;
        m->way[m->depth++].last = NONE;
    }
    m->file_count += entry->kind == PST_ENTRY_FILE;
    m->file_bytes = file_bytes;
    m->text_bytes += path_bytes + target_bytes;
    m->count++;
    pst_assert(m->depth <= pst_count_of(m->way));
    pst_assert(m->count <= m->room);
    pst_assert(m->text_bytes <= PST_MANIFEST_TEXT_BYTES_MAX);
    return 0;
}

/* In the manifest's order: a folder is followed by all that it has. */
static int path_rank(char c)
{
    return c == 0 ? 0 : c == '/' ? 1 : (uint8_t)c + 1;
}

static int path_order(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return path_rank(*a) - path_rank(*b);
}

const struct pst_entry *pst_manifest_find(const struct pst_manifest *m, const char *path)
{
    uint32_t low = 0, high = m->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = path_order(m->entries[middle].path, path);

        if (order == 0)
            return &m->entries[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- bytes ---- */

static uint8_t *put_text(uint8_t *at, const char *text)
{
    size_t bytes = strlen(text);

    pst_assert(bytes <= PST_ENTRY_TEXT_BYTES_MAX);
    at = pst_write_number(at, bytes, 2);
    memcpy(at, text, bytes);
    return at + bytes;
}

size_t pst_entry_encode(const struct pst_entry *entry, uint8_t out[PST_ENTRY_WIRE_BYTES_MAX])
{
    uint8_t *at = pst_write_number(out, entry->kind, 1);

    at = pst_write_number(at, entry->mode, 4);
    at = pst_write_number(at, entry->bytes, 8);
    at = pst_write_number(at, (uint64_t)entry->modified_ns, 8);
    at = put_text(at, entry->path);
    at = put_text(at, entry->target);
    pst_assert((size_t)(at - out) <= PST_ENTRY_WIRE_BYTES_MAX);
    return (size_t)(at - out);
}

static void get_text(struct pst_reader *r, char text[PST_ENTRY_TEXT_BYTES_MAX + 1])
{
    size_t bytes = pst_read_number(r, 2);

    text[0] = 0;
    r->bad |= bytes > PST_ENTRY_TEXT_BYTES_MAX;
    if (r->bad)
        return;
    pst_read_copy(r, text, bytes);
    r->bad |= memchr(text, 0, bytes) != NULL;
    text[bytes] = 0;
}

void pst_entry_decode(struct pst_reader *r, struct pst_entry_texts *texts, struct pst_entry *out)
{
    out->kind = (enum pst_entry_kind)pst_read_number(r, 1);
    out->mode = (uint32_t)pst_read_number(r, 4);
    out->bytes = pst_read_number(r, 8);
    out->modified_ns = (int64_t)pst_read_number(r, 8);
    get_text(r, texts->path);
    get_text(r, texts->target);
    out->path = texts->path;
    out->target = texts->target;
}
