/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.h: values on SSD, and in device memory. Whoever needs the bytes of a value that may be there includes
 * it. A store with a log moves values from its memory there, the least recently used first, and brings them
 * back when they are used. A store with a device moves values there while it has room, and those that are
 * read again. A value that is *away* keeps its record (record.h): all that looks at keys alone works on it as
 * on any. Whoever wants its bytes *fetches* it first.
 *
 * What takes time is a *wait*, in memory of the caller, who polls (pst_shard_poll()) until it has ended.
 * Threads: the shard's.
 */
#ifndef PST_TIER_H
#define PST_TIER_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct pst_shard;
struct pst_store;
struct pst_record;
struct pst_fetch;

struct pst_tier_options {
    const char *const *folders;
    uint32_t folder_count;  /* 0: no SSD */
    uint64_t bytes;         /* of all folders together */
    uint64_t segment_bytes; /* 0: the log's own choice */
    const char *driver;     /* NULL: the best there is */
    bool held;              /* nothing is written there before pst_store_begin() */
};

struct pst_gpu_ops;

struct pst_device_options {
    const struct pst_gpu_ops *ops; /* NULL: no device */
    uint32_t ordinal;
    uint64_t bytes; /* of all shards together */
};

struct pst_tier_wait {
    struct pst_list link;
    struct pst_fetch *fetch;
    struct pst_record *record; /* a save that has not begun */
    bool ended;
    int result; /* then: 0 or -errno */
};

/* Whether values may be away; and whether that may be in a log. */
bool pst_shard_tiered(const struct pst_shard *shard);
bool pst_shard_logs(const struct pst_shard *shard);
/* What could not be had for the log, for people; "" when all could. */
const char *pst_store_tier_note(const struct pst_store *store);
/* Drawn with its SSD's folders; 0: it has none. */
uint64_t pst_store_tier_name(const struct pst_store *store);

/* A value in memory is read: it may move up. */
void pst_shard_read(struct pst_shard *shard, struct pst_record *record);
/* Copies that a device failed since the start. Any thread. */
uint64_t pst_store_device_errors(const struct pst_store *store);

/*
 * Begins to bring bytes [@offset, @offset + @bytes) of a value that is away into memory, or joins who does.
 * Return: 0, and @wait is the tier's until pst_tier_leave(); -ENOMEM, PST_BUSY.
 */
int pst_tier_fetch(struct pst_shard *shard, struct pst_record *away, uint64_t offset, uint64_t bytes,
                   uint64_t now_ns, struct pst_tier_wait *wait);
/*
 * While such a wait has ended and not been left: *@record has the bytes from byte *@from of the value on.
 * Return: 0; PST_BUSY they have not been fetched; -EBADMSG, -EIO.
 */
int pst_tier_fetched(struct pst_shard *shard, const struct pst_record *away, uint64_t offset, uint64_t bytes,
                     struct pst_record **record, uint64_t *from);

/* Has the value of a record that is not away written, and ends when a crash would not lose it any more.
 * Return: 0, -ENOMEM, -EINVAL the value has an end. */
int pst_tier_save(struct pst_shard *shard, struct pst_record *record, struct pst_tier_wait *wait);
/* What a write says whose value shows and could not be made durable: that it might not last; of a value with
 * an end, or whose checksum is wrong, that. */
static inline int pst_tier_unsaved(int result)
{
    return result < 0 && result != -EINVAL && result != -EBADMSG ? -EIO : result;
}
/* Ends when a crash would lose nothing any more that was written or deleted before in this shard, but values
 * with an end. The wait's result: 0; else the first fault, and all is saved that could be: -EFBIG, -ENOSPC,
 * -EIO, -EBADMSG a checksum is wrong, -ENOMEM. */
void pst_tier_flush(struct pst_shard *shard, struct pst_tier_wait *wait);
/* The same for what was deleted and was on SSD: no value is written. */
void pst_tier_sync(struct pst_shard *shard, struct pst_tier_wait *wait);
/* Keys that were deleted here may be put again under generations that are no later (pst_log_new_era()). */
void pst_tier_new_era(struct pst_shard *shard);
/* Whether a crash would bring back this value of the key, or an earlier one, or is about to. */
bool pst_tier_saves(const struct pst_shard *shard, const struct pst_record *record);
/* Gives a wait up, ended or not; what it was for goes on. */
void pst_tier_leave(struct pst_shard *shard, struct pst_tier_wait *wait);

/* Carries on what is underway. Return: true when something happened. */
bool pst_shard_poll(struct pst_shard *shard, uint64_t now_ns);
/* The next wait that has ended since; NULL: none. */
struct pst_tier_wait *pst_tier_ended(struct pst_shard *shard);
bool pst_tier_has_ended(const struct pst_shard *shard);
/* True when something waits for memory, or other shards for this one, so that a poll is due soon though no
 * disk says so. */
bool pst_tier_impatient(const struct pst_shard *shard);
/* To sleep on; -1: there is nothing to wait for. */
int pst_tier_descriptor(const struct pst_shard *shard);

#endif
