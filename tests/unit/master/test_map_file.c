/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a pool map on a file system that fails. */
#include "lib/cm.h"

#include "master/map_file.h"

#include <stdio.h>

static int sync_error; /* of the next fsync(); 0: it works */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    if (!sync_error)
        return __real_fsync(fd);
    errno = sync_error;
    sync_error = 0;
    return -1;
}

/* -ESTALE is NFS's, too: it says nothing of another master, which the lock keeps away. */
static void a_stale_handle_is_no_other_master(void **state)
{
    const struct pst_bytes map = {"map", 3};
    char folder[] = "/tmp/penstock-map-XXXXXX", path[64], fault[PST_FAULT_BYTES] = "";
    struct pst_bytes stored = {NULL, 0};
    struct pst_keeper *keeper;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/map", folder);
    assert_int_equal(pst_map_file_open(path, &keeper, fault), 0);
    assert_int_equal(keeper->ops->take(keeper, 100, &stored, fault), 0);
    assert_int_equal(keeper->ops->swap(keeper, 0, 1, map, fault), 0);
    sync_error = ESTALE;
    assert_int_equal(keeper->ops->swap(keeper, 1, 2, map, fault), -EIO);
    assert_string_equal(fault, strerror(ESTALE));
    assert_int_equal(keeper->ops->swap(keeper, 1, 2, map, fault), 0);
    keeper->ops->close(keeper);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/map.lock", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stale_handle_is_no_other_master)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
