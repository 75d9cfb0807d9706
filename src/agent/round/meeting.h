/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meeting.h: the agents of a group's pods come together, one for each rank, and stay so while they move
 * tensors. Rank 0 listens; the others connect, and say what they expect. Rank 0 says how the tensors go, and
 * all say in the end whether they have them:
 *
 *     rank r                        rank 0
 *     hello  ---------------------->          until all have come
 *            <---------------------- way
 *     done   ---------------------->          until all are done
 *            <---------------------- end
 *
 * An error that one of them says, its silence, or its end before that is everybody's error. Lines of JSON
 * (lines.h); an empty object says that somebody is there. Source: docs/reference/data-store.md, the agent.
 *
 * One thread, which looks (meeting_look()) every ROUND_LOOK_MS, or half a second at the most, while it does
 * something else.
 */
#ifndef PST_AGENT_ROUND_MEETING_H
#define PST_AGENT_ROUND_MEETING_H

#include "base/options.h"
#include "gpu/nccl.h"

enum {
    ROUND_RANKS_MAX = 4096,
    ROUND_LOOK_MS = 200,             /* how often a rank at work is to look */
    ROUND_MOVE_MS_MAX = 3600 * 1000, /* from the beginning to the end */
    ROUND_DIGEST_BYTES = 33,         /* as hex */
    ROUND_WAY_GROUP_BYTES = 33,
};

struct meeting_settings {
    const char *group; /* which names the meeting */
    const char *host;  /* rank 0's, of all others; of rank 0 where it listens, "" everywhere */
    uint16_t port;
    uint32_t rank, world_size;
    const char *digest;     /* of what is sent and received, which is the same for all */
    const char *no_nccl;    /* why this rank cannot move it by NCCL; NULL: it can */
    struct pst_bytes token; /* that the others show; empty: none */
    /* Until all have come. Half of it, and 5 to 20 s, without a word of somebody. Each rank has its own. */
    uint64_t timeout_ms;
    bool (*is_over)(void *ctx);
    void *ctx;
};

/* How the tensors go. */
struct meeting_way {
    bool by_nccl;
    uint8_t id[PST_NCCL_ID_BYTES];     /* by_nccl */
    uint16_t port;                     /* else: rank 0 serves a broadcast there, */
    char group[ROUND_WAY_GROUP_BYTES]; /* to this group alone */
};

struct meeting;

/*
 * Waits until all others have come (rank 0), or until rank 0 is there. All strings of @settings are borrowed
 * until closed. Return: 0; -ETIMEDOUT; -ECANCELED it is over; -EADDRINUSE; -EPROTO somebody expects something
 * else; -errno; with a text in @fault that names the ranks.
 */
int meeting_open(const struct meeting_settings *settings, struct meeting **out, char fault[PST_FAULT_BYTES]);
/* Rank 0: why one of the others cannot move it by NCCL; NULL: all can. */
const char *meeting_no_nccl(const struct meeting *meeting);
/* Rank 0: tells the others how. Return: 0 or -errno, as all that follow, with the reason in @fault. */
int meeting_begin(struct meeting *meeting, const struct meeting_way *way, char fault[PST_FAULT_BYTES]);
/* The others: waits for that. */
int meeting_await(struct meeting *meeting, struct meeting_way *way, char fault[PST_FAULT_BYTES]);
/* Hears what the others say, and lets them hear that this rank is there. Waits up to @wait_ms, or until @fd,
 * if it is not -1, can be read. Return: 0, or why there is no use in going on. */
int meeting_look(struct meeting *meeting, int fd, uint32_t wait_ms, char fault[PST_FAULT_BYTES]);
/* Says that this rank is done (@result is 0), or what went wrong (@result, with the text in @fault), and
 * waits until all are done, for an hour. Return: 0, or what went wrong here or elsewhere, with the text in
 * @fault. */
int meeting_end(struct meeting *meeting, int result, char fault[PST_FAULT_BYTES]);
/* Returns NULL. */
struct meeting *meeting_close(struct meeting *meeting);

#endif
