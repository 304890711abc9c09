/* Multiplies elements by a factor, with the kernel of products: it pairs the input with a block in which the factor is repeated. */
#include "data/data.h"

#include <string.h>

enum { SCALE_BLOCK_BYTES = 4096 };

void data_scale(void *to, const void *from, size_t n, const struct data_scale *scale)
{
    data_reduce_fn *product = data_reducer(scale->type, COMM_PROD, scale->isa);
    size_t element = data_type_bytes(scale->type), most = SCALE_BLOCK_BYTES / element;
    _Alignas(64) char factors[SCALE_BLOCK_BYTES];

    for (size_t i = 0; i < (n < most ? n : most); i++)
        memcpy(factors + i * element, scale->factor, element);
    for (size_t at = 0; at < n; at += most) {
        const void *pair[2] = {factors, (const char *)from + at * element};
        product(&(struct data_reduce){
            .from = pair, .ways = 2, .to = (char *)to + at * element, .elements = n - at < most ? n - at : most, .final = true});
    }
}
