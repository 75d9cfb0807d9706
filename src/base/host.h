/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: which machine this is, as far as copies of values and short ways are concerned. */
#ifndef PST_HOST_H
#define PST_HOST_H

#include <stdint.h>

/* The same for all processes of a machine, from its boot on, or for all that say the same @name; NULL or "":
 * by the boot. */
void pst_host_id(const char *name, uint8_t id[16]);

#endif
