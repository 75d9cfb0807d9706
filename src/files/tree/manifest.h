/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifest.h: what a tree is made of. A tree is a file, or a folder with all that it has; its manifest lists
 * the entries, each folder in front of what lies in it, the names of a folder in the order of their bytes. So
 * whoever reads a manifest of somebody else's sees at each entry that its folder was there before, that it is
 * no link, and that no name comes twice.
 *
 *     path ""         the tree itself; the only entry of a tree that is a file
 *     path "a"        in the tree's folder
 *     path "a/b"      in "a", which is a folder of the manifest
 *
 * Pure but for the scan, which reads a file system. One thread at a time.
 */
#ifndef PST_FILES_MANIFEST_H
#define PST_FILES_MANIFEST_H

#include "base/options.h"
#include "base/reader.h"

#include <stdatomic.h>
#include <sys/stat.h>

enum pst_entry_kind {
    PST_ENTRY_FOLDER = 1,
    PST_ENTRY_FILE = 2,
    PST_ENTRY_LINK = 3, /* of a folder; no tree is one */
};

enum {
    PST_MANIFEST_ENTRIES_MAX = 4 << 20,
    PST_MANIFEST_TEXT_BYTES_MAX = 512 << 20, /* of all paths and targets */
    PST_ENTRY_TEXT_BYTES_MAX = 4095,         /* of a path or a link's target, without the NUL */
    PST_ENTRY_DEPTH_MAX = 128,
    PST_ENTRY_WIRE_BYTES_MAX = 25 + 2 * PST_ENTRY_TEXT_BYTES_MAX,
    PST_ENTRY_MODE_MAX = 0777, /* no entry makes a program run as another user */
};

struct pst_entry {
    enum pst_entry_kind kind;
    uint32_t mode;       /* of a folder or a file: what chmod() takes */
    uint64_t bytes;      /* of a file */
    int64_t modified_ns; /* since 1970 */
    const char *path;
    const char *target; /* of a link; "" of others */
};

struct pst_manifest {
    struct pst_entry *entries;
    uint32_t count, room;
    uint32_t file_count;
    uint64_t file_bytes, text_bytes;
    /* The folders on the way to the last entry, and the name that each was given last. */
    uint32_t depth;
    struct {
        uint32_t folder, last; /* entries; @last: UINT32_MAX none yet */
    } way[PST_ENTRY_DEPTH_MAX + 1];
};

void pst_manifest_fini(struct pst_manifest *m);

/* The memory that it takes, about. */
static inline uint64_t pst_manifest_bytes(const struct pst_manifest *m)
{
    return m->room * (sizeof(*m->entries) + 2 * sizeof(void *)) + m->text_bytes;
}

/*
 * Appends a copy of @entry. Return: 0; -EINVAL it cannot come here: a path that is none, out of order, twice,
 * or in what is no folder; a number that no file has. -E2BIG, -ENOMEM.
 */
int pst_manifest_add(struct pst_manifest *m, const struct pst_entry *entry);
/* The entry with that path; NULL: there is none. */
const struct pst_entry *pst_manifest_find(const struct pst_manifest *m, const char *path);

/* Return: its bytes. */
size_t pst_entry_encode(const struct pst_entry *entry, uint8_t out[PST_ENTRY_WIRE_BYTES_MAX]);

/* Two texts, which an entry that was decoded borrows. */
struct pst_entry_texts {
    char path[PST_ENTRY_TEXT_BYTES_MAX + 1], target[PST_ENTRY_TEXT_BYTES_MAX + 1];
};

/* Sets @r->bad where the bytes are no entry. pst_manifest_add() sees whether it fits. */
void pst_entry_decode(struct pst_reader *r, struct pst_entry_texts *texts, struct pst_entry *out);

/* Patterns of fnmatch(); the first that fits an entry decides, and without one it is taken. A pattern with a
 * slash is for the whole path, one without for its last part. What lies in a folder that is left out is, too.
 */
struct pst_filter {
    bool takes;
    const char *pattern;
};

struct pst_filters {
    const struct pst_filter *list;
    uint32_t count;
};

/*
 * Fills @m, which is zeroed, with the tree @leaf of the folder @parent_fd. No link is followed. Sockets,
 * devices and pipes are left out and counted in *@odd; so are names of unfinished arrivals. Return: 0, or
 * -errno with a text in @fault: -ELOOP it is a link, -ENOTDIR neither file nor folder, -ENAMETOOLONG;
 * -ECANCELED once *@ended, which may be NULL, is set.
 */
int pst_manifest_scan(int parent_fd, const char *leaf, const struct pst_filters *filters,
                      const atomic_bool *ended, struct pst_manifest *m, uint32_t *odd,
                      char fault[PST_FAULT_BYTES]);

/* What rsync's daemon, if told to munge links (rsyncd.conf(5)), puts in front of where they lead, so that
 * nothing follows them. */
#define PST_MUNGED "/rsyncd-munged/"

static inline int64_t pst_modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* Whether it is the entry's file, as far as kind, size and time tell. */
static inline bool pst_entry_is(const struct pst_entry *entry, const struct stat *st)
{
    return S_ISREG(st->st_mode) && (uint64_t)st->st_size == entry->bytes &&
           pst_modified_ns(st) == entry->modified_ns;
}

#endif
