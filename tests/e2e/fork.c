/* fork.c: after a fork the child's copy of a handle refuses, and the parent's goes on. */
#include "e2e.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Return: 0, or the number of the call that did not refuse. */
static int copy_refuses(struct penstock *store, struct penstock_queue *queue)
{
    struct penstock_stat stat = {.size = sizeof(stat)};
    struct penstock_op op = {0}, *done[1];
    struct penstock_list *list;
    struct penstock_queue *other;
    struct penstock_view view;
    uint8_t buf[16];
    size_t count;
    const struct iovec key = {"k", 1};

    penstock_prep_put(&op, "k", 1, "child", 5);
    const int results[] = {
        penstock_put(store, "k", 1, "child", 5),
        penstock_get(store, "k", 1, buf, sizeof(buf), NULL),
        penstock_get_range(store, "k", 1, 0, buf, 1),
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
        penstock_list_open(store, NULL, &list),
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
    struct penstock_queue *queue;
    int status;
    pid_t pid;

    (void)state;
    assert_ptr_not_equal(outcome, MAP_FAILED);
    *outcome = -1;
    put_value(STORE, "k", 70000, 1);
    assert_result(penstock_queue_open(STORE, &queue), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int wrong = copy_refuses(STORE, queue);

        alarm(20);
        if (!wrong && strcmp(penstock_lane(STORE), "none") != 0)
            wrong = 90;
        penstock_close(STORE); /* drops the copy; the connection is the parent's */
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
    assert_null(penstock_queue_close(queue));
    assert_result(penstock_exists(STORE, "child", 5), place_is_private() ? PENSTOCK_MISS : PENSTOCK_OK);
}

static const struct CMUnitTest tests[] = {
    TEST(child_refuses_parent_goes_on),
};

PART(part_fork, tests);
