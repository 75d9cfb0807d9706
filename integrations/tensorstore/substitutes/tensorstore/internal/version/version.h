/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PENSTOCK_TENSORSTORE_INTERNAL_VERSION_VERSION_H_
#define PENSTOCK_TENSORSTORE_INTERNAL_VERSION_VERSION_H_

// TensorStore's own build writes this header.  The command line defines
// TENSORSTORE_VERSION.

#endif  // PENSTOCK_TENSORSTORE_INTERNAL_VERSION_VERSION_H_
