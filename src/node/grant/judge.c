/* SPDX-License-Identifier: Apache-2.0 */
/*
 * judge.c: looks at operations before anything is done for them. Whatever comes later asks only whether there
 * is a right missing: a refusal costs the same, and says the same, whether the key is there or not.
 */
#include "node/grants.h"
#include "node/node_priv.h"
#include "node/request.h"

#include "base/error.h"

enum { KEY_TEXT_BYTES = 64 };

/* A change of the grant shows with the next request. */
static void renew_terms(struct pst_shard_session *v)
{
    struct pst_terms *before = v->terms;

    pst_assert(before);
    v->terms = pst_grant_terms_ref(v->session->grant, &v->terms_version);
    pst_terms_unref(before);
    pst_shard_session_close_unreadable(v);
}

static void set_missing(struct pst_worker *w, uint32_t index, uint8_t right)
{
    pst_assert(index < PST_WIRE_OPS_MAX);
    w->missing_count += right && !w->missing[index];
    w->missing[index] = right;
}

void pst_request_judge(struct pst_shard_session *v, uint32_t count)
{
    struct pst_worker *w = v->worker;
    struct pst_grant *grant = v->session->grant;
    uint32_t commit = 0, members = 0;

    pst_assert(count <= PST_WIRE_OPS_MAX);
    w->missing_count = 0;
    if (pst_likely(!grant))
        return;
    if (pst_unlikely(atomic_load_explicit(&grant->version, memory_order_acquire) != v->terms_version))
        renew_terms(v);
    if (pst_likely(pst_grant_is_everything(&v->terms->are)))
        return;
    memset(w->missing, 0, count);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t right = pst_grant_missing(&v->terms->are, &w->ops[i]);

        set_missing(w, i, right);
        if (members > 0) { /* a commit is done as a whole, or not */
            members--;
            if (right)
                set_missing(w, commit, right);
        } else if (w->ops[i].code == PST_WIRE_COMMIT) {
            commit = i;
            members = (uint32_t)w->ops[i].member_count;
        }
    }
    pst_assert(members == 0);
    pst_assert(w->missing_count <= count);
}

void pst_request_forbidden(struct pst_shard_session *v, uint32_t index)
{
    struct pst_worker *w = v->worker;
    const struct pst_wire_op *op = &w->ops[index];
    const struct pst_session *session = v->session;
    uint8_t right = w->missing[index];
    char key[KEY_TEXT_BYTES] = "";
    uint32_t untold = 0;

    pst_assert(right);
    pst_assert(index < PST_WIRE_OPS_MAX);
    pst_assert(session->grant);
    pst_assert(w->node->grants);
    w->forbidden++;
    if (!pst_grant_refused(w->node->grants, session->grant, right, &untold))
        return;
    if (op->key.len)
        memcpy(key, op->key.data, pst_min(op->key.len, sizeof(key) - 1));
    pst_printable(key);
    pst_node_log(w->node, "refused %s of %s: grant %s has no right to %s '%s'; %u like it before went untold",
                 pst_code_word(op->code), session->peer, session->grant->name, pst_right_word(right), key,
                 untold);
}
