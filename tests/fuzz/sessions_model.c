/* SPDX-License-Identifier: Apache-2.0 */
#include "sessions_model.h"

bool model_present(const struct model *m, uint32_t key)
{
    return m->keys[key].generation > m->keys[key].gone;
}

static struct model_member *member_of(struct model_commit *c, uint32_t key)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->members[i].key == key)
            return &c->members[i];
    }
    return NULL;
}

bool model_locked(const struct model *m, uint32_t key, bool checks)
{
    for (uint32_t i = 0; i < MODEL_COMMITS_MAX; i++) {
        const struct model_commit *c = &m->commits[i];
        const struct model_member *member = c->open ? member_of((struct model_commit *)c, key) : NULL;

        if (member && (checks || member->change != MODEL_CHECK))
            return true;
    }
    return false;
}

/* The key is as it was before the commit; so nothing of the commit can have shown. */
static void expect_unseen(struct model *m, uint32_t key)
{
    for (uint32_t i = 0; i < MODEL_COMMITS_MAX; i++) {
        struct model_commit *c = &m->commits[i];
        const struct model_member *member = c->open && c->seen ? member_of(c, key) : NULL;

        pst_assert(!member || member->change != MODEL_PUT || member->adopted ||
                   member->base != m->keys[key].generation);
    }
}

static void set_value(struct model_key *k, uint64_t generation, uint8_t id)
{
    k->generation = generation;
    k->id = id;
}

/* @generation: of the value that was deleted, which maybe nobody had read. */
static void set_deleted(struct model_key *k, uint64_t generation)
{
    k->generation = pst_max(k->generation, generation);
    k->gone = pst_max(k->gone, generation);
}

/* The open commit that has brought @change of the key about, with the value that @id names unless it is 0.
 * Return: how many it may have been; *commit and *member are of the first. */
static uint32_t suspects(struct model *m, uint32_t key, enum model_change change, uint8_t id,
                         struct model_commit **commit, struct model_member **member)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < MODEL_COMMITS_MAX; i++) {
        struct model_commit *c = &m->commits[i];
        struct model_member *of = c->open ? member_of(c, key) : NULL;

        if (!of || of->change != change || of->adopted || (id && id != of->id))
            continue;
        if (count++ == 0) {
            *commit = c;
            *member = of;
        }
    }
    return count;
}

void model_read(struct model *m, uint32_t key, uint64_t generation, uint8_t id)
{
    struct model_key *k = &m->keys[key];
    struct model_commit *commit;
    struct model_member *member;
    uint32_t count;

    if (k->vague)
        return;
    pst_assert(generation >= k->generation && generation > k->gone);
    if (generation == k->generation) {
        pst_assert(!id || !k->id || id == k->id);
        expect_unseen(m, key);
        return;
    }
    count = suspects(m, key, MODEL_PUT, id, &commit, &member);
    pst_assert(count > 0); /* somebody wrote it */
    if (count == 1)
        commit->seen = member->adopted = true;
    set_value(k, generation, count == 1 ? member->id : id);
}

void model_missed(struct model *m, uint32_t key)
{
    struct model_key *k = &m->keys[key];
    struct model_commit *commit;
    struct model_member *member;
    uint32_t count = suspects(m, key, MODEL_DELETE, 0, &commit, &member);

    if (k->vague)
        return;
    if (k->generation <= k->doomed)
        k->gone = pst_max(k->gone, k->generation);
    if (!model_present(m, key)) {
        if (!count)
            expect_unseen(m, key);
        return;
    }
    pst_assert(count > 0); /* somebody deleted it */
    commit->seen |= count == 1;
    k->gone = k->generation;
}

void model_busy(const struct model *m, uint32_t key, bool checks)
{
    pst_assert(m->keys[key].vague || model_locked(m, key, checks));
}

void model_written(struct model *m, uint32_t key, uint64_t generation, uint8_t id)
{
    struct model_key *k = &m->keys[key];

    pst_assert(k->vague || generation > k->generation || model_locked(m, key, false));
    if (generation > k->generation)
        set_value(k, generation, id);
}

void model_deleted(struct model *m, uint32_t key, uint64_t generation)
{
    struct model_key *k = &m->keys[key];

    pst_assert(k->vague || generation == k->generation || model_locked(m, key, true));
    set_deleted(k, generation);
}

/* ---- commits ---- */

struct model_commit *model_commit(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_COMMITS_MAX; i++) {
        if (!m->commits[i].open) {
            m->commits[i] = (struct model_commit){.open = true};
            return &m->commits[i];
        }
    }
    return NULL;
}

void model_member(struct model *m, struct model_commit *c, enum model_change change, uint32_t key, uint8_t id)
{
    pst_assert(c->count < MODEL_MEMBERS_MAX);
    c->members[c->count++] =
        (struct model_member){.change = change, .key = key, .id = id, .base = m->keys[key].generation};
}

void model_applied(struct model *m, struct model_member *member, int result, uint64_t generation)
{
    struct model_key *k = &m->keys[member->key];

    pst_assert(result == 0 || (result == 1 && member->change == MODEL_DELETE));
    if (member->change == MODEL_PUT && generation > k->generation) {
        set_value(k, generation, member->id);
    } else if (member->change == MODEL_PUT && !k->vague) {
        pst_assert(!member->adopted || generation <= k->generation);
    } else if (member->change == MODEL_DELETE && result == 0) {
        set_deleted(k, generation);
    }
}

void model_refused(struct model_commit *c)
{
    pst_assert(!c->seen);
    c->open = false;
}

void model_orphaned(struct model *m, struct model_commit *c)
{
    for (uint32_t i = 0; i < c->count; i++)
        m->keys[c->members[i].key].vague = true;
    c->open = false;
}
