/*
 * balance.c: members that have fewer slots than others are given some, a few at a time, while no slot lacks a
 * copy. A slot's primary has the member join, by the way that a lacking copy goes; that is one too many, and
 * of all its copies the one goes whose member has most. If that is the primary, it hands the slot over first.
 * What has joined needs no memory of why: a directory that begins anew goes on.
 */
#include "directory/directory_priv.h"

enum {
    LOOKS_PER_TICK = 512, /* slots */
    MOVE_MS = 30000,      /* one that takes longer is not counted any more; it may happen still */
    MARGIN_SHARE = 8,     /* of what each should have: less than that is no difference, */
    MARGIN_SLOTS = 16,    /* nor is so little */
};

/* It may be given slots, and may be asked for some. */
static bool is_able(const struct pst_directory *d, uint16_t member, uint64_t now_ns)
{
    return member_stays(d, member) && !member_drains(d, member) && d->members[member].sequence_next > 0 &&
           !member_is_suspect(d, member, now_ns);
}

static bool all_are_able(const struct pst_directory *d, const struct pst_view_slot *slot, uint64_t now_ns)
{
    for (uint32_t i = 0; i < slot->copy_count; i++)
        if (!is_able(d, slot->copies[i], now_ns) || !copy_is_fresh(d, slot->copies[i], now_ns))
            return false;
    return slot->state == PST_VIEW_SERVED;
}

/* Whether a copy besides the one at @but lies on the member's host. */
static bool shares_host(const struct pst_directory *d, const struct pst_view_slot *slot, int but,
                        uint16_t member)
{
    for (int i = 0; i < slot->copy_count; i++)
        if (i != but &&
            pst_id_equal(&d->draft->members[slot->copies[i]].host, &d->draft->members[member].host))
            return true;
    return false;
}

/* The place of the copy whose member has most; a backup rather than the primary. */
static int most_loaded(const struct pst_directory *d, const struct pst_view_slot *slot)
{
    int most = 0;

    for (int i = 1; i < slot->copy_count; i++)
        if (d->members[slot->copies[i]].slots >= d->members[slot->copies[most]].slots)
            most = i;
    return most;
}

/* The backup whose member is primary of fewest. */
static uint16_t least_leading(const struct pst_directory *d, const struct pst_view_slot *slot)
{
    uint16_t least = slot->copies[1];

    pst_assert(slot->copy_count > 1);
    for (int i = 2; i < slot->copy_count; i++)
        if (d->members[slot->copies[i]].primaries < d->members[least].primaries)
            least = slot->copies[i];
    return least;
}

int balance_spare(const struct pst_directory *d, const struct pst_view_slot *slot, uint32_t replicas,
                  uint64_t now_ns)
{
    int spare = -1;

    if (replicas == 0 || slot->copy_count <= replicas || !all_are_able(d, slot, now_ns))
        return -1;
    for (int i = 0; i < slot->copy_count; i++) {
        bool shares = shares_host(d, slot, i, slot->copies[i]);
        bool shared = spare >= 0 && shares_host(d, slot, spare, slot->copies[spare]);

        if (spare < 0 || shares > shared ||
            (shares == shared && d->members[slot->copies[i]].slots >= d->members[slot->copies[spare]].slots))
            spare = i;
    }
    return spare;
}

/* ---- who has what ---- */

/* Nobody waits any more for those that no slot names. */
static void forget_gone(struct pst_directory *d)
{
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        if (d->draft->members[i].gone && d->members[i].slots == 0)
            directory_draft(d)->members[i] = (struct pst_view_member){.epoch = 0};
}

static void count_slots(struct pst_directory *d)
{
    for (uint32_t i = 0; i < d->settings.members_max; i++)
        d->members[i].slots = d->members[i].primaries = 0;
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = &d->draft->slots[i];

        for (uint32_t j = 0; j < slot->copy_count; j++) {
            d->members[slot->copies[j]].slots++;
            d->members[slot->copies[j]].primaries += j == 0;
        }
    }
}

/* As if it had happened. */
static void count_move(struct pst_directory *d, const struct move *move)
{
    const struct pst_view_slot *slot = &d->draft->slots[move->slot];
    bool leads = slot->copies[0] == move->from;

    if (pst_view_copy_at(slot, move->member) < 0) {
        d->members[move->from].slots--;
        d->members[move->member].slots++;
    }
    d->members[move->from].primaries -= leads;
    d->members[move->member].primaries += leads;
}

static void count_surplus(struct pst_directory *d, uint32_t replicas)
{
    d->surplus = 0;
    for (uint32_t i = 0; i < PST_SLOTS; i++) {
        const struct pst_view_slot *slot = &d->draft->slots[i];

        if (replicas > 0 && copies_lasting(d, slot) > replicas) {
            d->members[slot->copies[most_loaded(d, slot)]].slots--;
            d->surplus++;
        }
    }
}

static bool move_has_ended(struct pst_directory *d, const struct move *move, uint64_t now_ns)
{
    const struct pst_view_slot *slot = &d->draft->slots[move->slot];

    if (slot->epoch != move->slot_epoch) {
        d->counters.balanced += pst_view_copy_at(slot, move->member) >= 0;
        return true;
    }
    return now_ns >= move->until_ns || d->members[move->member].epoch != move->member_epoch ||
           !is_able(d, move->member, now_ns) || !all_are_able(d, slot, now_ns);
}

static void end_moves(struct pst_directory *d, uint64_t now_ns)
{
    for (uint32_t i = 0; i < d->move_count;) {
        if (move_has_ended(d, &d->moves[i], now_ns))
            d->moves[i] = d->moves[--d->move_count];
        else
            count_move(d, &d->moves[i++]);
    }
}

/* ---- what would be better ---- */

/* What is known of all, for one tick. */
struct balance {
    uint32_t replicas, able, margin, margin_primaries, fewest;
};

/* Return: whether all slots have their copies, and there are members to share them. */
static bool survey(const struct pst_directory *d, uint64_t now_ns, struct balance *b)
{
    *b = (struct balance){.replicas = pst_view_replicas(d->draft), .fewest = UINT32_MAX};
    for (uint32_t i = 0; i < PST_SLOTS; i++)
        if (d->draft->slots[i].state != PST_VIEW_SERVED ||
            copies_lasting(d, &d->draft->slots[i]) < b->replicas)
            return false;
    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        if (!is_able(d, (uint16_t)i, now_ns))
            continue;
        b->able++;
        b->fewest = (uint32_t)pst_min(b->fewest, d->members[i].slots);
    }
    if (b->able == 0 || b->replicas == 0)
        return false;
    b->margin = PST_SLOTS * b->replicas / b->able / MARGIN_SHARE + MARGIN_SLOTS;
    b->margin_primaries = PST_SLOTS / b->able / MARGIN_SHARE + MARGIN_SLOTS;
    return true;
}

/* Of those that could have the copy in place of the one at @from, who has fewest. */
static uint16_t receiver(const struct pst_directory *d, const struct pst_view_slot *slot, int from,
                         uint64_t now_ns)
{
    uint16_t best = PST_VIEW_NONE;

    for (uint32_t i = 0; i < d->settings.members_max; i++) {
        uint16_t member = (uint16_t)i;

        if (is_able(d, member, now_ns) && pst_view_copy_at(slot, member) < 0 &&
            !shares_host(d, slot, from, member) &&
            (best == PST_VIEW_NONE || d->members[i].slots < d->members[best].slots))
            best = member;
    }
    return best;
}

static void plan(struct pst_directory *d, const struct balance *b, uint32_t number, uint64_t now_ns)
{
    const struct pst_view_slot *slot = &d->draft->slots[number];
    int from = most_loaded(d, slot);
    uint32_t has = d->members[slot->copies[from]].slots;
    uint16_t to = PST_VIEW_NONE;

    if (slot->copy_count != b->replicas || !all_are_able(d, slot, now_ns))
        return;
    for (uint32_t i = 0; i < d->move_count; i++)
        if (d->moves[i].slot == number)
            return;
    if (has > b->fewest + b->margin && slot->copy_count < PST_VIEW_COPIES_MAX)
        to = receiver(d, slot, from, now_ns);
    if (to != PST_VIEW_NONE && has <= d->members[to].slots + b->margin)
        to = PST_VIEW_NONE;
    if (to == PST_VIEW_NONE && slot->copy_count > 1) {
        from = 0;
        to = least_leading(d, slot);
        if (d->members[slot->copies[0]].primaries <= d->members[to].primaries + b->margin_primaries)
            to = PST_VIEW_NONE;
    }
    if (to == PST_VIEW_NONE)
        return;
    d->moves[d->move_count] = (struct move){.slot_epoch = slot->epoch,
                                            .member_epoch = d->members[to].epoch,
                                            .until_ns = now_ns + MOVE_MS * NS_PER_MS,
                                            .slot = (uint16_t)number,
                                            .from = slot->copies[from],
                                            .member = to};
    count_move(d, &d->moves[d->move_count++]);
}

void balance_tick(struct pst_directory *d, uint64_t now_ns)
{
    struct balance b;

    count_slots(d);
    forget_gone(d);
    end_moves(d, now_ns);
    count_surplus(d, pst_view_replicas(d->draft));
    if (d->settings.balance_slots == 0 || !survey(d, now_ns, &b))
        return;
    for (int i = 0; i < LOOKS_PER_TICK && d->move_count + d->surplus < d->settings.balance_slots; i++)
        plan(d, &b, d->balance_at++ % PST_SLOTS, now_ns);
}

/* ---- what primaries are asked for ---- */

static void want(const struct pst_directory *d, uint32_t number, uint16_t member,
                 struct pst_heartbeat_answer *answer)
{
    const struct pst_view_slot *slot = &d->view->slots[number];

    if (answer->want_count == PST_WANTS_MAX || slot->epoch != d->draft->slots[number].epoch)
        return;
    answer->wants[answer->want_count++] = (struct pst_want){.slot = (uint16_t)number,
                                                            .member = member,
                                                            .leads = pst_view_copy_at(slot, member) > 0,
                                                            .slot_epoch = slot->epoch,
                                                            .member_epoch = d->members[member].epoch};
}

void balance_wanted(const struct pst_directory *d, uint16_t member, uint64_t now_ns,
                    struct pst_heartbeat_answer *answer)
{
    uint32_t replicas = pst_view_replicas(d->view);

    for (uint32_t i = 0; i < d->move_count; i++) {
        const struct move *move = &d->moves[i];

        if (d->view->slots[move->slot].copies[0] == member &&
            d->view->slots[move->slot].epoch == move->slot_epoch && is_able(d, move->member, now_ns))
            want(d, move->slot, move->member, answer);
    }
    for (uint32_t i = 0; i < PST_SLOTS && d->surplus > 0; i++) {
        const struct pst_view_slot *slot = &d->view->slots[i];

        if (slot->state == PST_VIEW_SERVED && slot->copies[0] == member &&
            balance_spare(d, slot, replicas, now_ns) == 0)
            want(d, i, least_leading(d, slot), answer);
    }
}
