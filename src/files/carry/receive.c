/* SPDX-License-Identifier: Apache-2.0 */
/*
 * receive.c: the side to which a tree comes. It takes the manifest, says which files it wants, takes over
 * chunks of older versions, and lets bytes in that are what the sender's digest says.
 */
#include "files/carry/carry_priv.h"

#include <pthread.h>

_Static_assert(4 + PST_WANTED_MAX / 8 <= (int)LINK_FRAME_BYTES_MAX, "a frame has room for a file's needs");

struct receiver {
    struct link *link;
    struct carry_share *share;
    const struct pst_carry_options *options;
    struct pst_manifest m;
    struct pst_arrival *arrival;
    struct pst_arrival_result *result;
    uint32_t listing; /* the entry whose chunks are being listed; UINT32_MAX: none */
    bool by_content;
    pthread_mutex_t lock;     /* of what threads that read an older version share: the rest */
    struct pst_wanted wanted; /* its chunks */
    uint64_t progress;
    int take_error;   /* of the arrival, while an older version was read */
    atomic_bool gone; /* the sender, meanwhile */
};

static int receiver_fail(struct receiver *r, int error)
{
    return link_fail(r->link, error, "%s", pst_arrival_fault(r->arrival));
}

static void receiver_progress(struct receiver *r, uint64_t bytes)
{
    r->progress += bytes;
    if (r->options->progress)
        r->options->progress(r->options->ctx, r->progress, r->m.file_bytes);
}

/* ---- wants ---- */

static int send_wants(struct receiver *r)
{
    int error = 0;

    pst_assert(r->link->out_bytes == 0);
    for (uint32_t i = 0; error == 0 && i < r->m.count; i++) {
        enum pst_arrival_need need = pst_arrival_need(r->arrival, i);

        if (need == PST_ARRIVAL_HAS) {
            receiver_progress(r, r->m.entries[i].bytes);
            continue;
        }
        if (link_room(r->link) < 5)
            error = link_send(r->link, LINK_WANT);
        if (error < 0)
            break;
        link_put_number(r->link, i, 4);
        link_put_number(r->link, need, 1);
    }
    if (error == 0 && r->link->out_bytes)
        error = link_send(r->link, LINK_WANT);
    return error < 0 ? error : link_send(r->link, LINK_WANT_END);
}

/* ---- older versions ---- */

enum { READ_CHUNKS = PST_READ_BYTES / PST_CHUNK_BYTES };
_Static_assert(PST_READ_BYTES % PST_CHUNK_BYTES == 0, "a turn cuts no chunk");

/* A thread that reads an older version. */
struct old_reader {
    struct receiver *r;
    struct pst_digester *digester;
    /* The chunk that it is at, borrowed. */
    const uint8_t *data;
    size_t bytes;
};

/* With the receiver's lock. */
static int old_chunk_take(void *ctx, uint64_t at)
{
    const struct old_reader *reader = ctx;
    struct receiver *r = reader->r;
    int error;

    pst_assert(reader->bytes > 0);
    pst_assert(r->listing < r->m.count);
    error = pst_arrival_take(r->arrival, r->listing, at, reader->data, reader->bytes);
    receiver_progress(r, reader->bytes);
    if (error < 0)
        r->take_error = error;
    return error;
}

/*
 * Takes what is wanted of a turn's chunks, or of one that was cut by content. The bytes that were looked at
 * are those that are written, whatever others do to the file meanwhile. One thread writes while the other one
 * reads: the kernel lets in one write of a file, and what waits for it there spins.
 */
static int old_chunks_look(void *ctx, uint64_t at, const uint8_t *data, size_t bytes)
{
    struct old_reader *reader = ctx;
    struct receiver *r = reader->r;
    size_t step = r->by_content ? bytes : PST_CHUNK_BYTES;
    struct pst_digest digests[READ_CHUNKS];
    int error = 0;

    pst_assert(reader->digester);
    pst_assert(bytes > 0 && bytes <= (r->by_content ? (size_t)PST_CHUNK_BYTES_MAX : (size_t)PST_READ_BYTES));
    (void)at;
    if (atomic_load(&r->gone))
        return -ECANCELED;
    for (size_t cut = 0; cut < bytes; cut += step)
        pst_digest_of(reader->digester, data + cut, pst_min(step, bytes - cut), &digests[cut / step]);
    pthread_mutex_lock(&r->lock);
    for (size_t cut = 0; error == 0 && cut < bytes; cut += step) {
        reader->data = data + cut;
        reader->bytes = pst_min(step, bytes - cut);
        error = pst_wanted_take(&r->wanted, &digests[cut / step], (uint32_t)reader->bytes, old_chunk_take,
                                reader);
    }
    pthread_mutex_unlock(&r->lock);
    return error;
}

/* One that is not there, or cannot be read, has no chunks. */
static void read_older(struct receiver *r, enum pst_arrival_older which,
                       void *const readers[PST_READ_THREADS])
{
    uint64_t bytes = 0;
    pst_cleanup_close int fd = pst_arrival_open_old(r->arrival, r->listing, which, &bytes);

    pst_assert(r->listing < r->m.count);
    if (fd < 0)
        return;
    if (r->by_content)
        pst_chunks_of(fd, bytes, true, old_chunks_look, readers[0]);
    else
        pst_read_in_turns(fd, bytes, old_chunks_look, readers);
}

/* Takes what is wanted of the file's older versions. Return: 0, the arrival's error, -ENOMEM. */
static int take_older(void *arg)
{
    struct receiver *r = arg;
    struct old_reader readers[PST_READ_THREADS] = {{.r = r}};
    void *ctxs[PST_READ_THREADS];
    bool whole = true;

    for (size_t i = 0; i < PST_READ_THREADS; i++) {
        readers[i] = (struct old_reader){.r = r, .digester = pst_digester_copy(r->link->digester)};
        ctxs[i] = &readers[i];
        whole = whole && readers[i].digester;
    }
    for (int which = 0; whole && which < PST_ARRIVAL_OLDER && r->take_error == 0; which++) {
        pst_assert(r->wanted.taken <= r->wanted.count);
        if (r->wanted.taken == r->wanted.count)
            break;
        read_older(r, (enum pst_arrival_older)which, ctxs);
    }
    for (size_t i = 0; i < PST_READ_THREADS; i++)
        pst_digester_close(readers[i].digester);
    return whole ? r->take_error : -ENOMEM;
}

/* An older version may be much larger than the file. Return: 0 or the link's error. */
static int receiver_takes_older(struct receiver *r)
{
    int error = carry_meanwhile(r->link, take_older, r, &r->gone);

    pst_assert(r->take_error <= 0);
    if (r->take_error)
        return receiver_fail(r, r->take_error);
    return error < 0 ? link_fail(r->link, error, "out of memory") : r->link->error;
}

/* What it has of manifests and lists counts. Return: 0 or -EBUSY. */
static int receiver_share(struct receiver *r)
{
    return carry_share_set(r->share, pst_manifest_bytes(&r->m) + pst_wanted_memory(&r->wanted));
}

static void receiver_end_list(struct receiver *r)
{
    pst_wanted_fini(&r->wanted);
    pst_assert(receiver_share(r) == 0);
    r->listing = UINT32_MAX;
}

/* Few chunks were found in their places: bytes may have moved, so the file is to be listed by content. */
static int send_need_of_content(struct receiver *r)
{
    int error = pst_arrival_restart(r->arrival, r->listing);

    pst_assert(!r->by_content);
    pst_assert(r->progress >= r->wanted.taken_bytes);
    r->progress -= r->wanted.taken_bytes;
    receiver_end_list(r);
    return error < 0 ? receiver_fail(r, error) : link_send(r->link, LINK_NEED);
}

/* All chunks of a file are listed: answers which of them are needed. */
static int send_need(struct receiver *r)
{
    struct pst_wanted *wanted = &r->wanted;

    pst_assert(r->listing < r->m.count);
    pst_assert(wanted->taken <= wanted->count);
    if (wanted->bytes != r->m.entries[r->listing].bytes)
        return link_fail(r->link, -EPROTO, "the sender's chunks are not the file that it listed");
    if (pst_wanted_sort(wanted) < 0)
        return link_fail(r->link, -ENOMEM, "out of memory");
    if (receiver_takes_older(r) < 0)
        return r->link->error;
    link_put_number(r->link, r->listing, 4);
    if (!r->by_content && wanted->taken < wanted->count / 2)
        return send_need_of_content(r);
    pst_arrival_forget_old(r->arrival, r->listing);
    pst_wanted_bits(wanted, link_put_space(r->link, (wanted->count + 7) / 8));
    receiver_end_list(r);
    return link_send(r->link, LINK_NEED);
}

static int take_chunks(struct receiver *r, struct pst_reader *frame)
{
    uint32_t entry = (uint32_t)pst_read_number(frame, 4);
    uint64_t flags = pst_read_number(frame, 1);
    bool by_content = flags & LINK_CHUNKS_BY_CONTENT;

    if (frame->bad || entry >= r->m.count || pst_arrival_need(r->arrival, entry) != PST_ARRIVAL_DELTA ||
        (r->listing != UINT32_MAX && (r->listing != entry || r->by_content != by_content)))
        return link_fail(r->link, -EPROTO, "the sender lists chunks that nobody asked for");
    if (frame->left == 0 && !(flags & LINK_CHUNKS_LAST))
        return link_fail(r->link, -EPROTO, "the sender lists chunks, and lists none");
    r->listing = entry;
    r->by_content = by_content;
    while (frame->left) {
        uint32_t bytes = (uint32_t)pst_read_number(frame, 4);
        struct pst_digest digest = {{0}};
        int error;

        pst_read_copy(frame, digest.bytes, sizeof(digest.bytes));
        error = frame->bad ? -EPROTO : pst_wanted_add(&r->wanted, &digest, bytes, r->m.entries[entry].bytes);
        if (error < 0)
            return link_fail(r->link, error, "the sender's list of chunks is none");
    }
    if (receiver_share(r) < 0)
        return link_fail(r->link, -EBUSY, "the server has too many lists of chunks underway");
    return flags & LINK_CHUNKS_LAST ? send_need(r) : 0;
}

/* ---- data ---- */

/* Bytes of a file. */
struct piece {
    struct receiver *r;
    uint32_t entry, bytes;
    uint64_t at;
    const uint8_t *data; /* NULL: a hole */
};

static int piece_arrives(void *arg)
{
    const struct piece *piece = arg;
    struct pst_arrival *a = piece->r->arrival;

    pst_assert(piece->entry < piece->r->m.count);
    return piece->bytes ? pst_arrival_write(a, piece->entry, piece->at, piece->data, piece->bytes)
                        : pst_arrival_empty(a, piece->entry);
}

static int take_piece(struct receiver *r, struct pst_reader *frame)
{
    uint32_t entry = (uint32_t)pst_read_number(frame, 4);
    uint64_t at = pst_read_number(frame, 8);
    uint32_t bytes = (uint32_t)pst_read_number(frame, 4);
    bool hole = bytes & LINK_HOLE;
    struct pst_digest said = {{0}}, digest;
    struct piece piece;
    const uint8_t *data;
    int error;

    bytes &= ~LINK_HOLE;
    pst_read_copy(frame, said.bytes, sizeof(said.bytes));
    data = hole ? NULL : pst_read_bytes(frame, bytes);
    if (frame->bad || entry >= r->m.count || r->m.entries[entry].kind != PST_ENTRY_FILE ||
        (bytes == 0 && (hole || r->m.entries[entry].bytes)))
        return link_fail(r->link, -EPROTO, "the sender's data is of no file that was listed");
    if (!hole) {
        pst_digest_of(r->link->digester, data, bytes, &digest);
        if (!pst_digest_equal(&said, &digest))
            return link_fail(r->link, -EBADMSG, "bytes of %.150s are not what the sender says",
                             r->m.entries[entry].path);
    }
    piece = (struct piece){r, entry, bytes, at, data};
    error = pst_arrival_is_long(r->arrival, entry, bytes)
                ? carry_meanwhile(r->link, piece_arrives, &piece, NULL)
                : piece_arrives(&piece);
    receiver_progress(r, bytes);
    return error < 0 ? receiver_fail(r, error) : 0;
}

static int receive_files(struct receiver *r)
{
    struct pst_reader frame;
    enum link_type type;
    int error;

    while ((error = link_receive(r->link, 0, &type, &frame)) == 0 && type != LINK_DONE) {
        if (type == LINK_CHUNKS)
            error = take_chunks(r, &frame);
        else if (type != LINK_DATA || frame.left == 0)
            error = link_fail(r->link, -EPROTO,
                              "the sender sent an empty frame, or one of type %u, among its files", type);
        while (type == LINK_DATA && error == 0 && frame.left)
            error = take_piece(r, &frame);
        if (error == 0)
            error = link_alive(r->link);
        if (error < 0)
            break;
    }
    return error;
}

/* ---- all of it ---- */

static int send_result(struct receiver *r, const struct pst_arrival_result *result)
{
    link_put_number(r->link, result->files, 8);
    link_put_number(r->link, result->bytes, 8);
    link_put_number(r->link, result->moved, 8);
    link_put_number(r->link, result->matched, 8);
    return link_send(r->link, LINK_RESULT);
}

/* While another arrival is waited for. */
static int receiver_waits(void *ctx)
{
    struct link *link = ((struct receiver *)ctx)->link;

    return link_alive(link) < 0 || link_look(link) < 0 ? link->error : 0;
}

/* Return: 0 or the link's error. */
static int open_arrival(struct receiver *r, const struct pst_carry_place *to)
{
    char fault[PST_FAULT_BYTES] = "";
    uint32_t flags = r->options->flags | (to->munged ? PST_ARRIVAL_MUNGE : 0);
    int error =
        pst_arrival_open_in_turn(to->folder_fd, to->leaf, flags, &r->arrival, receiver_waits, r, fault);

    pst_assert(error < 0 || r->arrival);
    if (r->link->error)
        return r->link->error;
    return error < 0 ? link_fail(r->link, error, "%s", fault) : 0;
}

static int arrival_begins(void *arg)
{
    struct receiver *r = arg;

    pst_assert(r->arrival);
    return pst_arrival_begin(r->arrival, &r->m);
}

static int arrival_ends(void *arg)
{
    struct receiver *r = arg;

    pst_assert(r->arrival);
    return pst_arrival_end(r->arrival, r->result);
}

int carry_receive(struct link *link, struct carry_share *share, const struct pst_carry_place *to,
                  const struct pst_carry_options *options, struct pst_arrival_result *result)
{
    struct receiver r = {.link = link,
                         .share = share,
                         .options = options,
                         .result = result,
                         .listing = UINT32_MAX,
                         .lock = PTHREAD_MUTEX_INITIALIZER};
    int error = carry_receive_entries(link, share, &r.m);

    if (error == 0)
        error = open_arrival(&r, to);
    if (error == 0 && (error = carry_meanwhile(link, arrival_begins, &r, NULL)) < 0)
        receiver_fail(&r, error);
    if (error == 0)
        error = send_wants(&r);
    if (error == 0)
        error = receive_files(&r);
    if (error == 0 && (error = carry_meanwhile(link, arrival_ends, &r, NULL)) < 0)
        receiver_fail(&r, error);
    if (error == 0)
        error = send_result(&r, result);
    pst_arrival_close(r.arrival);
    pst_wanted_fini(&r.wanted);
    pst_manifest_fini(&r.m);
    return error;
}
