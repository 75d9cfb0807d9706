/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c: the manifests of many connections, and the bound of all of them. */
#include "files/carry/budget.h"

#include "lib/cm.h"

#include <stdatomic.h>
#include <sys/socket.h>

enum { CLIENTS = 12 };

static const uint64_t mib = 1 << 20;

/* A manifest that counts as so many bytes. */
static struct pst_manifest sized(uint64_t bytes)
{
    return (struct pst_manifest){.text_bytes = bytes};
}

/* A connection whose peer reads all that comes. */
struct client {
    struct carry_share share;
    struct link link;
    int ends[2];
    char fault[PST_FAULT_BYTES];
    pthread_t thread;
    atomic_bool listed, *goes;
    atomic_int *listing, *most;
};

static void *list(void *arg)
{
    struct client *client = arg;
    const struct pst_manifest m = sized(400 * mib);
    int now;

    pst_assert(carry_share_list(&client->share, &client->link) == 0);
    now = atomic_fetch_add(client->listing, 1) + 1;
    for (int most = atomic_load(client->most);
         now > most && !atomic_compare_exchange_weak(client->most, &most, now);)
        ;
    usleep(2000);
    atomic_fetch_sub(client->listing, 1);
    carry_share_listed(&client->share, &m);
    atomic_store(&client->listed, true);
    while (!atomic_load(client->goes))
        usleep(1000);
    carry_share_end(&client->share);
    return NULL;
}

static uint32_t listed_of(struct client *clients)
{
    uint32_t listed = 0;

    for (int i = 0; i < CLIENTS; i++)
        listed += atomic_load(&clients[i].listed);
    return listed;
}

static void gets_wait_for_their_turn(void **state)
{
    static struct client clients[CLIENTS];
    atomic_bool goes = false;
    atomic_int listing = 0, most = 0;
    struct carry_budget budget;

    (void)state;
    carry_budget_init(&budget, 1000 * mib);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *client = &clients[i];

        *client =
            (struct client){.share = {.budget = &budget}, .goes = &goes, .listing = &listing, .most = &most};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, client->ends), 0);
        assert_int_equal(link_open(&client->link, client->ends[0], 60000, client->fault), 0);
        assert_int_equal(pthread_create(&client->thread, NULL, list, client), 0);
    }
    while (listed_of(clients) < 2) /* of 400 MiB each: three quarters are taken */
        usleep(1000);
    usleep(50000);
    assert_in_range(listed_of(clients), 2, 6); /* those that were being listed are let through */
    assert_in_range(atomic_load(&most), 1, 4);
    atomic_store(&goes, true);
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        link_close(&clients[i].link);
        close(clients[i].ends[0]);
        close(clients[i].ends[1]);
    }
    assert_int_equal(listed_of(clients), CLIENTS);
    carry_budget_fini(&budget);
}

static void a_put_beyond_the_bound_fails(void **state)
{
    const struct pst_manifest tiny = sized(mib), small = sized(400 * mib), large = sized(601 * mib),
                              fits = sized(600 * mib);
    struct carry_share first, second, third, none = {.budget = NULL};
    struct carry_budget budget;

    (void)state;
    carry_budget_init(&budget, 1000 * mib);
    first = second = third = (struct carry_share){.budget = &budget};
    assert_int_equal(carry_share_grow(&first, &small), 0);
    assert_int_equal(carry_share_grow(&second, &large), -EBUSY);
    assert_int_equal(carry_share_grow(&second, &fits), 0);
    assert_int_equal(carry_share_grow(&second, &fits), 0); /* its own bytes count once */
    assert_int_equal(carry_share_grow(&third, &tiny), 0);
    carry_share_end(&third);
    carry_share_end(&second);
    assert_int_equal(carry_share_grow(&first, &large), 0);
    carry_share_end(&first);
    assert_int_equal(carry_share_grow(&none, &large), 0);
    carry_budget_fini(&budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_wait_for_their_turn),
        cmocka_unit_test(a_put_beyond_the_bound_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
