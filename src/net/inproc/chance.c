/* SPDX-License-Identifier: Apache-2.0 */
/* chance.c: what happens to a message: decided by seed, direction and number alone. */
#include "net/inproc/inproc_priv.h"

#include "base/fault.h"

enum { MILLION = 1000000, BEHIND_NS = 1000000 };

static struct {
    uint64_t seed, drop, dup, reorder, delay_us, hold_us;
} chance;

int pst_memory_chance(const char *text)
{
    const struct {
        const char *name;
        uint64_t *value;
    } settings[] = {{"seed", &chance.seed},         {"drop", &chance.drop},
                    {"dup", &chance.dup},           {"reorder", &chance.reorder},
                    {"delay_us", &chance.delay_us}, {"hold_us", &chance.hold_us}};
    size_t wanted = *text != 0, found = 0;

    for (const char *at = text; *at; at++)
        wanted += *at == ',';
    mem_lock();
    for (size_t i = 0; i < pst_count_of(settings); i++) {
        *settings[i].value = 0;
        found += pst_fault_setting(text, settings[i].name, settings[i].value);
    }
    mem_unlock();
    return found == wanted ? 0 : -EINVAL;
}

bool mem_chance_slow(void)
{
    return chance.delay_us > 0 || chance.hold_us > 0;
}

struct mem_fate mem_fate(struct mem_peer *peer)
{
    uint64_t dice[6];
    struct mem_fate fate = {.drop = false};

    if (peer->to == pst_container_of(peer->base.port, struct mem_port, base)->id)
        return fate; /* a shard that asks itself whether it hears */
    for (size_t i = 0; i < pst_count_of(dice); i++)
        dice[i] = pst_fault_dice(chance.seed, peer->stream, pst_count_of(dice) * peer->number + i);
    peer->number++;
    fate.drop = dice[0] % MILLION < chance.drop;
    fate.lost = fate.drop && dice[0] >> 63;
    fate.dup = dice[1] % MILLION < chance.dup;
    fate.reorder = dice[2] % MILLION < chance.reorder;
    fate.delay_ns = chance.delay_us ? dice[3] % (chance.delay_us * 1000) : 0;
    fate.hold_ns = chance.hold_us ? chance.hold_us * 1000 : fate.delay_ns;
    fate.behind_ns = dice[4] % BEHIND_NS;
    return fate;
}
