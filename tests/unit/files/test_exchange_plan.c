/* SPDX-License-Identifier: Apache-2.0 */
/* test_exchange_plan.c: which pod sends what to whom, and what cannot be. */
#include "lib/exchange_rig.h"

enum { MEMBERS = 8 };

struct member {
    const char *ip, *role, *tensors;
};

/* The exchange of those, closed. */
static struct pst_exchange *closed(struct pst_exchanges *all, const struct member *members)
{
    struct pst_exchange_member *member = NULL;
    uint32_t count = 0;

    while (members[count].ip)
        count++;
    for (uint32_t i = 0; i < count; i++)
        member = rig_join(all, members[i].ip, members[i].role, members[i].tensors, count, 0, 0);
    assert_int_equal(member->exchange->state, PST_EXCHANGE_CLOSED);
    return member->exchange;
}

static void print_list(char *text, size_t cap, const char *name, const struct pst_exchange_transfer *list,
                       uint32_t count)
{
    if (count)
        snprintf(text + strlen(text), cap - strlen(text), " %s", name);
    for (uint32_t i = 0; i < count; i++)
        snprintf(text + strlen(text), cap - strlen(text), " %s%s%s", list[i].source->key,
                 list[i].destination ? "=" : "", list[i].destination ? list[i].destination->handle : "");
}

/* The plan as text, a line a pod: IP RANK/SIZE of MASTER, and its lists. */
static char *print_plan(const struct pst_exchange_plan *plan, char *text, size_t cap)
{
    *text = 0;
    for (uint32_t i = 0; i < plan->pod_count; i++) {
        const struct pst_exchange_pod *pod = &plan->pods[i];

        snprintf(text + strlen(text), cap - strlen(text), "%s %u/%u of %s", pod->ip, pod->rank,
                 pod->world_size, pod->master_ip);
        print_list(text, cap, "sends", pod->sends, pod->send_count);
        print_list(text, cap, "receives", pod->receives, pod->receive_count);
        print_list(text, cap, "copies", pod->locals, pod->local_count);
        snprintf(text + strlen(text), cap - strlen(text), "\n");
    }
    return text;
}

static void planned(const char *wanted, const struct member *members)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_plan *plan = NULL;
    char text[1024], *fault = NULL;

    assert_int_equal(pst_exchange_plan_open(closed(all, members), &plan, &fault), 0);
    assert_null(fault);
    assert_string_equal(print_plan(plan, text, sizeof(text)), wanted);
    for (uint32_t i = 0; members[i].ip; i++)
        assert_string_equal(plan->pods[plan->pod_of[i]].ip, members[i].ip);
    assert_null(pst_exchange_plan_close(plan));
    assert_null(pst_exchange_plan_close(NULL));
    pst_exchanges_close(all);
}

static void refused(const char *wanted, const struct member *members)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_plan *plan = NULL;
    char *fault = NULL;

    assert_int_equal(pst_exchange_plan_open(closed(all, members), &plan, &fault), -EINVAL);
    assert_string_equal(fault, wanted);
    assert_null(plan);
    free(fault);
    pst_exchanges_close(all);
}

#define MEMBERS(...) ((const struct member[]){__VA_ARGS__, {NULL, NULL, NULL}})

static void one_sends_to_all(void **state)
{
    (void)state;
    planned("B 1/3 of A receives k=[\"B\"]\n"
            "A 0/3 of A sends k\n"
            "C 2/3 of A receives k=[\"C\"]\n",
            MEMBERS({"B", "getter", "k:f:2,3"}, {"A", "putter", "k:f:2,3"}, {"C", "getter", "k:f:2,3"}));
    /* Sorted by the bytes of their keys, whatever the order in which each says them. */
    planned("A 0/3 of A sends B a b\n"
            "B 1/3 of A receives B=[\"B\"] a=[\"B\"] b=[\"B\"]\n"
            "C 2/3 of A receives B=[\"C\"] a=[\"C\"] b=[\"C\"]\n",
            MEMBERS({"A", "putter", "b a none B"}, {"B", "getter", "a B b"}, {"C", "getter", "B b a"}));
}

static void a_pod_is_what_its_members_are_together(void **state)
{
    (void)state;
    planned("A 0/2 of A sends a b\n"
            "B 1/2 of A receives a=[\"B\"] b=[\"B\"]\n",
            MEMBERS({"A", "putter", "b"}, {"B", "getter", "b"}, {"A", "putter", "a"}, {"B", "getter", "a"}));
}

static void what_the_pod_has_is_copied(void **state)
{
    (void)state;
    planned("A 0/1 of A copies a=[\"A\"] a=[\"A\"] b=[\"A\"]\n",
            MEMBERS({"A", "getter", "b a"}, {"A", "putter", "a b"}, {"A", "getter", "a"}));
    /* Pods without NCCL are alone, and do not keep the others' ranks from following each other. */
    planned("A 0/2 of A sends k copies k=[\"A\"]\n"
            "B 0/1 of B copies k=[\"B\"]\n"
            "C 0/1 of C\n"
            "D 1/2 of A receives k=[\"D\"]\n",
            MEMBERS({"A", "putter", "k"}, {"B", "putter", "k"}, {"C", "putter", "other"},
                    {"B", "getter", "k"}, {"D", "getter", "k"}, {"A", "getter", "k"}));
    /* A receiver copies what it has itself. */
    planned("A 0/2 of A sends a\n"
            "B 1/2 of A receives a=[\"B\"] copies b=[\"B\"]\n",
            MEMBERS({"A", "putter", "a b"}, {"B", "getter", "a b"}, {"B", "putter", "b"}));
}

static void the_first_that_has_all_sends(void **state)
{
    (void)state;
    planned("C 1/2 of B receives a=[\"C\"] b=[\"C\"]\n"
            "A 0/1 of A\n"
            "B 0/2 of B sends a b\n"
            "D 0/1 of D\n",
            MEMBERS({"C", "getter", "a b"}, {"A", "putter", "a"}, {"B", "putter", "b a"},
                    {"D", "putter", "a b"}));
    /* By its first putter, not by its first getter. */
    planned("D 0/1 of D copies a=[\"D\"]\n"
            "B 0/2 of B sends a\n"
            "C 1/2 of B receives a=[\"C\"]\n",
            MEMBERS({"D", "getter", "a"}, {"B", "putter", "a"}, {"D", "putter", "a"}, {"C", "getter", "a"}));
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    refused("the group has no putter", MEMBERS({"A", "getter", "a"}, {"B", "getter", "a"}));
    refused("the group has no getter", MEMBERS({"A", "putter", "a"}));
    refused("nobody offers the key b, which pod B wants",
            MEMBERS({"A", "putter", "a c"}, {"B", "getter", "a b"}));
    refused("no pod offers all the keys that others want: pod A does not offer b",
            MEMBERS({"A", "putter", "a"}, {"B", "putter", "b"}, {"C", "getter", "a b"}));
    refused("pods that receive must want the same keys: pod C wants b from others, and pod B does not",
            MEMBERS({"A", "putter", "a b"}, {"B", "getter", "a"}, {"C", "getter", "a b"}));
    refused("pods that receive must want the same keys: pod C wants a from others, and pod B does not",
            MEMBERS({"A", "putter", "a b"}, {"B", "getter", "a b"}, {"B", "putter", "a"},
                    {"C", "getter", "a b"}));
    refused("pod B wants the key a twice from another pod, and may once",
            MEMBERS({"A", "putter", "a b"}, {"B", "getter", "a b"}, {"B", "getter", "a"}));
    refused("pod B wants the key a twice from another pod, and may once",
            MEMBERS({"A", "putter", "a"}, {"B", "getter", "a a"}));
}

static void tensors_fit_where_they_go(void **state)
{
    (void)state;
    planned("A 0/2 of A sends k\n"
            "B 1/2 of A receives k=[\"B\"]\n",
            MEMBERS({"A", "putter", "k:torch.float32:"}, {"B", "getter", "k:float32:"}));
    refused("the key k: pod A offers f [2, 3], and pod B wants f [3, 2]",
            MEMBERS({"A", "putter", "k:f:2,3"}, {"B", "getter", "k:f:3,2"}));
    refused("the key k: pod A offers f [2, 3], and pod B wants f []",
            MEMBERS({"A", "putter", "k:f:2,3"}, {"B", "getter", "k:f:"}));
    refused("the key k: pod A offers torch.f [], and pod B wants g []",
            MEMBERS({"A", "putter", "k:torch.f:"}, {"B", "getter", "k:g:"}));
    /* Of a copy the pod's own counts, not the source's. */
    refused("the key k: pod A offers g [1], and pod A wants f [1]",
            MEMBERS({"A", "putter", "k:g:1"}, {"A", "getter", "k:f:1"}));
    /* A tensor that goes nowhere may be as it likes. */
    planned("A 0/2 of A sends k\n"
            "B 1/2 of A receives k=[\"B\"]\n"
            "C 0/1 of C\n",
            MEMBERS({"A", "putter", "k:f:1"}, {"B", "getter", "k:f:1"}, {"C", "putter", "k:g:2"}));
}

/* ---- a plain model: keys are the bits of a number ---- */

enum { KEYS = 4, PODS = 4 };

struct model {
    unsigned offers[PODS], wants[PODS]; /* @wants: of others */
    unsigned copies[PODS];              /* how many transfers */
    int source;                         /* -1: none is needed */
    bool can_be;
};

static void think(const struct member *members, const unsigned *keys, uint32_t count, struct model *model)
{
    unsigned all = 0, putters = 0, twice = 0;

    *model = (struct model){.source = -1, .can_be = true};
    for (uint32_t i = 0; i < count; i++) {
        if (*members[i].role == 'p')
            model->offers[members[i].ip[0] - 'A'] |= keys[i];
        putters += *members[i].role == 'p';
    }
    for (uint32_t i = 0; i < count; i++) {
        unsigned pod = (unsigned)(members[i].ip[0] - 'A'), others = keys[i] & ~model->offers[pod];

        if (*members[i].role == 'p')
            continue;
        twice |= model->wants[pod] & others;
        model->wants[pod] |= others;
        model->copies[pod] += (unsigned)__builtin_popcount(keys[i] & model->offers[pod]);
        all |= others;
    }
    for (uint32_t i = count; i-- > 0;)
        if (*members[i].role == 'p' && all && (model->offers[members[i].ip[0] - 'A'] & all) == all)
            model->source = members[i].ip[0] - 'A';
    for (int pod = 0; pod < PODS; pod++)
        model->can_be &= !model->wants[pod] || model->wants[pod] == all;
    model->can_be &= putters > 0 && putters < count && !twice && (!all || model->source >= 0);
}

static void agrees(const struct pst_exchange_plan *plan, const struct model *model)
{
    uint32_t receivers = 0, ranks = 0;

    for (uint32_t i = 0; i < plan->pod_count; i++)
        receivers += model->wants[plan->pods[i].ip[0] - 'A'] != 0;
    for (uint32_t i = 0; i < plan->pod_count; i++) {
        const struct pst_exchange_pod *pod = &plan->pods[i];
        int index = pod->ip[0] - 'A';
        bool is_source = index == model->source;
        unsigned wants = model->wants[index];

        assert_int_equal(pod->receive_count, __builtin_popcount(wants));
        assert_int_equal(pod->local_count, model->copies[index]);
        assert_int_equal(pod->send_count > 0, is_source);
        assert_int_equal(pod->rank, wants ? ++ranks : 0);
        assert_int_equal(pod->world_size, wants || is_source ? 1 + receivers : 1);
        assert_int_equal(pod->master_ip[0] - 'A', wants ? model->source : index);
        for (uint32_t at = 0; at < pod->receive_count; at++) {
            assert_true(wants & 1u << (pod->receives[at].source->key[0] - 'a'));
            assert_string_equal(pod->receives[at].source->key, pod->receives[at].destination->key);
            assert_true(at == 0 ||
                        strcmp(pod->receives[at - 1].source->key, pod->receives[at].source->key) < 0);
        }
    }
}

static void as_a_plain_model_says(void **state)
{
    unsigned seed = 7, good = 0, bad = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        static const char *const ips[] = {"A", "B", "C", "D"};
        struct member members[MEMBERS + 1] = {{NULL, NULL, NULL}};
        unsigned keys[MEMBERS];
        char texts[MEMBERS][2 * KEYS + 1];
        uint32_t count = 1 + (uint32_t)(rand_r(&seed) % MEMBERS);
        struct pst_exchanges *all = pst_exchanges_open();
        struct pst_exchange_plan *plan = NULL;
        struct model model;
        char *fault;
        int r;

        for (uint32_t i = 0; i < count; i++) {
            bool is_putter = rand_r(&seed) % 2;

            keys[i] = rand_r(&seed) % 3 ? 3u << (rand_r(&seed) % 2) : (unsigned)rand_r(&seed) % (1u << KEYS);
            *texts[i] = 0;
            for (int key = KEYS - 1; key >= 0; key--)
                if (keys[i] & 1u << key)
                    strcat(strcat(texts[i], (char[]){(char)('a' + key), 0}), " ");
            members[i] =
                (struct member){ips[rand_r(&seed) % PODS], is_putter ? "putter" : "getter", texts[i]};
        }
        think(members, keys, count, &model);
        r = pst_exchange_plan_open(closed(all, members), &plan, &fault);
        assert_int_equal(r, model.can_be ? 0 : -EINVAL);
        good += r == 0;
        bad += r < 0;
        if (r == 0)
            agrees(plan, &model);
        pst_exchange_plan_close(plan);
        free(fault);
        pst_exchanges_close(all);
    }
    assert_true(good > 1000 && bad > 1000);
}

/* As many as there may be, in no more than a moment. */
static void a_large_one_is_planned(void **state)
{
    struct pst_exchanges *all = pst_exchanges_open();
    struct pst_exchange_plan *plan = NULL;
    struct pst_exchange *exchange = NULL;
    char ip[16], *fault = NULL;

    (void)state;
    for (uint32_t i = 0; i < PST_EXCHANGE_MEMBERS_MAX; i++) {
        snprintf(ip, sizeof(ip), "10.0.%u.%u", i / 256, i % 256);
        exchange = rig_join(all, ip, i == 77 ? "putter" : "getter",
                            "layer/1/w:f:4096,4096 layer/0/w:f:4096,4096", PST_EXCHANGE_MEMBERS_MAX, 0, 0)
                       ->exchange;
    }
    assert_int_equal(pst_exchange_plan_open(exchange, &plan, &fault), 0);
    assert_int_equal(plan->pod_count, PST_EXCHANGE_MEMBERS_MAX);
    assert_int_equal(plan->pods[77].rank, 0);
    assert_int_equal(plan->pods[76].rank, 77);
    assert_int_equal(plan->pods[78].rank, 78);
    assert_string_equal(plan->pods[4095].receives[1].source->key, "layer/1/w");
    pst_exchange_plan_close(plan);
    pst_exchanges_close(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sends_to_all),
        cmocka_unit_test(a_pod_is_what_its_members_are_together),
        cmocka_unit_test(what_the_pod_has_is_copied),
        cmocka_unit_test(the_first_that_has_all_sends),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(tensors_fit_where_they_go),
        cmocka_unit_test(as_a_plain_model_says),
        cmocka_unit_test(a_large_one_is_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
