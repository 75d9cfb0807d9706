/*
 * copies.c: who has a slot. A primary is displaced only when all leases that it was granted have run out, by
 * a copy that has all that it acknowledged; and it gets no lease before the view that says so is in effect.
 */
#include "directory/directory_priv.h"

enum { DEALT_PER_TICK = 512 }; /* slots */

bool copy_is_fresh(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    return member_stays(d, member) && !member_lease_is_over(d, member, now_ns);
}

/* The place of a fresh copy besides @but; -1: there is none. */
static int fresh_copy(const struct pst_directory *d, const struct pst_view_slot *slot, uint16_t but,
                      uint64_t now_ns)
{
    for (int i = 0; i < slot->copy_count; i++)
        if (slot->copies[i] != but && copy_is_fresh(d, slot->copies[i], now_ns))
            return i;
    return -1;
}

static bool is_sparse(const struct pst_view_slot *slot, int at)
{
    return at >= slot->copy_count - slot->sparse;
}

static void take_out(struct pst_view_slot *slot, int at)
{
    pst_assert(at >= 0 && at < slot->copy_count);
    slot->sparse -= is_sparse(slot, at);
    slot->copy_count--;
    memmove(&slot->copies[at], &slot->copies[at + 1], (size_t)(slot->copy_count - at) * sizeof(uint16_t));
    slot->copies[slot->copy_count] = 0; /* so that equal slots are equal bytes */
}

static void to_front(struct pst_view_slot *slot, int at)
{
    uint16_t member = slot->copies[at];

    memmove(&slot->copies[1], &slot->copies[0], (size_t)at * sizeof(uint16_t));
    slot->copies[0] = member;
}

/* The slot as it is to be, in the draft: the next epoch, and its former primary waits for that view. */
static void write_slot(struct pst_directory *d, uint32_t number, struct pst_view_slot next)
{
    struct pst_view *draft = directory_draft(d);
    struct pst_view_slot *slot = &draft->slots[number];
    bool served = slot->state == PST_VIEW_SERVED;

    pst_assert((next.state == PST_VIEW_EMPTY) == (next.copy_count == 0));
    next.epoch = slot->epoch + 1;
    if (served && (next.state != PST_VIEW_SERVED || next.copies[0] != slot->copies[0]))
        d->members[slot->copies[0]].lease_version = draft->version;
    d->counters.promotions += served && next.state == PST_VIEW_SERVED && next.copies[0] != slot->copies[0];
    d->counters.slots_incomplete +=
        slot->state != next.state && next.state == PST_VIEW_INCOMPLETE && !pst_view_slot_dealt(&next);
    *slot = next;
}

static void lose_slot(struct pst_directory *d, uint32_t number)
{
    write_slot(d, number, (struct pst_view_slot){.base = d->draft->slots[number].base, .lost = true});
    d->counters.slots_lost++;
}

/* It was not taken: nothing is lost with it. */
static void take_back(struct pst_directory *d, uint32_t number)
{
    const struct pst_view_slot *slot = &d->draft->slots[number];

    write_slot(d, number, (struct pst_view_slot){.base = slot->base, .lost = slot->lost});
}

/* Nobody serves. The copy at @at does from now on, with those others that are members; or alone, if it has
 * but what was durable. */
static void revive_slot(struct pst_directory *d, uint32_t number, int at)
{
    struct pst_view_slot next = d->draft->slots[number];
    uint16_t member = next.copies[at];
    bool sparse = is_sparse(&next, at);

    for (int i = next.copy_count - 1; i >= 0; i--)
        if (next.copies[i] != member &&
            (sparse || is_sparse(&next, i) || d->draft->members[next.copies[i]].gone))
            take_out(&next, i);
    to_front(&next, pst_view_copy_at(&next, member));
    next.sparse = 0;
    next.lost |= sparse;
    next.state = PST_VIEW_SERVED;
    write_slot(d, number, next);
    d->counters.slots_recovered += sparse;
}

/* ---- ends and returns ---- */

/* Another copy is there: the slot goes on without @at. */
static void go_on_without(struct pst_directory *d, uint32_t number, int at, int fresh)
{
    struct pst_view_slot next = d->draft->slots[number];
    uint16_t heir = next.copies[fresh];

    take_out(&next, at);
    if (at == 0 && next.state == PST_VIEW_SERVED)
        to_front(&next, pst_view_copy_at(&next, heir));
    write_slot(d, number, next);
}

/* The primary is silent: the copy at @at serves. The other stays a copy until its successor has it dropped,
 * which shows that this one lives: of two, one slow and one dead, either may be it. */
static void take_over(struct pst_directory *d, uint32_t number, int at)
{
    struct pst_view_slot next = d->draft->slots[number];

    to_front(&next, at);
    directory_draft(d)->slots[number].epoch++; /* one more: it was not handed over, and is known by that */
    write_slot(d, number, next);
}

bool copies_leave(struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    bool waits = false;

    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = &d->draft->slots[i];
        int at = pst_view_copy_at(slot, member), fresh = fresh_copy(d, slot, member, now_ns);

        if (at < 0)
            continue;
        if (slot->state == PST_VIEW_SERVED && fresh >= 0) {
            go_on_without(d, i, at, fresh);
            continue;
        }
        if (pst_view_slot_dealt(slot)) {
            take_back(d, i);
            continue;
        }
        waits = true;
        if (slot->state == PST_VIEW_SERVED) {
            struct pst_view_slot next = *slot;

            next.state = PST_VIEW_INCOMPLETE;
            write_slot(d, i, next);
            d->incomplete_ns[i] = now_ns;
        }
    }
    return waits;
}

static void leave_behind(struct pst_directory *d, uint32_t number, int at, uint64_t now_ns)
{
    struct pst_view_slot next = d->draft->slots[number];

    if (next.copy_count == 1) {
        lose_slot(d, number);
        return;
    }
    take_out(&next, at);
    if (next.state == PST_VIEW_SERVED)
        d->incomplete_ns[number] = now_ns;
    next.state = PST_VIEW_INCOMPLETE;
    write_slot(d, number, next);
}

/* It has but what was durable: others may have more, and it waits for them behind those. */
static void wait_behind(struct pst_directory *d, uint32_t number, int at, uint64_t now_ns)
{
    struct pst_view_slot next = d->draft->slots[number];
    uint16_t member = next.copies[at];

    if (next.state == PST_VIEW_SERVED)
        d->incomplete_ns[number] = now_ns;
    next.state = PST_VIEW_INCOMPLETE;
    take_out(&next, at);
    next.copies[next.copy_count++] = member;
    next.sparse++;
    write_slot(d, number, next);
}

bool copies_are_told(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    uint64_t lease_ns = (d->settings.lease_ms + d->settings.lease_margin_ms) * NS_PER_MS;

    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = &d->draft->slots[i];
        bool fresh = false, heard = false;

        for (int at = 0; at < slot->copy_count && pst_view_copy_at(slot, member) >= 0; at++) {
            bool lives = slot->copies[at] != member && copy_is_fresh(d, slot->copies[at], now_ns);

            fresh |= lives;
            heard |= lives && d->members[slot->copies[at]].heard_ns > d->members[member].heard_ns + lease_ns;
        }
        if (slot->state == PST_VIEW_SERVED && fresh && !heard)
            return false;
    }
    return true;
}

void copies_return(struct pst_directory *d, uint16_t member, enum kept kept, uint64_t now_ns)
{
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = &d->draft->slots[i];
        int at = pst_view_copy_at(slot, member), fresh = fresh_copy(d, slot, member, now_ns);

        if (at < 0)
            continue;
        if (slot->state == PST_VIEW_SERVED && fresh >= 0)
            go_on_without(d, i, at, fresh);
        else if (pst_view_slot_dealt(slot))
            take_back(d, i);
        else if (kept == KEPT_NOTHING)
            leave_behind(d, i, at, now_ns);
        else if (kept == KEPT_DURABLE || is_sparse(slot, at))
            wait_behind(d, i, at, now_ns);
        else
            revive_slot(d, i, at);
    }
}

/* ---- time ---- */

static uint64_t score(uint64_t seed, uint32_t slot, uint64_t epoch)
{
    uint64_t x = seed ^ (slot + 1) * 0x9e3779b97f4a7c15 ^ epoch * 0xd6e8feb86659fd93;

    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
    return x ^ x >> 32;
}

static bool host_has_copy(const struct pst_view *view, const struct pst_view_slot *slot, uint16_t member)
{
    for (uint32_t i = 0; i < slot->copy_count; i++)
        if (!view->members[slot->copies[i]].drains &&
            pst_id_equal(&view->members[slot->copies[i]].host, &view->members[member].host))
            return true;
    return false;
}

/* Who should be the slot's next copy: the same answer as long as the same members are there. */
static uint16_t best_copy(const struct pst_directory *d, uint32_t number, const struct pst_view_slot *slot,
                          uint64_t now_ns)
{
    uint16_t best = PST_VIEW_NONE;
    uint64_t most = 0;

    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        uint64_t points = score(d->view->seed, number, d->members[i].epoch);

        if (points < most || !member_stays(d, (uint16_t)i) || d->members[i].sequence_next == 0 ||
            member_is_suspect(d, (uint16_t)i, now_ns) || member_drains(d, (uint16_t)i) ||
            pst_view_copy_at(slot, (uint16_t)i) >= 0 || host_has_copy(d->draft, slot, (uint16_t)i))
            continue;
        best = (uint16_t)i;
        most = points;
    }
    return best;
}

/* Of a slot that was dealt out before any member may have values, from then. It goes to one, which drops
 * them first; the other copies join that one. */
static void deal_slot(struct pst_directory *d, uint32_t number, uint32_t replicas, uint64_t now_ns)
{
    struct pst_view_slot next = d->draft->slots[number];
    bool anew = next.epoch > 0;

    while (next.copy_count < (anew ? 1 : replicas)) {
        uint16_t member = best_copy(d, number, &next, now_ns);

        if (member == PST_VIEW_NONE)
            break;
        next.copies[next.copy_count++] = member;
    }
    if (next.copy_count == 0)
        return;
    next.state = anew ? PST_VIEW_INCOMPLETE : PST_VIEW_SERVED;
    next.base = next.epoch + 1;
    write_slot(d, number, next);
}

uint32_t copies_lasting(const struct pst_directory *d, const struct pst_view_slot *slot)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < slot->copy_count; i++)
        count += !member_drains(d, slot->copies[i]);
    return count;
}

/* The place of a backup that drains, and is not needed, or of another that is too many; -1: there is none. */
static int spare_copy(const struct pst_directory *d, const struct pst_view_slot *slot, uint32_t replicas,
                      uint64_t now_ns)
{
    uint32_t lasting = copies_lasting(d, slot);

    if (lasting < replicas && slot->copy_count < PST_VIEW_COPIES_MAX)
        return -1;
    for (int i = 1; i < slot->copy_count; i++)
        if (member_drains(d, slot->copies[i]))
            return i;
    return balance_spare(d, slot, replicas, now_ns);
}

/* Its primary goes on without it, once it has heard of that; until then it has one copy more than it needs.
 */
static void let_go(struct pst_directory *d, uint32_t number, uint32_t replicas, uint64_t now_ns)
{
    struct pst_view_slot next = d->draft->slots[number];
    int at = next.state == PST_VIEW_SERVED ? spare_copy(d, &next, replicas, now_ns) : -1;

    if (at < 1)
        return;
    take_out(&next, at);
    write_slot(d, number, next);
}

/* Members to whom slots may be dealt. */
static uint64_t members_there(const struct pst_directory *d, uint64_t now_ns)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < d->settings.members_max; i++)
        count += member_stays(d, (uint16_t)i) && d->members[i].sequence_next > 0 &&
                 !member_is_suspect(d, (uint16_t)i, now_ns);
    return count;
}

/* With nobody @there no time counts, and with too few to deal to nothing is given up. */
static void look_after(struct pst_directory *d, uint32_t number, uint64_t there, uint64_t now_ns)
{
    const struct pst_view_slot *slot = &d->draft->slots[number];
    int fresh;

    if (slot->state == PST_VIEW_SERVED && member_stays(d, slot->copies[0]) &&
        member_lease_is_over(d, slot->copies[0], now_ns)) {
        fresh = fresh_copy(d, slot, slot->copies[0], now_ns);
        if (fresh > 0)
            take_over(d, number, fresh);
    } else if (pst_view_slot_dealt(slot)) {
        if (!copy_is_fresh(d, slot->copies[0], now_ns))
            take_back(d, number);
    } else if (slot->state == PST_VIEW_INCOMPLETE) {
        bool late;

        if (there == 0)
            d->incomplete_ns[number] = now_ns;
        late = now_ns >= d->incomplete_ns[number] + d->settings.incomplete_ms * NS_PER_MS;
        fresh = fresh_copy(d, slot, PST_VIEW_NONE, now_ns); /* of those that may have all, if there is one */
        if (fresh >= 0 && (late || slot->sparse == slot->copy_count || !is_sparse(slot, fresh)))
            revive_slot(d, number, fresh);
        else if (late && there >= d->settings.nodes_min)
            lose_slot(d, number);
    }
}

void copies_tick(struct pst_directory *d, uint64_t now_ns)
{
    uint32_t replicas = pst_view_replicas(d->draft), left = DEALT_PER_TICK;
    uint64_t there = members_there(d, now_ns);
    bool deals = replicas > 0 && there >= d->settings.nodes_min;

    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        look_after(d, i, there, now_ns);
        let_go(d, i, replicas, now_ns);
        if (d->draft->slots[i].state == PST_VIEW_EMPTY && deals && left > 0) {
            deal_slot(d, i, replicas, now_ns);
            left--;
        }
    }
    balance_tick(d, now_ns);
}

/* ---- what primaries ask for ---- */

/* What the slot's first copy may ask for, done. Return: 0, -ESTALE, -EINVAL. */
static int change_slot(const struct pst_directory *d, const struct pst_copy_request *request,
                       struct pst_view_slot *slot)
{
    int at = pst_view_copy_at(slot, request->copy);

    if (request->change == PST_COPY_TAKE) {
        if (!pst_view_slot_dealt(slot))
            return -ESTALE;
        slot->state = PST_VIEW_SERVED;
        return 0;
    }
    if (slot->state != PST_VIEW_SERVED)
        return -ESTALE;
    if (request->change == PST_COPY_DROP) {
        if (at > 0)
            take_out(slot, at);
        return 0;
    }
    if ((at < 0) != (request->change == PST_COPY_JOIN) || !member_stays(d, request->copy) ||
        d->members[request->copy].epoch != request->copy_epoch)
        return -ESTALE;
    if (request->change == PST_COPY_LEAD)
        to_front(slot, at);
    else if (slot->copy_count < PST_VIEW_COPIES_MAX)
        slot->copies[slot->copy_count++] = request->copy;
    else
        return -EINVAL;
    return 0;
}

int pst_directory_change_copy(struct pst_directory *d, const struct pst_copy_request *request,
                              uint64_t *version)
{
    struct pst_view_slot next;
    int r = -ESTALE;

    directory_check(d);
    if (request->slot >= PST_SLOTS || request->member >= d->settings.members_max ||
        request->copy >= d->settings.members_max || request->change > PST_COPY_TAKE ||
        (request->copy == request->member) != (request->change == PST_COPY_TAKE))
        return -EINVAL;
    next = d->draft->slots[request->slot];
    if (member_stays(d, request->member) && d->members[request->member].epoch == request->epoch &&
        next.epoch == request->slot_epoch && next.copies[0] == request->member)
        r = change_slot(d, request, &next);
    d->counters.slot_requests_stale += r == -ESTALE;
    if (r < 0)
        return r;
    write_slot(d, request->slot, next);
    *version = d->draft->version;
    return 0;
}

/* Who is to be primary in place of one that drains. */
static uint16_t heir(const struct pst_directory *d, const struct pst_view_slot *slot, uint64_t now_ns)
{
    for (uint32_t i = 1; i < slot->copy_count; i++)
        if (!member_drains(d, slot->copies[i]) && copy_is_fresh(d, slot->copies[i], now_ns) &&
            !member_is_suspect(d, slot->copies[i], now_ns))
            return slot->copies[i];
    return PST_VIEW_NONE;
}

void copies_wanted(struct pst_directory *d, uint16_t member, uint64_t now_ns,
                   struct pst_heartbeat_answer *answer)
{
    uint32_t replicas = pst_view_replicas(d->view), searches = PST_WANTS_MAX;
    struct member *m = &d->members[member];

    if (replicas < 2 && !member_drains(d, member))
        return;
    for (uint32_t i = 0; i < PST_SLOTS && searches > 0; i++) {
        uint32_t number = m->want_at++ % PST_SLOTS;
        const struct pst_view_slot *slot = &d->view->slots[number];
        uint16_t copy;
        bool lacks;

        if (slot->state != PST_VIEW_SERVED || slot->copies[0] != member ||
            slot->epoch != d->draft->slots[number].epoch)
            continue;
        lacks = copies_lasting(d, slot) < replicas && slot->copy_count < PST_VIEW_COPIES_MAX;
        if (!lacks && !member_drains(d, member))
            continue;
        searches--;
        copy = lacks ? best_copy(d, number, slot, now_ns) : heir(d, slot, now_ns);
        if (copy != PST_VIEW_NONE)
            answer->wants[answer->want_count++] = (struct pst_want){.slot = (uint16_t)number,
                                                                    .member = copy,
                                                                    .leads = !lacks,
                                                                    .slot_epoch = slot->epoch,
                                                                    .member_epoch = d->members[copy].epoch};
    }
}
