// SPDX-License-Identifier: Apache-2.0
// In place of NIXL's header of this name, which needs the abseil that NIXL was built with.
#ifndef PENSTOCK_NIXL_LOG_H
#define PENSTOCK_NIXL_LOG_H

#include <cassert>
#include <iostream>

#define NIXL_ERROR std::cerr << "\npenstock: "
#define NIXL_ASSERT(condition) assert(condition)

#endif
