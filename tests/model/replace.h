/* Included before every instrumented source: copies become plain accesses, which the instrumentation leaves to the
 * detector's own memcpy. */
#ifndef MODEL_REPLACE_H
#define MODEL_REPLACE_H

#define memcpy model_memcpy
#define memset model_memset
#define data_dirty model_dirty
#define data_take model_take

#endif
