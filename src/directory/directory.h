/* SPDX-License-Identifier: Apache-2.0 */
/*
 * directory.h: what the master of a pool knows and decides: who is a member, who has which partition, where
 * keys are and where new ones go. One thread at a time. Pure: it is handed messages and the time (monotonic)
 * and returns what to answer; it never waits, reads no clock, and draws no number that its seed does not
 * determine.
 *
 * *The pool map* (pool map.h) is all that lasts. A decision that changes it makes a *draft*; nobody may hear
 * of a draft before it is stored. So calls that change the pool map return the version to wait for:
 *
 *     r = pst_directory_register(d, &message, now_ns, &out);     out.version: hold the answer back until
 *     while (pst_directory_unstored(d)) {                         the pool map has that version
 *         bytes = pst_directory_store_begin(d, buf, cap, &version);
 *         ... write, fsync; or compare-and-swap from version - 1 ...
 *         pst_directory_stored(d, version, now_ns);
 *     }
 *
 * More decisions may be made while a pool map is being stored; they go into the next one. When storing fails
 * for good, or another directory has stored a pool map, close and open again from what is stored.
 *
 * *One directory at a time* serves a pool: the caller sees to that (a lock on the file, a lease in etcd). A
 * new one may begin at once after the last has stopped: it grants leases anew, and moves no partition before
 * all that the last one granted have run out. One that makes no pool map any more may grant leases a while
 * longer, if the new one knows for how long (pst_directory_succeed()).
 *
 * Everything else is soft, and comes from the nodes: until all known ones have reported, a key that is not
 * found is INCOMPLETE, never a miss.
 */
#ifndef PST_DIRECTORY_H
#define PST_DIRECTORY_H

#include "directory/keys.h"
#include "directory/tables.h"
#include "pool/report.h"
#include "pool/map.h"

enum { PST_DIRECTORY_BATCH_MAX = 256 };

struct pst_directory;

/*
 * From the stored pool map, or with @stored empty from nothing, as the pool @pool, of which all chance comes,
 * too. Return: 0, -ENOMEM, or what pst_map_decode() says.
 */
int pst_directory_open(const struct pst_directory_settings *settings, struct pst_bytes stored,
                       const struct pst_id *pool, uint64_t now_ns, struct pst_directory **out);
struct pst_directory *pst_directory_close(struct pst_directory *d);
/*
 * Directly behind opening: the directory before this one may still grant leases, until then. @lease_ms: none
 * that is out is longer; 0: not known, and as long as this one's.
 */
void pst_directory_succeed(struct pst_directory *d, uint64_t until_ns, uint64_t lease_ms);
/* None that may be out is longer: for the next directory. */
uint64_t pst_directory_lease_ms(const struct pst_directory *d, uint64_t now_ns);
/* The defaults of the table. */
void pst_directory_preset(struct pst_directory_settings *settings);

/* ---- the pool map ---- */

/* The one in effect: the last that was stored. Valid until the next pst_directory_stored(). */
const struct pst_map *pst_directory_map(const struct pst_directory *d);
/* Whether there is a draft that nobody is storing yet. */
bool pst_directory_unstored(const struct pst_directory *d);
/* What was stored is gone: a draft that may change nothing. */
void pst_directory_store_again(struct pst_directory *d);
/* Encodes the draft, @cap at least pst_map_bytes_max(). One at a time. Return: bytes. */
size_t pst_directory_store_begin(struct pst_directory *d, uint8_t *to, size_t cap, uint64_t *version);
/* It is stored, and takes effect. */
void pst_directory_stored(struct pst_directory *d, uint64_t version, uint64_t now_ns);

/* Sets the placement of a prefix. Return: 0 (@version: answer then), -EINVAL, -ENOSPC. */
int pst_directory_place(struct pst_directory *d, struct pst_bytes prefix, enum pst_placement placement,
                        uint32_t replicas, uint64_t *version);
/* What was lost is known: keys of lost partitions that are not found are missing from now on. */
void pst_directory_forgive(struct pst_directory *d, uint64_t *version); /* answer then */

/*
 * Before anything else: a pool that lost its pool map goes on as @pool, with its hashes. @floor: more than
 * any version, or epoch, that it had got to. Who had the latest of a partition is not known any more: all are
 * lost. Return: 0, also when it is that pool already; -EEXIST the pool map has had members of its own.
 */
int pst_directory_adopt(struct pst_directory *d, const struct pst_id *pool, uint64_t floor);

/*
 * Whoever asks says of which pool it is. Return: 0, -EXDEV of another one, whose members, epochs and hashes
 * are not this one's. A pool that hears of them before it had a member may be one that lost its pool map:
 * while it does, a key that is not found is INCOMPLETE.
 */
int pst_directory_check_pool(struct pst_directory *d, const struct pst_id *pool, uint64_t now_ns);

/* ---- members ---- */

struct pst_register {
    struct pst_id id, host;
    uint64_t start; /* drawn by the process: asking again is not another node */
    uint64_t page_bytes;
    uint64_t
        kept_epoch;    /* a membership: of all that it acknowledged in that one, it has lost nothing; or 0 */
    bool kept_durable; /* nothing that was durable, that is */
    const char *address; /* texts: shorter than the pool map's bounds */
    const char *unix_path;
    const char *tags;
};

struct pst_registered {
    uint16_t member;
    uint64_t epoch;
    uint64_t version; /* answer when the pool map has it */
    uint64_t heartbeat_ms;
    const struct pst_map_member *holder; /* -EEXIST: who has the id; until the next call */
};

/*
 * Return: 0, -EEXIST another process has the id and its lease may not have ended, -EAGAIN one is about to be
 * registered or removed, or it is not known yet whether others have more than it, -ENOSPC no number free,
 * -EINVAL.
 */
int pst_directory_register(struct pst_directory *d, const struct pst_register *message, uint64_t now_ns,
                           struct pst_registered *out);
/* What becomes of the values of a node that leaves. */
enum pst_left {
    PST_LEFT_KEPT, /* it may come back with them: partitions that nobody else has wait for it */
    PST_LEFT_LOST, /* they end with it: what nobody else has is lost at once */
    PST_LEFT_VOID, /* the same, and nobody relied on them: all might have been evicted, and are missing now */
};
/* A node leaves and serves no more: it has dropped its lease, and registers with another @start when it comes
 * back, since this may be heard late. Return: 0 (@version: answer then), -ESTALE. */
int pst_directory_unregister(struct pst_directory *d, uint16_t member, uint64_t epoch, enum pst_left left,
                             uint64_t now_ns, uint64_t *version);
/*
 * Whether the node is to be needed for nothing any more: it is given no new keys, others get its partitions
 * and copies of its keys. That ends with its membership. Return: 0 (@version: answer then), -ESTALE no member
 * has the id.
 */
int pst_directory_drain(struct pst_directory *d, const struct pst_id *id, bool drains, uint64_t *version);
/* A client could not reach it: no new keys for a while, and last among places to read from. -ESTALE. */
int pst_directory_suspect(struct pst_directory *d, uint16_t member, uint64_t epoch, uint64_t now_ns);

/*
 * Return: 0 taken, -EALREADY from the past: nothing is changed or granted, -EILSEQ one is missing: nothing of
 * it but the sign of life is taken, -EINVAL, -ESTALE no such membership: register again. @answer is filled
 * unless it is -ESTALE.
 */
int pst_directory_heartbeat(struct pst_directory *d, const struct pst_heartbeat *message, uint64_t now_ns,
                            struct pst_heartbeat_answer *answer);

/* Looks after silent members, partitions without a primary and what lost ones held. Every lease_margin_ms /
 * 4, or more often. */
void pst_directory_tick(struct pst_directory *d, uint64_t now_ns);

/* ---- partitions ---- */

enum pst_copy_change {
    /* The copy does not answer: acknowledge without it from the new epoch on. One that was asked to join and
     * may not have is dropped as well: the new epoch sees to it that it never will by the old request. */
    PST_COPY_DROP,
    PST_COPY_JOIN, /* the copy has all; the primary already waits for it before it acknowledges */
    /* The copy shall be primary. Who asks serves the partition no more, whatever its lease says, until the
     * partition has another epoch: if nothing comes of it, that of a DROP. */
    PST_COPY_LEAD,
    /* A partition that was dealt out anew: who asks, which is its copy, has dropped what it had, for good. */
    PST_COPY_TAKE,
    /* The same partition: who asks cannot do so. It goes to another, as all that is dealt from then on. */
    PST_COPY_REFUSE,
};

struct pst_copy_request {
    uint16_t member; /* the primary that asks */
    uint64_t epoch;
    enum pst_copy_change change;
    uint16_t partition;
    uint64_t partition_epoch;
    uint16_t copy;
    uint64_t copy_epoch;
};

/* Return: 0 (@version: answer then), -ESTALE the partition's epoch, or a member, is another, -EINVAL. */
int pst_directory_change_copy(struct pst_directory *d, const struct pst_copy_request *request,
                              uint64_t *version);

#endif
