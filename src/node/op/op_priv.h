/* SPDX-License-Identifier: Apache-2.0 */
/* op_priv.h: what apply.c's table names, by the file that has it: each answers the request's operation
 * @index. */
#ifndef PST_NODE_OP_PRIV_H
#define PST_NODE_OP_PRIV_H

#include "node/request.h"

/* value.c */
void pst_apply_put(struct pst_request *q, uint32_t index);
void pst_apply_get(struct pst_request *q, uint32_t index);
void pst_apply_delete(struct pst_request *q, uint32_t index);
void pst_apply_pin(struct pst_request *q, uint32_t index);
void pst_apply_unpin(struct pst_request *q, uint32_t index);
/* range.c */
void pst_apply_list(struct pst_request *q, uint32_t index);
void pst_apply_sweep(struct pst_request *q, uint32_t index);
/* view.c */
void pst_apply_view(struct pst_request *q, uint32_t index);
void pst_apply_release(struct pst_request *q, uint32_t index);
/* watch.c */
void pst_apply_watch_open(struct pst_request *q, uint32_t index);
void pst_apply_watch_next(struct pst_request *q, uint32_t index);
void pst_apply_watch_close(struct pst_request *q, uint32_t index);
/* reservations.c */
void pst_apply_reserve(struct pst_request *q, uint32_t index);
void pst_apply_reservation_write(struct pst_request *q, uint32_t index);
void pst_apply_reservation_commit(struct pst_request *q, uint32_t index);
void pst_apply_reservation_abort(struct pst_request *q, uint32_t index);
/* copy.c */
void pst_apply_copy(struct pst_request *q, uint32_t index);
void pst_apply_copy_clear(struct pst_request *q, uint32_t index);

#endif
