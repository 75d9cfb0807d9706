/* SPDX-License-Identifier: Apache-2.0 */
/* arrival_priv.h: an arrival as its parts see it: arrival.c opens it and decides what is asked for, hidden.c
 * finds its hidden folder, files.c writes files, settle.c gives the destination what has come, leftover.c
 * keeps of a broken arrival what fits.
 */
#ifndef PST_FILES_ARRIVAL_PRIV_H
#define PST_FILES_ARRIVAL_PRIV_H

#include "files/tree/arrival.h"

#include <pthread.h>

#include <time.h>

#define ARRIVAL_MAGIC 0x61727276u
#define ARRIVAL_LOCK  "lock"

enum { ARRIVAL_DISKS_MAX = 5, ARRIVAL_REPLACED_MAX = 4 };

/* A file that is begun. */
struct arrival_file {
    uint32_t entry;
    int fd;           /* -1: a free place */
    uint64_t end;     /* behind the last byte that is there */
    uint64_t covered; /* bytes that are written, */
    uint64_t taken;   /* and were in an older version */
};

/* A file system that the arrival has written to: the hidden folder's, and those mounted in the destination.
 */
struct arrival_disk {
    int fd; /* -1: a free place */
    dev_t device;
};

/* A file that had to make room, while what it held is given back. */
struct arrival_replaced {
    int fd;
    bool underway;
    pthread_t thread;
};

/* A folder beneath a root, kept open since its neighbours come next. */
struct arrival_folder {
    int root_fd; /* -1: there is no such root */
    int fd;      /* -1: none yet */
    char path[PST_ENTRY_TEXT_BYTES_MAX + 1];
};

struct pst_arrival {
    uint32_t magic;
    int parent_fd;
    int home_fd; /* where the hidden folder lies: the parent, or the destination */
    bool within; /* it is the destination */
    char leaf[PST_ARRIVAL_NAME_BYTES];
    uint32_t flags; /* enum pst_arrival_flags */
    int hidden_fd;
    int lock_fd; /* of the hidden folder's turn, between hosts; -1: there is no room for one */
    char hidden[PST_ARRIVAL_NAME_BYTES];
    bool exists; /* the destination was there */
    bool proves; /* sizes and times of what lies in "tree" */
    bool settled;
    const struct pst_manifest *m;
    uint8_t *needs;   /* enum pst_arrival_need, of each entry */
    bool *arrived;    /* of each entry: it lies in "tree" and is to be put into a destination that exists */
    uint32_t missing; /* files that are asked for and not whole */
    struct arrival_folder made, there;            /* hidden/tree, and the destination, if it is a folder */
    struct arrival_disk disks[ARRIVAL_DISKS_MAX]; /* with PST_ARRIVAL_SYNC */
    struct arrival_replaced replaced[ARRIVAL_REPLACED_MAX]; /* in turn */
    uint32_t replaced_count;
    struct arrival_file files[PST_ARRIVAL_OPEN_MAX];
    struct pst_arrival_result result;
    char fault[PST_FAULT_BYTES];
};

/* Return: @error, with the text. @path: "" is the tree's own. */
int arrival_fail(struct pst_arrival *a, int error, const char *path);
/*
 * Where the entry @path lies beneath @folder: *@leaf in the folder that is returned, which stays open until
 * the next call. The tree itself is `tree` in the hidden folder, or the destination's leaf. Return: -errno.
 */
int arrival_parent(struct pst_arrival *a, struct arrival_folder *folder, const char *path, const char **leaf);
/* "fresh-HASH" or "old-HASH". */
void arrival_name(char name[PST_ARRIVAL_NAME_BYTES], const char *what, const char *path);
/* Whether files get their place one by one. */
bool arrival_in_place(const struct pst_arrival *a);
/* Whether the destination can become the tree, and what of it is there. Return: 0 or the arrival's fault. */
int arrival_look_there(struct pst_arrival *a);
/* Gives @from of a folder the entry's place in a destination that is there. Return: 0 or the arrival's fault.
 */
int arrival_rename(struct pst_arrival *a, const struct pst_entry *entry, int from_fd, const char *from);
/* Waits until all is given back that files held that had to make room. Return: whether there was any. */
bool arrival_released(struct pst_arrival *a);
/* The same, from one file system to another. */
int arrival_copy(struct pst_arrival *a, const struct pst_entry *entry, int from_fd, const char *from,
                 int to_fd, const char *to);
/* The mode and the time of a file that is whole, which is closed. Its time comes last: it tells the next
 * arrival that the file is whole. Return: 0 or the arrival's fault. */
int arrival_seal(struct pst_arrival *a, const struct pst_entry *entry, int fd);
/* A folder of the tree in a destination that is there. Return: 0 or the arrival's fault. */
int arrival_settle_folder(struct pst_arrival *a, const struct pst_entry *entry);
/* The same of what lies in the hidden folder's tree. */
int arrival_settle_arrived(struct pst_arrival *a, const struct pst_entry *entry);
/* Makes the hidden folder, or takes the one of an arrival that broke off, and locks it. Return: 0, or -errno
 * with the arrival's fault; -EBUSY another arrival is underway. */
int arrival_open_hidden(struct pst_arrival *a);
/* Of the mount that @fd is on; two of one file system differ. @unique: whether no later mount gets the same;
 * NULL is fine. 0: it is not known. */
uint64_t arrival_mount_of(int fd, bool *unique);
/* Removes @name of a folder, and all that it has. Return: 0 or -errno. */
int arrival_remove(int folder_fd, const char *name);
/* The hidden folder: what is open is emptied, since others may have put something else at its name. The lock
 * goes last, and is closed. */
int arrival_remove_hidden(int home_fd, const char *hidden, int hidden_fd, int *lock_fd);
/* No file or link comes in the place of a folder, which may have what no tree knows of. *@st: what lies
 * there, its mode 0 if nothing does. Return: 0 or the arrival's fault. */
int arrival_check_place(struct pst_arrival *a, const struct pst_entry *entry, struct stat *st);
/* With PST_ARRIVAL_SYNC: the folder's file system is synced, too. Return: 0 or -errno. */
int arrival_note_disk(struct pst_arrival *a, int folder_fd);
/* What has come survives a power failure from now on, with PST_ARRIVAL_SYNC. Return: 0 or the arrival's
 * fault.
 */
int arrival_sync(struct pst_arrival *a);
/* Of what an arrival that broke off has left, keeps what the manifest names, and finds out what that proves.
 * Return: 0 or the arrival's fault. */
int arrival_prune(struct pst_arrival *a);
/* What lies in the hidden folder proves itself to the next arrival, unless the disk has been away. */
void arrival_mark(struct pst_arrival *a);
/* Nor does it, if the disk could not write it. */
void arrival_unmark(struct pst_arrival *a);
/* What utimensat() takes for the entry. */
void arrival_times(const struct pst_entry *entry, struct timespec times[2]);

#endif
