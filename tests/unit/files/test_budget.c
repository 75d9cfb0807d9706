/* SPDX-License-Identifier: Apache-2.0 */
/* test_budget.c: the manifests and lists of many connections, and the bound of all of them. */
#include "files/carry/carry_priv.h"

#include "lib/cm.h"

#include <fcntl.h>
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
    const uint64_t tiny = mib, small = 400 * mib, large = 601 * mib, fits = 600 * mib;
    struct carry_share first, second, third, none = {.budget = NULL};
    struct carry_budget budget;

    (void)state;
    carry_budget_init(&budget, 1000 * mib);
    first = second = third = (struct carry_share){.budget = &budget};
    assert_int_equal(carry_share_set(&first, small), 0);
    assert_int_equal(carry_share_set(&second, large), -EBUSY);
    assert_int_equal(carry_share_set(&second, fits), 0);
    assert_int_equal(carry_share_set(&second, fits), 0); /* its own bytes count once */
    assert_int_equal(carry_share_set(&third, tiny), 0);
    assert_int_equal(carry_share_set(&second, fits - 1), 0); /* though the third one's are too many */
    carry_share_end(&third);
    carry_share_end(&second);
    assert_int_equal(carry_share_set(&first, large), 0);
    carry_share_end(&first);
    assert_int_equal(carry_share_set(&none, large), 0);
    carry_budget_fini(&budget);
}

/* Lists as many chunks of a file as there are, in frames. Whatever the receiver makes of it. */
static void *list_chunks(void *arg)
{
    enum { FRAMES = 100, CHUNKS = 3000 };
    struct link *link = arg;
    struct pst_reader frame;
    enum link_type type = LINK_WANT;

    while (type == LINK_WANT && link_receive(link, 0, &type, &frame) == 0)
        ;
    for (uint32_t i = 0; i < FRAMES && link->error == 0; i++) {
        link_put_number(link, 0, 4);
        link_put_number(link, 0, 1);
        for (uint32_t j = 0; j < CHUNKS; j++) {
            link_put_number(link, PST_CHUNK_BYTES, 4);
            link_put_number(link, i, 8);
            link_put_number(link, j, 8);
        }
        link_send(link, LINK_CHUNKS);
    }
    shutdown(link->fd, SHUT_WR);
    link_receive(link, LINK_NEED, &type, &frame);
    return NULL;
}

/* Of one file, which says that it is as large as one of which there are lists. */
static struct pst_manifest manifest_of_a_large_file(void)
{
    const struct pst_entry file = {
        .kind = PST_ENTRY_FILE, .mode = 0600, .bytes = PST_WANTED_FILE_BYTES_MAX, .path = "", .target = ""};
    struct pst_manifest m = {.entries = NULL};

    assert_int_equal(pst_manifest_add(&m, &file), 0);
    return m;
}

static void chunks_that_are_listed_count(void **state)
{
    char folder[] = "/tmp/penstock-budget-XXXXXX", faults[2][PST_FAULT_BYTES];
    const struct pst_carry_options options = {.flags = 0};
    struct pst_manifest m = manifest_of_a_large_file();
    struct pst_carry_place to = {.leaf = "file"};
    struct pst_arrival_result result;
    struct carry_budget budget;
    struct carry_share share = {.budget = &budget};
    struct link links[2];
    pthread_t sender;
    int ends[2], fd;

    (void)state;
    carry_budget_init(&budget, 4 * mib);
    assert_non_null(mkdtemp(folder));
    to.folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    fd = openat(to.folder_fd, "file", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, PST_ARRIVAL_OLD_BYTES_MIN), 0);
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(link_open(&links[i], ends[i], 60000, faults[i]), 0);
        link_trust(&links[i]);
    }
    assert_int_equal(carry_send_entries(&links[1], &m), 0);
    assert_int_equal(pthread_create(&sender, NULL, list_chunks, &links[1]), 0);
    assert_int_equal(carry_receive(&links[0], &share, &to, &options, &result), -EBUSY);
    carry_share_end(&share);
    close(ends[0]);
    pthread_join(sender, NULL);
    close(ends[1]);
    assert_int_equal(links[1].error, -EBUSY);
    for (int i = 0; i < 2; i++)
        link_close(&links[i]);
    pst_manifest_fini(&m);
    assert_int_equal(pst_arrival_forget(to.folder_fd, "file"), 1);
    unlinkat(to.folder_fd, "file", 0);
    close(to.folder_fd);
    assert_int_equal(rmdir(folder), 0);
    carry_budget_fini(&budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gets_wait_for_their_turn),
        cmocka_unit_test(a_put_beyond_the_bound_fails),
        cmocka_unit_test(chunks_that_are_listed_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
