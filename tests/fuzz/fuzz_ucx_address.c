/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ucx_address.c: the check of a worker's address before UCX unpacks it. The first byte says how long our
 * own address is, against which the rest is held. */
#include "fuzz.h"

#include "net/net.h"
#include "net/ucx/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    size_t own_bytes = (size_t)fuzz_number(&in, 1), other_bytes;
    struct ucx_address_form form = {0};
    uint8_t *own = fuzz_take(&in, own_bytes, &own_bytes);
    uint8_t *other = fuzz_take(&in, in.left, &other_bytes);

    if (own_bytes > 0 && other_bytes > 0) {
        ucx_address_learn(&form, own, own_bytes);
        if (form.known)
            pst_assert(ucx_address_sound(&form, own, own_bytes));
        else
            pst_assert(ucx_address_sound(&form, other, other_bytes));
        form.known = form.lane_count <= UCX_LANES_KNOWN_MAX;
        (void)ucx_address_sound(&form, other, other_bytes);
    }
    free(own);
    free(other);
    return 0;
}
