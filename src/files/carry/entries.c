/* SPDX-License-Identifier: Apache-2.0 */
/* entries.c: a manifest as frames. */
#include "files/carry/carry_priv.h"

int carry_send_entries(struct link *link, const struct pst_manifest *m)
{
    uint8_t wire[PST_ENTRY_WIRE_BYTES_MAX];
    int r = 0;

    pst_assert(m->count > 0);
    pst_assert(link->out_bytes == 0);
    for (uint32_t i = 0; r == 0 && i < m->count; i++) {
        size_t bytes = pst_entry_encode(&m->entries[i], wire);

        if (bytes > link_room(link))
            r = link_send(link, LINK_ENTRIES);
        if (r == 0)
            link_put(link, wire, bytes);
    }
    if (r == 0)
        r = link_send(link, LINK_ENTRIES);
    link_put_number(link, m->count, 4);
    return r < 0 ? r : link_send(link, LINK_ENTRIES_END);
}

static int entries_take(struct link *link, struct pst_reader *frame, struct pst_manifest *m)
{
    struct pst_entry_texts texts;
    struct pst_entry entry;

    if (frame->left == 0)
        return link_fail(link, -EPROTO, "the sender lists entries, and lists none");
    while (frame->left && !frame->bad) {
        int error;

        pst_entry_decode(frame, &texts, &entry);
        error = frame->bad ? -EINVAL : pst_manifest_add(m, &entry);
        if (error < 0)
            return link_fail(link, error, "the sender's list of entries is none that a tree can have");
    }
    return 0;
}

int carry_receive_entries(struct link *link, struct carry_share *share, struct pst_manifest *m)
{
    struct pst_reader frame;
    enum link_type type;
    int error;

    pst_assert(m->count == 0);
    while ((error = link_receive(link, 0, &type, &frame)) == 0 && type == LINK_ENTRIES) {
        error = entries_take(link, &frame, m);
        if (error < 0)
            return error;
        if (carry_share_set(share, pst_manifest_bytes(m)) < 0)
            return link_fail(link, -EBUSY, "the server has too many entries of trees underway");
    }
    if (error == 0 &&
        (type != LINK_ENTRIES_END || pst_read_number(&frame, 4) != m->count || frame.bad || m->count == 0))
        return link_fail(link, -EPROTO, "the sender's list of entries does not end well");
    return error;
}
