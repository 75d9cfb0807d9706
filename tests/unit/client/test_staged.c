/* SPDX-License-Identifier: Apache-2.0 */
/* test_staged.c: puts from and gets into registered device memory, here the host device's. */
#include "lib/engine.h"

#include "gpu/gpu.h"

#include <penstock/penstock.h>

enum { MEMORY = 12 << 20, LARGE = 9 * 1000 * 1000 + 3, SMALL = 5000 };

static struct penstock *store;
static struct penstock_node *node; /* NULL: the store is embedded */
static char folder[32];
static struct pst_gpu *gpu;
static struct pst_gpu_memory *memory;
static uint8_t *addr; /* where this process has it mapped */

/* The mapping of the file that the memory is. */
static uint8_t *mapping_of(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long begin = 0, end = 0;
    char line[512];

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps)) {
        if (strstr(line, "penstock-tensor") && sscanf(line, "%llx-%llx", &begin, &end) == 2 &&
            end - begin == MEMORY) /* not the store's own */
            break;
    }
    fclose(maps);
    return (uint8_t *)(uintptr_t)begin;
}

static int set_up(void **state)
{
    char fault[PST_FAULT_BYTES];

    (void)state;
    assert_int_equal(penstock_open("mem:?dram=64M&page_size=64K&shards=2&hbm=host:32M", NULL, &store), 0);
    assert_int_equal(pst_gpu_host.open(0, &gpu, fault), 0);
    assert_int_equal(pst_gpu_host.allocate(gpu, MEMORY, &memory), 0);
    return 0;
}

static int set_up_node(void **state)
{
    char socket[64], url[64], fault[PST_FAULT_BYTES];
    const char *const settings[] = {socket, "dram=64M", "page_size=64K", "shards=2", "hbm=host:32M", NULL};
    const struct penstock_node_options options = {.size = sizeof(options), .settings = settings};

    (void)state;
    strcpy(folder, "/tmp/penstock-staged-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(socket, sizeof(socket), "unix=%s/s", folder);
    snprintf(url, sizeof(url), "node+unix://%s/s", folder);
    assert_int_equal(penstock_node_open(&options, &node), 0);
    assert_int_equal(penstock_open(url, NULL, &store), 0);
    assert_int_equal(pst_gpu_host.open(0, &gpu, fault), 0);
    return pst_gpu_host.allocate(gpu, MEMORY, &memory);
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(pst_gpu_give(memory));
    assert_null(penstock_close(store));
    if (node) {
        node = penstock_node_close(node);
        assert_null(node);
        assert_int_equal(rmdir(folder), 0);
    }
    return 0;
}

static void expect_device(uint64_t offset, const uint8_t *want, uint64_t bytes)
{
    uint8_t *got = malloc(bytes);

    assert_non_null(got);
    assert_int_equal(pst_gpu_copy_out(memory, offset, got, bytes), 0);
    assert_memory_equal(got, want, bytes);
    free(got);
}

static uint8_t *value_new(uint32_t seed)
{
    uint8_t *value = malloc(LARGE);

    assert_non_null(value);
    for (uint64_t i = 0; i < LARGE; i++)
        value[i] = (uint8_t)(i * 2654435761u >> 13 ^ seed * 97);
    return value;
}

static void register_all(void)
{
    addr = mapping_of();
    assert_non_null(addr);
    assert_int_equal(penstock_register(store, addr, MEMORY), 0);
}

static void both_ways(void **state)
{
    uint8_t *value = value_new(1), *got = malloc(LARGE);
    uint64_t value_bytes = 0;

    (void)state;
    register_all();
    for (int large = 0; large < 2; large++) {
        uint64_t bytes = large ? LARGE : SMALL;

        assert_int_equal(pst_gpu_copy_in(memory, 77, value, bytes), 0);
        assert_int_equal(penstock_put(store, "k", 1, addr + 77, bytes), 0);
        assert_int_equal(penstock_get(store, "k", 1, got, bytes, &value_bytes), 0);
        assert_int_equal(value_bytes, bytes);
        assert_memory_equal(got, value, bytes);
        memset(got, 0, bytes);
        assert_int_equal(pst_gpu_copy_in(memory, 0, got, bytes), 0);
        assert_int_equal(penstock_get(store, "k", 1, addr + 5, MEMORY - 5, &value_bytes), 0);
        assert_int_equal(value_bytes, bytes);
        expect_device(5, value, bytes);
    }
    assert_int_equal(penstock_get_range(store, "k", 1, 1000, addr, 8 << 20), 0);
    expect_device(0, value + 1000, 8 << 20);
    assert_int_equal(penstock_get_range(store, "k", 1, LARGE - 100, addr, 200), -ERANGE);
    assert_int_equal(penstock_get(store, "k", 1, addr, LARGE - 1, &value_bytes), -ENOBUFS);
    assert_int_equal(value_bytes, LARGE);
    assert_int_equal(penstock_get(store, "absent", 6, addr, MEMORY, NULL), PENSTOCK_MISS);
    assert_int_equal(penstock_put(store, "k", 1, addr + MEMORY - 10, 20), -ERANGE);
    assert_int_equal(penstock_put(store, "k", 1, addr + MEMORY - 10, 5 << 20), -ERANGE);
    assert_int_equal(penstock_deregister(store, addr), 0);
    assert_int_equal(penstock_deregister(store, addr), -EINVAL);
    free(value);
    free(got);
}

/* Conditions, attributes and checksums are a put's and a get's, in parts or not. */
static void as_any_operation(void **state)
{
    uint8_t *value = value_new(2);
    char attrs[8] = "";
    struct penstock_op op = {0};

    (void)state;
    register_all();
    assert_int_equal(pst_gpu_copy_in(memory, 0, value, LARGE), 0);
    penstock_prep_put(&op, "c", 1, addr, LARGE);
    op.flags = PENSTOCK_IF_ABSENT | PENSTOCK_CHECKSUM;
    op.attrs = "seven b";
    op.attr_bytes = 7;
    assert_int_equal(penstock_batch(store, &op, 1), 0);
    assert_true(op.generation > 0);
    assert_int_equal(penstock_batch(store, &op, 1), 1);
    assert_int_equal(op.result, PENSTOCK_EXISTS);
    op = (struct penstock_op){0};
    penstock_prep_get(&op, "c", 1, addr, MEMORY);
    op.attrs = attrs;
    op.attr_bytes = sizeof(attrs);
    op.flags = PENSTOCK_EXACT;
    assert_int_equal(penstock_batch(store, &op, 1), 1);
    assert_int_equal(op.result, -EMSGSIZE);
    op.bytes = LARGE;
    assert_int_equal(penstock_batch(store, &op, 1), 0);
    assert_int_equal(op.value_bytes, LARGE);
    assert_string_equal(attrs, "seven b");
    expect_device(0, value, LARGE);
    op.flags = PENSTOCK_IF_GENERATION;
    op.if_generation = op.generation + 1;
    assert_int_equal(penstock_batch(store, &op, 1), 1);
    assert_int_equal(op.result, PENSTOCK_STALE);
    assert_int_equal(penstock_deregister(store, addr), 0);
    free(value);
}

/* A batch may mix them; reservations are written from there; queues and pieces are refused by name. */
static void what_goes_and_what_does_not(void **state)
{
    uint8_t *value = value_new(3), host[16] = "on the host";
    struct iovec iov[2] = {{host, 16}, {NULL, 16}};
    struct penstock_reservation reservation;
    struct penstock_op ops[2] = {0}, *done;
    struct penstock_queue *queue;

    (void)state;
    register_all();
    assert_int_equal(pst_gpu_copy_in(memory, 0, value, LARGE), 0);
    penstock_prep_put(&ops[0], "a", 1, host, sizeof(host));
    penstock_prep_put(&ops[1], "b", 1, addr, SMALL);
    assert_int_equal(penstock_batch(store, ops, 2), 0);
    assert_int_equal(penstock_exists(store, "a", 1), 0);
    assert_int_equal(penstock_exists(store, "b", 1), 0);
    assert_int_equal(penstock_reserve(store, "r", 1, LARGE, 0, &reservation), 0);
    assert_int_equal(penstock_write_at(store, "r", 1, &reservation, 0, addr, LARGE), 0);
    assert_int_equal(penstock_reservation_commit(store, "r", 1, &reservation, NULL), 0);
    assert_int_equal(penstock_get(store, "r", 1, addr, MEMORY, NULL), 0);
    expect_device(0, value, LARGE);
    iov[1].iov_base = addr;
    ops[0].iov = iov;
    ops[0].iov_count = 2;
    ops[0].bytes = 32;
    assert_int_equal(penstock_batch(store, ops, 1), 1);
    assert_int_equal(ops[0].result, -EOPNOTSUPP);
    assert_int_equal(penstock_queue_open(store, &queue), 0);
    assert_int_equal(penstock_submit(queue, &ops[1], 1), 0);
    assert_int_equal(penstock_reap(queue, &done, 1, -1), 1);
    assert_int_equal(done->result, -EOPNOTSUPP);
    assert_null(penstock_queue_close(queue));
    free(value); /* what is still registered ends with the store */
}

int main(void)
{
#define ON(name, begin) cmocka_unit_test_setup_teardown(name, begin, tear_down)
    const struct CMUnitTest tests[] = {
        ON(both_ways, set_up),
        ON(as_any_operation, set_up),
        ON(what_goes_and_what_does_not, set_up),
        ON(both_ways, set_up_node),
        ON(as_any_operation, set_up_node),
        ON(what_goes_and_what_does_not, set_up_node),
    };
#undef ON

    return cmocka_run_group_tests(tests, NULL, NULL);
}
