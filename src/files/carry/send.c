/* SPDX-License-Identifier: Apache-2.0 */
/*
 * send.c: the side that has the tree. It lists its entries and is told which files are wanted. Of those that
 * the receiver has in an older version it lists the chunks first, and sends the ones that are needed; the
 * others it sends whole. The lists are ahead of the needs, so that both sides read their files at once.
 */
#include "files/carry/carry_priv.h"
#include "files/tree/source.h"

#include <fcntl.h>
#include <stdio.h>

enum {
    PIECE_BYTES = 256 << 10, /* of a file that is sent whole */
    PIECE_HEAD_BYTES = 4 + 8 + 4 + PST_DIGEST_BYTES,
    CHUNK_BYTES = 4 + PST_DIGEST_BYTES,
    LIST_BYTES = 64 << 10,  /* a frame of a list is sent once it has as much */
    AHEAD_FILES = 4,        /* lists whose needs have not come yet, */
    AHEAD_CHUNKS = 1 << 18, /* and chunks in them */
    DATA_BYTES = 1 << 20,   /* a frame of data is sent once it has as much */
};

_Static_assert(PIECE_HEAD_BYTES + (int)PIECE_BYTES <= (int)LINK_FRAME_BYTES_MAX &&
                   PIECE_HEAD_BYTES + (int)PST_CHUNK_BYTES_MAX <= (int)LINK_FRAME_BYTES_MAX,
               "a frame of data has room for a piece");
_Static_assert((int)PST_ENTRY_WIRE_BYTES_MAX <= (int)LINK_FRAME_BYTES_MAX, "a frame has room for an entry");
_Static_assert(PIECE_BYTES < LINK_HOLE, "no piece's length has the bit of a hole");

/* A file whose chunks were listed. */
struct listed {
    uint32_t entry;
    bool by_content;
    uint32_t count, room;
    uint32_t *bytes; /* of each chunk */
};

struct sender {
    struct link *link;
    struct pst_source source;
    const struct pst_carry_options *options;
    atomic_bool gone; /* the receiver, while the tree is listed */
    char scan_fault[PST_FAULT_BYTES];
    struct pst_manifest m;
    uint8_t *wants; /* enum pst_arrival_need, of each entry */
    struct listed ahead[AHEAD_FILES];
    uint32_t ahead_count;
    uint64_t progress;
    uint32_t odd; /* names that are left out */
};

static int sender_fail(struct sender *s, int error, const struct pst_entry *entry)
{
    return link_fail(s->link, error, "%.60s%s%.120s: %s", s->source.leaf, *entry->path ? "/" : "",
                     entry->path, error == -ESTALE ? "changed while it was read" : strerror(-error));
}

static void sender_progress(struct sender *s, uint64_t bytes)
{
    s->progress += bytes;
    if (s->options->progress)
        s->options->progress(s->options->ctx, s->progress, s->m.file_bytes);
}

/* ---- entries and wants ---- */

static int take_wants(struct sender *s, struct pst_reader *frame)
{
    if (frame->left == 0)
        return link_fail(s->link, -EPROTO, "the receiver says what it wants, and wants nothing");
    while (frame->left && !frame->bad) {
        uint32_t entry = (uint32_t)pst_read_number(frame, 4), how = (uint32_t)pst_read_number(frame, 1);

        if (frame->bad || entry >= s->m.count || s->m.entries[entry].kind != PST_ENTRY_FILE ||
            (how != PST_ARRIVAL_WHOLE && how != PST_ARRIVAL_DELTA) || s->wants[entry] ||
            (how == PST_ARRIVAL_DELTA && s->m.entries[entry].bytes > PST_WANTED_FILE_BYTES_MAX))
            return link_fail(s->link, -EPROTO, "the receiver wants what there is not");
        s->wants[entry] = (uint8_t)how;
    }
    return 0;
}

static int receive_wants(struct sender *s)
{
    struct pst_reader frame;
    enum link_type type;
    int r;

    while ((r = link_receive(s->link, 0, &type, &frame)) == 0 && type == LINK_WANT) {
        r = take_wants(s, &frame);
        if (r < 0)
            return r;
    }
    if (r == 0 && type != LINK_WANT_END)
        return link_fail(s->link, -EPROTO, "the receiver sent a frame of type %u among its wants", type);
    return r;
}

/* ---- files ---- */

/* Opens the entry's file. Return: a descriptor and *@has_holes, or the link's error. */
static int sender_open(struct sender *s, const struct pst_entry *entry, bool *has_holes)
{
    int fd = pst_source_open(&s->source, entry, has_holes);

    pst_assert(entry->kind == PST_ENTRY_FILE);
    if (fd < 0)
        return sender_fail(s, fd, entry);
    if (entry->bytes > PIECE_BYTES)
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return fd;
}

/* The file behind @fd was not written to while it was read. It is asked before the last of it goes out: with
 * that the receiver has a whole file. Return: 0 or the link's error. */
static int sender_check(struct sender *s, const struct pst_entry *entry, int fd)
{
    int r = pst_source_check(fd, entry);

    return r < 0 ? sender_fail(s, r, entry) : 0;
}

/* Puts the head of a piece, whose bytes, unless it is a hole, are put next. */
static int put_piece_head(struct sender *s, uint32_t entry, uint64_t at, uint32_t bytes, bool hole)
{
    static const struct pst_digest none;

    pst_assert(entry < s->m.count);
    pst_assert(bytes <= s->m.entries[entry].bytes);
    pst_assert(at <= s->m.entries[entry].bytes - bytes);
    if (PIECE_HEAD_BYTES + (hole ? 0 : bytes) > link_room(s->link) && link_send(s->link, LINK_DATA) < 0)
        return s->link->error;
    link_put_number(s->link, entry, 4);
    link_put_number(s->link, at, 8);
    link_put_number(s->link, bytes | (hole ? LINK_HOLE : 0), 4);
    link_put(s->link, none.bytes, sizeof(none.bytes));
    return 0;
}

/* A piece is put: its frame goes out once it is full. */
static int end_piece(struct sender *s, uint32_t bytes)
{
    pst_assert(s->link->out_bytes > 0);
    sender_progress(s, bytes);
    if (s->link->out_bytes < DATA_BYTES)
        return 0;
    return link_look(s->link) < 0 ? s->link->error : link_send(s->link, LINK_DATA);
}

/* Reads bytes of a file into the frame, behind their digest. @last: no other piece of the file follows. */
static int send_piece(struct sender *s, uint32_t index, int fd, uint64_t at, uint32_t bytes, bool last)
{
    const struct pst_entry *entry = &s->m.entries[index];
    struct pst_digest digest;
    uint8_t *data;
    int r;

    if (put_piece_head(s, index, at, bytes, false) < 0)
        return s->link->error;
    pst_assert(s->link->out_bytes >= PIECE_HEAD_BYTES);
    data = link_put_space(s->link, bytes);
    r = pst_read_at(fd, at, data, bytes);
    if (r < 0)
        return sender_fail(s, r, entry);
    if (last && sender_check(s, entry, fd) < 0)
        return s->link->error;
    pst_digest_of(s->link->digester, data, bytes, &digest);
    memcpy(data - sizeof(digest), &digest, sizeof(digest));
    return end_piece(s, bytes);
}

static int send_hole(struct sender *s, uint32_t index, int fd, uint64_t at, uint64_t end)
{
    const struct pst_entry *entry = &s->m.entries[index];
    int r = 0;

    pst_assert(end <= entry->bytes);
    pst_assert(at <= end);
    while (r == 0 && at < end) {
        uint32_t bytes = (uint32_t)pst_min(end - at, 1u << 30);

        if (at + bytes == entry->bytes)
            r = sender_check(s, entry, fd);
        if (r == 0)
            r = put_piece_head(s, index, at, bytes, true);
        if (r == 0)
            r = end_piece(s, bytes);
        at += bytes;
    }
    return r;
}

/* @last: no other bytes of the file follow. */
static int send_range(struct sender *s, uint32_t index, int fd, uint64_t at, uint64_t end, bool last)
{
    int r = 0;

    pst_assert(end <= s->m.entries[index].bytes);
    pst_assert(at <= end);
    while (r == 0 && at < end) {
        uint32_t bytes = (uint32_t)pst_min(end - at, PIECE_BYTES);

        r = send_piece(s, index, fd, at, bytes, last && at + bytes == end);
        at += bytes;
    }
    return r;
}

/* A file from its begin to its end, with its holes. */
static int send_whole(struct sender *s, uint32_t index)
{
    const struct pst_entry *entry = &s->m.entries[index];
    bool has_holes = false;
    pst_cleanup_close int fd = entry->bytes ? sender_open(s, entry, &has_holes) : -1;
    uint64_t at = 0;
    int r = 0;

    if (!entry->bytes) /* a piece without bytes stands for an empty file */
        return send_piece(s, index, -1, 0, 0, false);
    if (fd < 0)
        return fd;
    if (!has_holes) {
        r = send_range(s, index, fd, 0, entry->bytes, true);
        at = entry->bytes;
    }
    while (r == 0 && at < entry->bytes) {
        uint64_t begin, end;

        pst_source_next_data(fd, at, entry->bytes, &begin, &end);
        r = send_hole(s, index, fd, at, begin);
        if (r == 0)
            r = send_range(s, index, fd, begin, end, end == entry->bytes);
        at = end;
    }
    return r;
}

/* ---- files of which the receiver has an older version ---- */

static int listed_add(struct listed *list, uint32_t bytes)
{
    uint32_t room = list->room ? 2 * list->room : 256;
    uint32_t *grown;

    pst_assert(bytes > 0);
    pst_assert(list->count <= list->room);
    if (list->count == list->room) {
        grown = realloc(list->bytes, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        list->bytes = grown;
        list->room = room;
    }
    pst_assert(list->count < list->room);
    list->bytes[list->count++] = bytes;
    return 0;
}

struct listing {
    struct sender *s;
    struct listed *list;
};

static int send_chunk(void *ctx, uint64_t at, const uint8_t *data, size_t bytes)
{
    const struct listing *listing = ctx;
    struct link *link = listing->s->link;
    struct pst_digest digest;

    pst_assert(bytes > 0);
    (void)at;
    if (listed_add(listing->list, (uint32_t)bytes) < 0)
        return link_fail(link, -ENOMEM, "out of memory");
    if (link_room(link) < CHUNK_BYTES && link_send(link, LINK_CHUNKS) < 0)
        return link->error;
    if (link->out_bytes == 0) {
        link_put_number(link, listing->list->entry, 4);
        link_put_number(link, listing->list->by_content ? LINK_CHUNKS_BY_CONTENT : 0, 1);
    }
    pst_digest_of(link->digester, data, bytes, &digest);
    link_put_number(link, bytes, 4);
    link_put(link, digest.bytes, sizeof(digest.bytes));
    /* Not all at the end: the receiver sees that its peer works, however slow its disk is. */
    return link->out_bytes >= LIST_BYTES || link_is_due(link) ? link_send(link, LINK_CHUNKS) : 0;
}

/* Reads a file and lists its chunks. */
static int send_list(struct sender *s, struct listed *list)
{
    const struct pst_entry *entry = &s->m.entries[list->entry];
    bool has_holes;
    pst_cleanup_close int fd = sender_open(s, entry, &has_holes);
    struct listing listing = {s, list};
    int r = fd < 0 ? fd : pst_chunks_of(fd, entry->bytes, list->by_content, send_chunk, &listing);

    pst_assert(list->entry < s->m.count);
    if (r < 0)
        return s->link->error ? s->link->error : sender_fail(s, r, entry);
    r = sender_check(s, entry, fd); /* the receiver may have all of them */
    if (r == 0 && s->link->out_bytes)
        r = link_send(s->link, LINK_CHUNKS);
    if (r < 0)
        return r;
    link_put_number(s->link, list->entry, 4);
    link_put_number(s->link, LINK_CHUNKS_LAST | (list->by_content ? LINK_CHUNKS_BY_CONTENT : 0), 1);
    return link_send(s->link, LINK_CHUNKS);
}

/* The last bit that is set, or 0. */
static uint32_t last_needed(const struct listed *list, const uint8_t *bits)
{
    uint32_t last = list->count;

    while (last-- > 1 && !(bits[last / 8] >> last % 8 & 1))
        ;
    return last;
}

/* Sends the chunks of a file whose bits are set. */
static int send_needed(struct sender *s, const struct listed *list, const uint8_t *bits)
{
    const struct pst_entry *entry = &s->m.entries[list->entry];
    bool has_holes;
    pst_cleanup_close int fd = sender_open(s, entry, &has_holes);
    uint32_t last = last_needed(list, bits);
    uint64_t at = 0;
    int r = fd < 0 ? fd : 0;

    pst_assert(list->entry < s->m.count);
    for (uint32_t i = 0; r == 0 && i < list->count; i++) {
        if (bits[i / 8] >> i % 8 & 1)
            r = send_range(s, list->entry, fd, at, at + list->bytes[i], i == last);
        else
            sender_progress(s, list->bytes[i]);
        at += list->bytes[i];
    }
    if (r == 0 && s->link->out_bytes)
        r = link_send(s->link, LINK_DATA);
    return r;
}

/* Lists a file; its needs come behind those of the files that were listed before. */
static int send_listed(struct sender *s, uint32_t entry, bool by_content)
{
    struct listed *list = &s->ahead[s->ahead_count++];

    pst_assert(s->ahead_count <= AHEAD_FILES);
    *list = (struct listed){.entry = entry, .by_content = by_content};
    return send_list(s, list);
}

/* Takes the needs of a file that was listed, and sends what is needed. */
static int send_needs_of(struct sender *s, const struct listed *list)
{
    pst_cleanup_free uint8_t *bits = malloc(list->count / 8 + 1);
    struct pst_reader frame;
    enum link_type type;

    if (!bits)
        return link_fail(s->link, -ENOMEM, "out of memory");
    if (link_receive(s->link, LINK_NEED, &type, &frame) < 0)
        return s->link->error;
    if (pst_read_number(&frame, 4) != list->entry || frame.bad)
        return link_fail(s->link, -EPROTO, "the receiver needs what was not listed");
    if (frame.left == 0 && !list->by_content)
        return send_listed(s, list->entry, true);
    if (frame.left != (list->count + 7) / 8)
        return link_fail(s->link, -EPROTO, "the receiver needs other chunks than were listed");
    pst_assert(frame.left <= list->count / 8 + 1);
    pst_read_copy(&frame, bits, frame.left); /* the frame does not outlive what is sent */
    return send_needed(s, list, bits);
}

static int send_first_listed(struct sender *s)
{
    struct listed list = s->ahead[0];
    int r;

    pst_assert(s->ahead_count > 0);
    memmove(s->ahead, s->ahead + 1, --s->ahead_count * sizeof(*s->ahead));
    pst_assert(s->ahead_count < AHEAD_FILES);
    r = send_needs_of(s, &list);
    free(list.bytes);
    return r;
}

static bool sender_is_far_ahead(const struct sender *s)
{
    uint64_t chunks = 0;

    pst_assert(s->ahead_count <= AHEAD_FILES);
    for (uint32_t i = 0; i < s->ahead_count; i++)
        chunks += s->ahead[i].count;
    return s->ahead_count == AHEAD_FILES || chunks > AHEAD_CHUNKS;
}

static int send_deltas(struct sender *s)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < s->m.count; i++) {
        if (s->wants[i] != PST_ARRIVAL_DELTA)
            continue;
        while (r == 0 && sender_is_far_ahead(s))
            r = send_first_listed(s);
        if (r == 0)
            r = send_listed(s, i, false);
    }
    while (r == 0 && s->ahead_count > 0)
        r = send_first_listed(s);
    return r;
}

/* ---- all of it ---- */

static int send_files(struct sender *s)
{
    int r = send_deltas(s);

    for (uint32_t i = 0; r == 0 && i < s->m.count; i++) {
        if (s->wants[i] == PST_ARRIVAL_WHOLE)
            r = send_whole(s, i);
        else if (s->wants[i] == PST_ARRIVAL_HAS && s->m.entries[i].kind == PST_ENTRY_FILE)
            sender_progress(s, s->m.entries[i].bytes);
    }
    if (r == 0 && s->link->out_bytes)
        r = link_send(s->link, LINK_DATA);
    return r < 0 ? r : link_send(s->link, LINK_DONE);
}

static int sender_scans(void *arg)
{
    struct sender *s = arg;

    return pst_source_list(&s->source, &s->options->filters, &s->m, &s->odd, s->scan_fault);
}

static int sender_prepare(struct sender *s)
{
    int r;

    s->source.ended = &s->gone;
    r = carry_meanwhile(s->link, sender_scans, s, &s->gone);
    if (r < 0)
        return link_fail(s->link, r, "%s", s->scan_fault);
    pst_assert(s->m.count > 0);
    pst_assert(!s->wants);
    s->wants = calloc(s->m.count, sizeof(*s->wants));
    if (!s->wants)
        return link_fail(s->link, -ENOMEM, "out of memory");
    r = pst_source_open_root(&s->source, &s->m);
    return r < 0 ? sender_fail(s, r, &s->m.entries[0]) : 0;
}

static int receive_result(struct sender *s, struct pst_arrival_result *result)
{
    struct pst_reader frame;
    enum link_type type;
    int r = link_receive(s->link, LINK_RESULT, &type, &frame);

    if (r < 0)
        return r;
    result->files = pst_read_number(&frame, 8);
    result->bytes = pst_read_number(&frame, 8);
    result->moved = pst_read_number(&frame, 8);
    result->matched = pst_read_number(&frame, 8);
    result->left_out = s->odd;
    return frame.bad ? link_fail(s->link, -EPROTO, "the receiver's result is none") : 0;
}

int carry_send(struct link *link, struct carry_share *share, const struct pst_carry_place *from,
               const struct pst_carry_options *options, struct pst_arrival_result *result)
{
    struct sender s = {
        .link = link,
        .source = {.folder_fd = from->folder_fd, .root_fd = -1, .leaf = from->leaf, .munged = from->munged},
        .options = options};
    int r = carry_share_list(share, link);

    if (r == 0) {
        r = sender_prepare(&s);
        carry_share_listed(share, &s.m);
    }
    if (r == 0)
        r = carry_send_entries(link, &s.m);
    if (r == 0)
        r = receive_wants(&s);
    if (r == 0)
        r = send_files(&s);
    if (r == 0)
        r = receive_result(&s, result);
    for (uint32_t i = 0; i < s.ahead_count; i++)
        free(s.ahead[i].bytes);
    pst_close_fd(&s.source.root_fd);
    free(s.wants);
    pst_manifest_fini(&s.m);
    return r;
}
