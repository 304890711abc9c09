/* What bindgen reads: generate.sh. */
#include <commstream/commstream.h>
#include <commstream/cuda.h>
