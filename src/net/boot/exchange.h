/* Meeting by the program's own exchange. */
#ifndef NET_BOOT_EXCHANGE_H
#define NET_BOOT_EXCHANGE_H

#include "net/auth/crypto.h"
#include "wire/boot.h"

/* config->exchange must be set. key: the key of a secret that the program gave, or NULL. failed: a failure of this rank, with its text in
 * config->error_text, which the others must learn of. */
enum comm_result boot_exchange_open(const struct boot_config *config, const unsigned char *key, enum comm_result failed,
                                    struct wire_boot **boot);

#endif
