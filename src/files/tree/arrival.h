/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arrival.h: a tree on its way into a folder. What arrives lies in a hidden folder beside its destination,
 * `.penstock-NAME.tree`, or in it, `.penstock-.tree`, if the destination is a mounted folder or the one
 * beside it others' own, until all of it is there:
 *
 *     tree            files, folders and links that are whole, under their paths
 *     fresh-HASH      a file that is being written; HASH is its path's
 *     old-HASH        such a file of an arrival that broke off
 *     mount           the boot and the mount that these were written under
 *     lock            of the only arrival, among all hosts that have the file system
 *
 * A destination that was not there appears at once, by one rename. One that was is brought up to date when
 * everything has come: file by file, each by a rename, and what the manifest does not name stays. With
 * PST_ARRIVAL_IN_PLACE a folder's files each get their place as soon as they are whole: the old ones make
 * room for the new, and a tree that breaks off is there in part.
 *
 * A file of the destination with the size and the time of its entry is not asked for, nor is one that arrived
 * before it all broke off, unless the host or the disk has been down since, or could not write it. Of other
 * files that are there, chunks with the same content are taken over.
 *
 * Others may rename and link in the destination at any time, so names there are opened without following
 * links. Nobody but its user can write to the hidden folder; but a data store's rsync runs as the same user,
 * and its module leaves hidden folders out, though a link may lead there. So names in it are, too. One thread
 * at a time; an arrival is the only one of its destination.
 */
#ifndef PST_FILES_ARRIVAL_H
#define PST_FILES_ARRIVAL_H

#include "files/tree/manifest.h"
#include "files/tree/wanted.h"

enum {
    PST_ARRIVAL_OPEN_MAX = 8,             /* files that are begun and not whole */
    PST_ARRIVAL_OLD_BYTES_MIN = 64 << 10, /* smaller files come whole, as do those that no list fits */
    PST_ARRIVAL_TURN_MS = 1800000,        /* how long another arrival at the destination is waited for */
};

/* Of the side that receives. A client asks a server for the first two by these bits
 * (docs/reference/tree-protocol.md). */
enum pst_arrival_flags {
    PST_ARRIVAL_FORCE = 1,    /* sizes and times prove nothing: files are compared by content */
    PST_ARRIVAL_IN_PLACE = 2, /* files of a folder get their place one by one */
    PST_ARRIVAL_SYNC = 4,     /* a tree that has arrived survives a power failure */
    PST_ARRIVAL_MUNGE = 8,    /* links get PST_MUNGED in front of where they lead */
};

/* How an entry comes to be. */
enum pst_arrival_need {
    PST_ARRIVAL_HAS,   /* it is there */
    PST_ARRIVAL_WHOLE, /* a file that is asked for */
    PST_ARRIVAL_DELTA, /* a file of which chunks are there */
};

/* Where older versions of a file may lie. */
enum pst_arrival_older {
    PST_ARRIVAL_LEFTOVER, /* what an arrival that broke off had written of it */
    PST_ARRIVAL_THERE,    /* in the destination */
    PST_ARRIVAL_OLDER,    /* how many */
};

enum { PST_ARRIVAL_NAME_BYTES = 256 }; /* of one in a folder, with a NUL */

/* The name of what arrives at @leaf: reserved, and with its digest in place of one that is too long. */
void pst_arrival_name_of(const char *leaf, const char *suffix, char out[PST_ARRIVAL_NAME_BYTES]);

struct pst_arrival;

struct pst_arrival_result {
    uint64_t files, bytes; /* of the tree */
    uint64_t moved;        /* bytes of files that came from the sender */
    uint64_t matched;      /* and that were taken over from older versions */
    uint32_t left_out;     /* names that the sender, if it is this side, does not send; pst_manifest_scan() */
};

static inline void pst_arrival_result_add(struct pst_arrival_result *sum,
                                          const struct pst_arrival_result *more)
{
    sum->files += more->files;
    sum->bytes += more->bytes;
    sum->moved += more->moved;
    sum->matched += more->matched;
    sum->left_out += more->left_out;
}

/* @leaf of the folder @parent_fd, which is duplicated, is the destination. @flags: enum pst_arrival_flags.
 * Return: 0; -EBUSY another arrival is underway, -EPERM the hidden folder is another user's, -errno, with a
 * text in @fault. */
int pst_arrival_open(int parent_fd, const char *leaf, uint32_t flags, struct pst_arrival **out,
                     char fault[PST_FAULT_BYTES]);
/* The same, behind another arrival that is underway, for PST_ARRIVAL_TURN_MS at the most: of many who fetch a
 * tree to one place, all but the first find it there. @meanwhile is called now and then, and ends the waiting
 * if it returns an -errno, which is returned without a text; NULL: nobody is. */
int pst_arrival_open_in_turn(int parent_fd, const char *leaf, uint32_t flags, struct pst_arrival **out,
                             int (*meanwhile)(void *ctx), void *ctx, char fault[PST_FAULT_BYTES]);
/* The hidden folder stays unless the arrival has ended well. Returns NULL. */
struct pst_arrival *pst_arrival_close(struct pst_arrival *a);

/* Removes what an arrival that broke off has left in the hidden folder of @leaf. Return: 1, 0 there was none,
 * -EBUSY an arrival is underway, -EPERM it is another user's, -errno. */
int pst_arrival_forget(int parent_fd, const char *leaf);
/* The same beside all leaves that begin with @prefix; what cannot be removed stays. *removed grows. Return: 0
 * or -errno. */
int pst_arrival_forget_prefix(int parent_fd, const char *prefix, uint64_t *removed);

/* All below: 0, or -errno with a text of the fault, which names the entry. */
const char *pst_arrival_fault(const struct pst_arrival *a);
/* Takes the whole manifest, which is borrowed until closed, and makes its folders and links. */
int pst_arrival_begin(struct pst_arrival *a, const struct pst_manifest *m);
enum pst_arrival_need pst_arrival_need(const struct pst_arrival *a, uint32_t entry);
/* An older version of a file that is PST_ARRIVAL_DELTA, to which others may write meanwhile. Return: a
 * descriptor, the caller's, and in *@bytes how much of it is worth reading; -errno it is not there. */
int pst_arrival_open_old(struct pst_arrival *a, uint32_t entry, enum pst_arrival_older which,
                         uint64_t *bytes);
/* What is worth it has been taken over: when this arrival breaks off, the next one goes on from what it has.
 */
void pst_arrival_forget_old(struct pst_arrival *a, uint32_t entry);
/* Writes bytes of a file; @data NULL: a hole. Each byte of a file comes once, from here or from the next. */
int pst_arrival_write(struct pst_arrival *a, uint32_t entry, uint64_t at, const void *data, size_t bytes);
/* Writes bytes that an older version has, too. */
int pst_arrival_take(struct pst_arrival *a, uint32_t entry, uint64_t at, const void *data, size_t bytes);
/* Whether a file is whole with so many bytes more, and its end may take as long as disks do: it is written to
 * its disk, or copied to another one. */
bool pst_arrival_is_long(struct pst_arrival *a, uint32_t entry, uint64_t bytes);
/* A file that is not whole begins anew, without a byte. */
int pst_arrival_restart(struct pst_arrival *a, uint32_t entry);
/* An empty file, of which nothing comes. */
int pst_arrival_empty(struct pst_arrival *a, uint32_t entry);
/*
 * A file that was asked for and is begun or whole, open for reading; the caller's. It stays the same file
 * when it gets its place. Bytes that have not been written read as zeros, or lie behind its end. Also after
 * the arrival's end. Not with PST_ARRIVAL_IN_PLACE. Return: -errno.
 */
int pst_arrival_read(struct pst_arrival *a, uint32_t entry);
/* Everything has come: the destination gets it. -EPROTO: a file is not whole. */
int pst_arrival_end(struct pst_arrival *a, struct pst_arrival_result *result);

#endif
