/* SPDX-License-Identifier: Apache-2.0 */
/*
 * source.h: files of a tree that was listed, as whoever sends them reads them. The tree is the entry @leaf of
 * a folder; of a tree that is a folder, @root_fd is it, else -1. Any thread.
 */
#ifndef PST_FILES_SOURCE_H
#define PST_FILES_SOURCE_H

#include "files/tree/manifest.h"

struct pst_source {
    int folder_fd, root_fd;
    const char *leaf;
    bool munged;              /* its links are kept with PST_MUNGED in front, and listed without */
    const atomic_bool *ended; /* ends its listing once set; NULL: nothing does */
};

/* Lists the tree: pst_manifest_scan(). */
int pst_source_list(const struct pst_source *source, const struct pst_filters *filters,
                    struct pst_manifest *m, uint32_t *odd, char fault[PST_FAULT_BYTES]);

/* Opens an entry's file for reading; it must be as it was listed. Return: a descriptor and *@has_holes,
 * whether there may be any; -ESTALE it has changed, -errno. */
int pst_source_open(const struct pst_source *source, const struct pst_entry *entry, bool *has_holes);
/* Opens @source->root_fd, which is -1, if the listed tree is a folder. Return: 0 or -errno. */
int pst_source_open_root(struct pst_source *source, const struct pst_manifest *m);
/* Whether a file that is open is still the entry. Return: 0, -ESTALE it was written to, -errno. */
int pst_source_check(int fd, const struct pst_entry *entry);
/* The next bytes behind @from, of a file of @bytes, that are no hole: [*begin, *end). Without any both are
 * @bytes; if the file system cannot tell, all that follow are. */
void pst_source_next_data(int fd, uint64_t from, uint64_t bytes, uint64_t *begin, uint64_t *end);

#endif
