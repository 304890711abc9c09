/*
 * Ranks that decide together, through a c10d store, whether to do something: all of them do it, or none.
 *
 * Each rank says what hinders it. When all have, rank 0 decides. A rank whose time is up decides that it shall not be. The store compares
 * and sets, so the first decision stands, and everybody reads that one. After a refusal ranks may try again, at different times. So a rank
 * joins the first round that is not decided.
 */
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store.hpp"

namespace commstream
{

struct Vote {
    std::string against; /* what hinders this rank; empty: nothing */
    uint64_t sent = 0;   /* messages of this rank in all */
    uint64_t received = 0;
};

class Agreement
{
  public:
    /* The store is for this agreement alone. */
    Agreement(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size);

    /* Waits for all ranks. Empty: they agree. Otherwise the reason, in the same words for all. `trouble` says why waiting is in vain. */
    std::string reach(const Vote &vote, std::chrono::milliseconds limit, const std::function<std::string()> &trouble);
    /* Removes this rank's keys, which all ranks have read. */
    void forget();

  private:
    std::string key(const std::string &what) const;
    std::optional<std::string> decision();
    std::string decide(const std::string &refusal);
    /* Empty: not all have voted. Otherwise as reach(). */
    std::optional<std::string> count();
    std::string absent();

    c10::intrusive_ptr<c10d::Store> store_;
    int rank_, size_;
    int round_ = 0;
};

} // namespace commstream
