/* The cases; each file tells what they are about. */
#ifndef MODEL_CASES_H
#define MODEL_CASES_H

#include "model/explore.h"

extern const struct model_case case_lock_three, case_lock_twice;
extern const struct model_case case_home, case_home_try, case_home_leaving, case_home_unclaimed, case_home_no_barrier;

#endif
