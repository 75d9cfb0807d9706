/* view.c: views, and views as bytes. */
#include "directory/view.h"

#include "base/reader.h"

enum {
    VIEW_MAGIC = 0x76747370, /* "pstv" */
    VIEW_FORMAT = 1,
    MEMBER_GONE = 1, /* flags */
    MEMBER_DRAINS = 2,
    SLOT_LOST = 1, /* and how many are sparse, in the bits above */
    SLOT_SPARSE = 2,
    HEAD_BYTES = 44,
    SLOT_BYTES_MAX = 19 + 2 * PST_VIEW_COPIES_MAX,
    MEMBER_BYTES_MAX = 62 + 2 * PST_VIEW_ADDRESS_BYTES + PST_VIEW_TAGS_BYTES,
    PREFIX_BYTES_MAX = 3 + PST_VIEW_PREFIX_BYTES_MAX,
};

int pst_view_open(uint32_t members_max, uint64_t seed, struct pst_view **out)
{
    struct pst_view *view;

    pst_assert(members_max >= 1 && members_max <= PST_VIEW_MEMBERS_MAX);
    view = calloc(1, sizeof(*view) + members_max * sizeof(view->members[0]));
    if (!view)
        return -ENOMEM;
    view->members_max = members_max;
    view->epoch_next = 1;
    view->seed = seed;
    *out = view;
    return 0;
}

struct pst_view *pst_view_close(struct pst_view *view)
{
    free(view);
    return NULL;
}

void pst_view_copy(struct pst_view *to, const struct pst_view *from)
{
    pst_assert(to->members_max == from->members_max);
    memcpy(to, from, sizeof(*to) + from->members_max * sizeof(from->members[0]));
}

uint16_t pst_view_find(const struct pst_view *view, const struct pst_id *id)
{
    for (uint32_t i = 0; i < view->members_max; i++)
        if (view->members[i].epoch && pst_id_equal(&view->members[i].id, id))
            return (uint16_t)i;
    return PST_VIEW_NONE;
}

const struct pst_view_prefix *pst_view_prefix_of(const struct pst_view *view, struct pst_bytes key)
{
    const struct pst_view_prefix *longest = NULL;

    for (uint32_t i = 0; i < view->prefix_count; i++) {
        const struct pst_view_prefix *prefix = &view->prefixes[i];

        if (pst_bytes_begin(key, (struct pst_bytes){prefix->text, prefix->bytes}) &&
            (!longest || prefix->bytes > longest->bytes))
            longest = prefix;
    }
    return longest;
}

uint32_t pst_view_replicas(const struct pst_view *view)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < view->prefix_count; i++)
        if (view->prefixes[i].placement == PST_PLACE_HOME)
            most = (uint32_t)pst_max(most, view->prefixes[i].replicas);
    return most;
}

int pst_view_copy_at(const struct pst_view_slot *slot, uint16_t member)
{
    for (int i = 0; i < slot->copy_count; i++)
        if (slot->copies[i] == member)
            return i;
    return -1;
}

/* ---- to bytes ---- */

static void put_number(uint8_t **at, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(number >> 8 * i);
}

static void put_bytes(uint8_t **at, const void *data, size_t bytes)
{
    memcpy(*at, data, bytes);
    *at += bytes;
}

static void put_text(uint8_t **at, const char *text, size_t bytes)
{
    put_number(at, bytes, 1);
    put_bytes(at, text, bytes);
}

static uint32_t member_count(const struct pst_view *view)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < view->members_max; i++)
        count += view->members[i].epoch != 0;
    return count;
}

static void put_head(uint8_t **at, const struct pst_view *view)
{
    put_number(at, VIEW_MAGIC, 4);
    put_number(at, VIEW_FORMAT, 2);
    put_number(at, view->prefix_count, 2);
    put_number(at, member_count(view), 4);
    put_number(at, view->version, 8);
    put_number(at, view->term, 8);
    put_number(at, view->epoch_next, 8);
    put_number(at, view->seed, 8);
}

static void put_member(uint8_t **at, const struct pst_view_member *member, uint32_t number)
{
    put_number(at, number, 2);
    put_number(at, (member->gone ? MEMBER_GONE : 0) | (member->drains ? MEMBER_DRAINS : 0), 1);
    put_bytes(at, &member->id, sizeof(member->id));
    put_bytes(at, &member->host, sizeof(member->host));
    put_number(at, member->epoch, 8);
    put_number(at, member->start, 8);
    put_number(at, member->page_bytes, 8);
    put_text(at, member->address, strlen(member->address));
    put_text(at, member->unix_path, strlen(member->unix_path));
    put_text(at, member->tags, strlen(member->tags));
}

static void put_slot(uint8_t **at, const struct pst_view_slot *slot)
{
    put_number(at, slot->epoch, 8);
    put_number(at, slot->base, 8);
    put_number(at, slot->state, 1);
    put_number(at, (slot->lost ? SLOT_LOST : 0) | slot->sparse * SLOT_SPARSE, 1);
    put_number(at, slot->copy_count, 1);
    for (uint32_t i = 0; i < slot->copy_count; i++)
        put_number(at, slot->copies[i], 2);
}

size_t pst_view_bytes_max(uint32_t members_max)
{
    return HEAD_BYTES + (size_t)PST_VIEW_PREFIXES_MAX * PREFIX_BYTES_MAX +
           (size_t)members_max * MEMBER_BYTES_MAX + (size_t)PST_SLOTS * SLOT_BYTES_MAX + sizeof(uint32_t);
}

size_t pst_view_encode(const struct pst_view *view, uint8_t *to, size_t cap)
{
    uint8_t *at = to;

    if (cap < pst_view_bytes_max(view->members_max))
        return 0;
    put_head(&at, view);
    pst_assert(at - to == HEAD_BYTES);
    for (uint32_t i = 0; i < view->prefix_count; i++) {
        put_number(&at, view->prefixes[i].placement, 1);
        put_number(&at, view->prefixes[i].replicas, 1);
        put_text(&at, view->prefixes[i].text, view->prefixes[i].bytes);
    }
    for (uint32_t i = 0; i < view->members_max; i++)
        if (view->members[i].epoch)
            put_member(&at, &view->members[i], i);
    for (uint32_t i = 0; i < PST_SLOTS; i++)
        put_slot(&at, &view->slots[i]);
    put_number(&at, pst_crc32c(0, to, (size_t)(at - to)), 4);
    pst_assert((size_t)(at - to) <= cap);
    return (size_t)(at - to);
}

/* ---- from bytes ---- */

/* A number that may be @most. */
static uint64_t take_below(struct pst_reader *in, size_t bytes, uint64_t most)
{
    uint64_t number = pst_read_number(in, bytes);

    in->bad |= number > most;
    return in->bad ? 0 : number;
}

/* Text without a NUL in it, which gets one. */
static void take_text(struct pst_reader *in, char *to, size_t cap)
{
    size_t bytes = take_below(in, 1, cap - 1);
    const uint8_t *at = pst_read_bytes(in, bytes);

    if (!at)
        return;
    in->bad |= memchr(at, 0, bytes) != NULL;
    memcpy(to, at, bytes);
}

static struct pst_bytes prefix_text(const struct pst_view_prefix *prefix)
{
    return (struct pst_bytes){prefix->text, prefix->bytes};
}

static void take_prefix(struct pst_reader *in, struct pst_view *view, uint32_t at)
{
    struct pst_view_prefix *prefix = &view->prefixes[at];

    prefix->placement = (uint8_t)take_below(in, 1, PST_PLACE_HOME);
    prefix->replicas = (uint8_t)take_below(in, 1, PST_VIEW_COPIES_MAX);
    prefix->bytes = (uint8_t)pst_read_number(in, 1);
    pst_read_copy(in, prefix->text, prefix->bytes);
    in->bad |= prefix->replicas == 0;
    in->bad |= at > 0 && pst_bytes_compare(prefix_text(prefix - 1), prefix_text(prefix)) >= 0;
}

/* Members come in the order of their numbers, from @least on; *@large: this one's goes beyond the bound.
 * Return: the least of the next. */
static uint32_t take_member(struct pst_reader *in, struct pst_view *view, uint32_t least, bool *large)
{
    uint32_t number = (uint32_t)pst_read_number(in, 2);
    struct pst_view_member *member = &view->members[number];
    uint64_t flags;

    *large = number >= view->members_max;
    in->bad |= number < least || *large;
    if (in->bad)
        return least;
    flags = take_below(in, 1, MEMBER_GONE | MEMBER_DRAINS);
    member->gone = flags & MEMBER_GONE;
    member->drains = flags & MEMBER_DRAINS;
    pst_read_copy(in, &member->id, sizeof(member->id));
    pst_read_copy(in, &member->host, sizeof(member->host));
    in->bad |= pst_view_find(view, &member->id) != PST_VIEW_NONE;
    member->epoch = take_below(in, 8, view->epoch_next - 1);
    member->start = pst_read_number(in, 8);
    member->page_bytes = pst_read_number(in, 8);
    take_text(in, member->address, sizeof(member->address));
    take_text(in, member->unix_path, sizeof(member->unix_path));
    take_text(in, member->tags, sizeof(member->tags));
    in->bad |= member->epoch == 0;
    return number + 1;
}

static bool slot_is_good(const struct pst_view *view, const struct pst_view_slot *slot)
{
    if (slot->base > slot->epoch || (slot->state == PST_VIEW_EMPTY) != (slot->copy_count == 0) ||
        slot->sparse > (slot->state == PST_VIEW_INCOMPLETE ? slot->copy_count : 0))
        return false;
    for (uint32_t i = 0; i < slot->copy_count; i++) {
        const struct pst_view_member *member;

        if (slot->copies[i] >= view->members_max)
            return false;
        member = &view->members[slot->copies[i]];
        if (!member->epoch || pst_view_copy_at(slot, slot->copies[i]) != (int)i)
            return false;
        if (member->gone && slot->state == PST_VIEW_SERVED)
            return false;
    }
    return true;
}

static void take_slot(struct pst_reader *in, const struct pst_view *view, struct pst_view_slot *slot)
{
    uint64_t flags;

    slot->epoch = pst_read_number(in, 8);
    slot->base = pst_read_number(in, 8);
    slot->state = (uint8_t)take_below(in, 1, PST_VIEW_INCOMPLETE);
    flags = take_below(in, 1, SLOT_LOST + PST_VIEW_COPIES_MAX * SLOT_SPARSE);
    slot->lost = flags & SLOT_LOST;
    slot->sparse = (uint8_t)(flags / SLOT_SPARSE);
    slot->copy_count = (uint8_t)take_below(in, 1, PST_VIEW_COPIES_MAX);
    for (uint32_t i = 0; i < slot->copy_count; i++)
        slot->copies[i] = (uint16_t)pst_read_number(in, 2);
    in->bad |= !slot_is_good(view, slot);
}

static void take_view(struct pst_reader *in, uint32_t prefixes, uint32_t members, struct pst_view *view,
                      bool *large)
{
    uint32_t least = 0;

    view->version = pst_read_number(in, 8);
    view->term = pst_read_number(in, 8);
    view->epoch_next = pst_read_number(in, 8);
    view->seed = pst_read_number(in, 8);
    view->prefix_count = prefixes;
    in->bad |= view->epoch_next == 0 || prefixes > PST_VIEW_PREFIXES_MAX;
    for (uint32_t i = 0; i < prefixes && !in->bad; i++)
        take_prefix(in, view, i);
    for (uint32_t i = 0; i < members && !in->bad; i++)
        least = take_member(in, view, least, large);
    for (uint32_t i = 0; i < PST_SLOTS && !in->bad; i++)
        take_slot(in, view, &view->slots[i]);
}

int pst_view_decode(struct pst_bytes from, uint32_t members_max, struct pst_view **out)
{
    struct pst_reader in = {.at = from.data, .left = from.len};
    uint32_t prefixes, members, crc;
    bool large = false;
    struct pst_view *view;
    int r;

    if (from.len < HEAD_BYTES + sizeof(crc) || pst_read_number(&in, 4) != VIEW_MAGIC)
        return -EBADMSG;
    if (pst_read_number(&in, 2) != VIEW_FORMAT)
        return -EPROTONOSUPPORT;
    in.left -= sizeof(crc);
    crc = (uint32_t)pst_read_number(&(struct pst_reader){.at = in.at + in.left, .left = sizeof(crc)},
                                    sizeof(crc));
    if (pst_crc32c(0, from.data, from.len - sizeof(crc)) != crc)
        return -EBADMSG;
    prefixes = (uint32_t)pst_read_number(&in, 2);
    members = (uint32_t)pst_read_number(&in, 4);
    r = pst_view_open(members_max, 0, &view);
    if (r < 0)
        return r;
    take_view(&in, prefixes, members, view, &large);
    if (in.bad || in.left > 0) {
        pst_view_close(view);
        return large ? -E2BIG : -EBADMSG;
    }
    *out = view;
    return 0;
}
