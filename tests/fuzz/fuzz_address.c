/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_address.c: addresses and URLs of stores as people write them. What parses prints as text that parses
 * to the same. */
#include "fuzz.h"

#include "client/client_priv.h"
#include "net/handshake/handshake_priv.h"

static void address(const char *text)
{
    struct pst_boot_address address, again;
    const char *fault = NULL;
    char printed[300];

    if (pst_boot_address_parse(text, &address, &fault) < 0) {
        pst_assert(fault && *fault);
        return;
    }
    pst_assert(memchr(address.host, 0, sizeof(address.host)) &&
               memchr(address.path, 0, sizeof(address.path)));
    pst_boot_address_print(&address, printed, sizeof(printed));
    pst_assert(pst_boot_address_parse(printed, &again, &fault) == 0);
    pst_assert(strcmp(address.host, again.host) == 0 && strcmp(address.path, again.path) == 0);
    pst_assert(address.port == again.port);
    pst_assert(pst_boot_address_loopback(&address) == pst_boot_address_loopback(&again));
    pst_assert(!pst_boot_address_wildcard(&address) || !pst_boot_address_loopback(&address));
}

static void url(const char *text)
{
    struct pst_url url;

    if (pst_url_parse(text, &url) < 0)
        return;
    pst_assert(strlen(url.address) < sizeof(url.address));
    pst_assert(url.query >= text && url.query <= text + strlen(text));
    if (url.embedded)
        pst_assert(strncmp(text, "mem:", 4) == 0 && !url.address[0]);
    else
        address(url.address);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz in = {data, bytes};
    char *text = fuzz_text(&in, in.left);

    address(text);
    url(text);
    free(text);
    return 0;
}
