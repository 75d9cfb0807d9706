/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sessions_model.h: what is known of a node's keys from what it has answered, and so what it may answer next.
 * Generations order the writes of a key: what was answered last need not be what was done last. A commit that
 * is underway may have been applied: whoever has seen one of its changes sees the others, or is told busy.
 */
#ifndef SESSIONS_MODEL_H
#define SESSIONS_MODEL_H

#include "base/base.h"

enum { MODEL_KEYS = 8, MODEL_MEMBERS_MAX = 4, MODEL_COMMITS_MAX = 64 };

enum model_change { MODEL_CHECK, MODEL_PUT, MODEL_DELETE };

struct model_key {
    uint64_t generation; /* of the last write that is known */
    uint64_t gone;       /* values up to this generation are gone */
    uint8_t id;          /* each byte of the value */
    bool vague;          /* nobody was told what became of a write */
    uint64_t doomed;     /* values up to this generation go with their last pin */
};

struct model_member {
    enum model_change change;
    uint32_t key;
    uint8_t id;
    uint64_t base; /* the key's generation when the commit was asked for */
    bool adopted;  /* its write is known */
};

struct model_commit {
    bool open, seen;
    uint32_t count;
    struct model_member members[MODEL_MEMBERS_MAX];
};

struct model {
    struct model_key keys[MODEL_KEYS];
    struct model_commit commits[MODEL_COMMITS_MAX];
};

bool model_present(const struct model *m, uint32_t key);
/* Whether a commit that is underway changes the key; @checks: or looks at it. */
bool model_locked(const struct model *m, uint32_t key, bool checks);
/* A value was read; @id 0: its bytes are not known. */
void model_read(struct model *m, uint32_t key, uint64_t generation, uint8_t id);
void model_missed(struct model *m, uint32_t key);
void model_busy(const struct model *m, uint32_t key, bool checks);
void model_written(struct model *m, uint32_t key, uint64_t generation, uint8_t id);
void model_deleted(struct model *m, uint32_t key, uint64_t generation);
/* Return: NULL: too many. */
struct model_commit *model_commit(struct model *m);
void model_member(struct model *m, struct model_commit *c, enum model_change change, uint32_t key,
                  uint8_t id);
/* The answer to a commit's member that was applied; the commit itself has no change that was seen, unless. */
void model_applied(struct model *m, struct model_member *member, int result, uint64_t generation);
void model_refused(struct model_commit *c);
/* Its session has ended: nobody is told. */
void model_orphaned(struct model *m, struct model_commit *c);

#endif
