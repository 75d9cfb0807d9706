/* SPDX-License-Identifier: Apache-2.0 */
/* fork.c: after a fork the child's copy of a handle refuses, and the parent's goes on. */
#include "e2e.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Return: 0, or the number of the call that did not refuse. */
static int copy_refuses(struct penstock *store, struct penstock_queue *queue, struct penstock_list *open_list,
                        struct penstock_watch *watch)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    struct penstock_op op = {0}, *done[1];
    struct penstock_list *list;
    struct penstock_queue *other;
    struct penstock_watch *other_watch;
    struct penstock_event event;
    struct penstock_entry entry;
    struct penstock_view view;
    uint8_t buf[16];
    size_t count;
    const struct iovec key = {"k", 1};

    penstock_prep_put(&op, "k", 1, "child", 5);
    const int results[] = {
        penstock_put(store, "k", 1, "child", 5),
        penstock_get(store, "k", 1, buf, sizeof(buf), NULL),
        penstock_get_range(store, "k", 1, 0, buf, 1),
        penstock_get_wait(store, "k", 1, buf, sizeof(buf), NULL, 1000),
        penstock_exists(store, "k", 1),
        penstock_exists_consecutive(store, &key, 1, &count),
        penstock_delete(store, "k", 1),
        penstock_pin(store, "k", 1, 0),
        penstock_unpin(store, "k", 1),
        penstock_delete_prefix(store, "k", 1, NULL),
        penstock_delete_range(store, "k", 1, NULL, 0, NULL),
        penstock_clear(store, NULL),
        penstock_batch(store, &op, 1),
        penstock_queue_open(store, &other),
        penstock_submit(queue, &op, 1),
        penstock_reap(queue, done, 1, 0),
        penstock_queue_fd(queue),
        penstock_list_open(store, NULL, &list),
        penstock_list_next(open_list, &entry),
        penstock_watch_open(store, "k", 1, &other_watch),
        penstock_watch_next(watch, -1, &event),
        penstock_watch_fd(watch),
        penstock_view(store, "k", 1, &view),
        penstock_stat(store, &stat),
        penstock_ping(store, NULL),
        penstock_register(store, buf, sizeof(buf)),
        penstock_deregister(store, buf),
    };

    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        if (results[i] != -ECHILD)
            return (int)i + 1;
    }
    return 0;
}

/* A store of the child's own. Return: 0 when it works. */
static int child_opens_anew(void)
{
    struct penstock *own;
    uint8_t buf[16] = {0};
    int r;

    if (penstock_open(place_is_private() ? "mem:?dram=16M" : fixture.place.url, NULL, &own) != 0)
        return 100;
    r = penstock_put(own, "child", 5, "from the child", 14);
    if (r == 0)
        r = penstock_get(own, "child", 5, buf, sizeof(buf), NULL);
    if (r == 0 && memcmp(buf, "from the child", 14) != 0)
        r = 1;
    penstock_close(own);
    return r ? 101 : 0;
}

static void child_refuses_parent_goes_on(void **state)
{
    int *outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct penstock_op wait = {0}, *done;
    struct penstock_queue *queue;
    struct penstock_watch *watch;
    struct penstock_event event;
    struct penstock_list *list;
    uint8_t buf[16];
    int status;
    pid_t pid;

    (void)state;
    assert_ptr_not_equal(outcome, MAP_FAILED);
    *outcome = -1;
    put_value(STORE, "k", 70000, 1);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    assert_result(penstock_list_open(STORE, NULL, &list), 0);
    assert_result(penstock_watch_open(STORE, "late", 4, &watch), 0);
    assert_int_equal(penstock_watch_next(watch, 0, &event), 0);
    penstock_prep_get(&wait, "late", 4, buf, sizeof(buf));
    wait.flags = PENSTOCK_WAIT;
    wait.wait_ms = 60000;
    assert_result(penstock_submit(queue, &wait, 1), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int wrong;

        alarm(20);
        wrong = copy_refuses(STORE, queue, list, watch);
        if (!wrong && strcmp(penstock_lane(STORE), "none") != 0)
            wrong = 90;
        penstock_watch_close(watch); /* drops copies; the connection is the parent's */
        penstock_list_close(list);
        penstock_queue_close(queue);
        penstock_close(STORE);
        *outcome = wrong ? wrong : child_opens_anew();
        /* An orderly end would have valgrind count as lost what a dropped copy has to leave behind. */
        raise(SIGKILL);
    }
    for (int i = 0; i < 50; i++) /* meanwhile */
        expect_bytes(STORE, "k", 70000, 1);
    status = wait_for_child(pid, 30);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(*outcome, 0);
    munmap(outcome, sizeof(*outcome));
    expect_bytes(STORE, "k", 70000, 1);
    put_value(STORE, "k", 70000, 2);
    expect_bytes(STORE, "k", 70000, 2);
    put_value(STORE, "late", 16, 3); /* what was underway at the fork ends as it would have */
    assert_int_equal(penstock_reap(queue, &done, 1, -1), 1);
    assert_result(wait.result, 0);
    assert_true(filled(buf, 16, 3));
    assert_int_equal(penstock_watch_next(watch, 30000, &event), 1);
    assert_int_equal(event.what, PENSTOCK_EVENT_PUT);
    assert_null(penstock_watch_close(watch));
    assert_null(penstock_list_close(list));
    assert_null(penstock_queue_close(queue));
    assert_result(penstock_exists(STORE, "child", 5), place_is_private() ? PENSTOCK_MISS : PENSTOCK_OK);
}

static const struct CMUnitTest tests[] = {
    TEST(child_refuses_parent_goes_on),
};

PART(part_fork, tests);
